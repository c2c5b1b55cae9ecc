"""The provider ``my-plugin``, answering a real agent."""

from pathlib import Path

from dsh.testing import async_test, run_plugin

PLUGIN = Path(__file__).with_name("my_plugin.py")


@async_test
async def test_an_agent_gets_an_answer() -> None:
    async with run_plugin(PLUGIN, route=("my-plugin", "any")) as run:
        turn = await run.prompt("hello there")
        assert (turn.status, turn.text) == ("completed", "You said: hello there")


@async_test
async def test_the_setting_is_live() -> None:
    async with run_plugin(PLUGIN, route=("my-plugin", "any")) as run:
        assert await run.edit({"prefix": "Echo:"}), "the plugin was restarted"
        assert (await run.prompt("hello there")).text == "Echo: hello there"
