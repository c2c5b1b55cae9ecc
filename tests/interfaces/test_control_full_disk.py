"""Prompts while the log cannot be written: a refused one does not run later, and none is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.kit import Place
from tests.interfaces.control_kit import DEMO, WAIT, begun, controlled, demo_place, go

FULL = """\
import errno
from pathlib import Path
from dsh.core.session_store import SessionFlush

name = "full"


def apply(ctx):
    def flush(event):
        if Path("full").exists():
            raise OSError(errno.ENOSPC, "No space left on device")

    ctx.on(SessionFlush, flush)
"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = demo_place(tmp_path)
    place.write("plugins/full.py", FULL)
    row = "- {id: checkpoint, name: dsh-session-checkpoint-policy}\n- {id: full, name: ./plugins/full.py}\n"
    place.write("cordis.yml", DEMO + row)
    return place


def taken_up(log: list[Any]) -> list[str]:
    """The prompts that a step took."""
    prompts = [event["data"] for event in log if event["type"] == "user/message"]
    return [each["content"][0]["text"] for each in prompts if each.get("origin", "user") == "user"]


async def test_a_prompt_refused_for_a_full_disk_is_not_run_later(place: Place) -> None:
    async with controlled(place) as control:
        full = place.write("full", "")
        path = f"/api/sessions/{control.main}/prompt"
        for text in ("refused A", "refused B"):
            refused = await control.ask("POST", path, {"content": text}, 500)
            assert "No space left" in refused["error"]["message"]
        full.unlink()
        await control.prompt("after")
        await control.idle()
        assert [text for text in taken_up(await control.log()) if text in ("refused A", "refused B", "after")] == [
            "after"
        ]


async def test_a_prompt_refused_behind_a_running_turn_leaves_the_queue(place: Place) -> None:
    async with controlled(place) as control:
        await control.prompt(WAIT)
        await begun(place)
        full = place.write("full", "")
        path = f"/api/sessions/{control.main}/prompt"
        await control.ask("POST", path, {"content": "refused"}, 500)
        queue = await control.ask("GET", f"/api/sessions/{control.main}/queue")
        assert queue["nextTurn"] == []
        full.unlink()
        go(place)


async def test_a_prompt_that_a_step_has_already_is_refused_truthfully(place: Place) -> None:
    place.write("cordis.yml", DEMO + "- {id: full, name: ./plugins/full.py}\n")
    async with controlled(place) as control:
        place.write("full", "")
        path = f"/api/sessions/{control.main}/prompt"
        refused = await control.ask("POST", path, {"content": WAIT}, 500)
        assert refused["error"]["message"].endswith("; the agent works on the prompt all the same")
        await begun(place)
        go(place)
