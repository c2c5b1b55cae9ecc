"""What a program can do only with the composition in its own process."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dsh.cordis import ConfigModel, Context
from dsh.core.tools import Tools, tool
from dsh.loader.yamlio import parse_yaml
from dsh.models.mock_server import MockLlmServer
from dsh.sdk import BootError, HarnessError, ToolEnd
from tests.cli.kit import TIMEOUT, Place

from .kit import ROWS, assert_equal_logs, call, harness, log_of, made, spawned


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return made(tmp_path / "place")


async def test_rows_given_in_python_are_a_composition(place: Place, tmp_path: Path) -> None:
    (place.work / "cordis.yml").unlink()
    place.write("mine.py", "def apply(ctx):\n    ctx.provide('mine', 42)\n")
    rows: list[Any] = [*parse_yaml(ROWS), {"id": "mine", "name": "./mine.py"}]
    other = made(tmp_path / "other")
    logs = []
    for at, config in ((place, rows), (other, None)):
        async with MockLlmServer(["success"]) as server:
            async with harness(at, server, **({} if config is None else {"config": config})) as h:
                session = await h.session("main")
                assert (await session.prompt("Hi").result()).ok
                assert config is None or h.service("mine") == 42
        logs.append(log_of(at, session.id))
    assert_equal_logs(*logs)
    for wrong, said in (
        ([{"id": "x", "name": "dsh-nothing"}], "dsh-nothing"),
        ([{"id": "x"}], "name"),
        ([*rows, {"id": "mine", "name": "./mine.py"}], "mine"),
    ):
        with pytest.raises(BootError, match=said):
            async with harness(place, config=wrong):
                pass


async def test_patches_given_in_python_change_rows(place: Place) -> None:
    patches = [{"id": "agent-loop", "config": {"agents": [{"id": "a"}, {"id": "b"}]}}]
    async with harness(place, patches=patches) as h:
        assert [one.label for one in await h.agents()] == ["a", "b"]
    async with harness(place, configured_agents=False) as h:
        assert await h.agents() == []
        with pytest.raises(HarnessError, match="starts no agent"):
            await h.session()


class Config(ConfigModel):
    """Config of the plugin below."""

    word: str


def greeter(ctx: Context, config: Config, tools: Tools) -> None:
    @tool
    def greet(name: str) -> str:
        """Greet somebody.

        name: who
        """
        return f"{config.word}, {name}"

    tools.register(greet)


async def test_a_plugin_may_be_an_object_of_the_program(place: Place) -> None:
    greeter.Config = Config  # type: ignore[attr-defined]
    async with MockLlmServer([call("greet", '{"name": "Ada"}'), "success"]) as server:
        async with harness(place, server, plugins=[(greeter, {"word": "Salut"})]) as h:
            run = (await h.session("main")).prompt("Greet.")
            assert [event.text async for event in run if isinstance(event, ToolEnd)] == ["Salut, Ada"]
            assert "greet" in {schema["name"] for schema in h.service(Tools).schemas()}


async def test_a_plugin_of_the_program_that_does_not_start_is_an_error(place: Place) -> None:
    def broken(ctx: Context) -> None:
        raise ValueError("not today")

    def needy(ctx: Context, nothing: Any) -> None:
        pass

    needy.inject = ["nothing"]  # type: ignore[attr-defined]
    for plugin, said in ((broken, "not today"), (needy, "waiting for services: nothing")):
        with pytest.raises(BootError, match=said):
            async with harness(place, plugins=[plugin]):
                pass


async def test_an_agent_that_did_not_start_says_why(place: Place) -> None:
    rows = ROWS.replace("[{id: main}]", "[{id: main, resumeSessionId: gone}]")
    place.write("cordis.yml", rows)
    async with harness(place) as h:
        with pytest.raises(HarnessError, match='agent "main" did not start: .*gone'):
            await h.session("main")


async def test_a_session_outlives_an_edit_that_restarts_the_loop(place: Place) -> None:
    async with MockLlmServer(["success", "success"]) as server, harness(place, server, follow=True) as h:
        session = await h.session("main")
        assert (await session.prompt("one").result()).ok
        before = h.service("agents").get(session.id)
        place.write("cordis.yml", ROWS.replace("{id: llm, name: dsh-llm}", "{id: llm-again, name: dsh-llm}"))
        async with asyncio.timeout(TIMEOUT):
            while h.service("agents").get(session.id) in (None, before):
                await asyncio.sleep(0.02)
        assert (await session.prompt("two").result()).ok
        assert len(server.bodies[1]["messages"]) > len(server.bodies[0]["messages"])


async def test_a_harness_can_be_entered_again_but_not_twice_at_once(place: Place) -> None:
    h = harness(place)
    for _ in range(2):
        async with h:
            await h.session("main")
            with pytest.raises(HarnessError, match="runs already"):
                await h.__aenter__()
    with pytest.raises(HarnessError, match="not running"):
        await h.agents()


async def test_services_and_plugins_belong_to_this_process(place: Place) -> None:
    async with spawned(place) as h:
        with pytest.raises(HarnessError, match="in process only"):
            h.service(Tools)


async def test_a_runtime_finds_the_modules_of_the_program_and_none_of_its_folder(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "my_own_plugin.py").write_text("def apply(ctx):\n    ctx.provide('mine', 42)\n")
    monkeypatch.syspath_prepend(mine)
    place.write("orjson.py", "raise RuntimeError('of the workspace')\n")
    place.write("cordis.yml", ROWS + "- {id: mine, name: my_own_plugin}\n")
    for way in (harness, spawned):
        async with way(place) as h:
            assert [one.label for one in await h.agents()] == ["main"]
