"""The `DSH_*` variables of commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dsh.shell.env
from dsh.cordis import Context, HarnessError
from dsh.core.seams import SessionLocation, SessionPersistence
from dsh.shell.service import ShellEnv
from tests.files.helpers import FakeAgent


async def test_who_asks_decides_what_is_told(tmp_path: Path) -> None:
    agent = FakeAgent(tmp_path, "s1")
    async with Context() as root:
        await root.plugin(dsh.shell.env, {"dshHome": str(tmp_path)})
        env = root[ShellEnv]
        assert env.variables(None) == {"DSH_HOME": str(tmp_path), "DSH_SHELL": "1"}
        assert env.variables(agent) == {"DSH_HOME": str(tmp_path), "DSH_SHELL": "1", "DSH_SESSION_ID": "s1"}

        class Stored:
            kind = "jsonl"

            def locate(self, header: Any) -> SessionLocation:
                return SessionLocation(self.kind, f"/logs/{header.id}.jsonl")

        stored = Stored()
        root.provide(SessionPersistence.service_name, stored)
        assert env.variables(agent)["DSH_SESSION_JSONL"] == "/logs/s1.jsonl"
        stored.kind = "sqlite"
        assert "DSH_SESSION_JSONL" not in env.variables(agent)


async def test_contributions_come_and_go_with_their_plugin() -> None:
    async with Context() as root:
        await root.plugin(dsh.shell.env, {})

        def contributor(ctx: Context) -> None:
            ctx[ShellEnv].register("team", ["DSH_TEAM", "DSH_MEMBER"], lambda agent: {"DSH_TEAM": "red"})

        fiber = await root.inject([ShellEnv], contributor)
        env = root[ShellEnv]
        assert env.variables(None)["DSH_TEAM"] == "red"
        for name, keys, text in (
            ("team", ["DSH_X"], 'contributor "team" is already registered'),
            ("other", ["DSH_MEMBER"], 'variable "DSH_MEMBER" is already provided by "team"'),
            ("other", ["DSH_SESSION_ID"], 'variable "DSH_SESSION_ID" is reserved'),
            ("other", ["PATH"], 'variable "PATH" must match'),
            ("other", ["DSH_lower"], 'variable "DSH_lower" must match'),
            ("other", ["DSH_A\n"], "must match"),
        ):
            with pytest.raises(HarnessError, match=text):
                env.register(name, keys, lambda agent: {})
        await fiber.dispose()
        assert "DSH_TEAM" not in env.variables(None)
        env.register("team", ["DSH_TEAM"], lambda agent: {})


@pytest.mark.parametrize(
    ("given", "text"),
    [({"DSH_Y": "1"}, 'undeclared variable "DSH_Y"'), ({"DSH_X": 1}, 'variable "DSH_X" of "bad" must be a string')],
)
async def test_a_contributor_that_breaks_its_word_is_named(given: dict[str, Any], text: str) -> None:
    async with Context() as root:
        await root.plugin(dsh.shell.env, {})
        root[ShellEnv].register("bad", ["DSH_X"], lambda agent: given)
        with pytest.raises(HarnessError, match=text):
            root[ShellEnv].variables(None)
