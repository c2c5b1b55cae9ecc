"""The tool ``my_plugin``: called, set while it runs, and used by an agent whose model says what stands here."""

from pathlib import Path

from dsh.testing import async_test, call, result_text, run_plugin, say

PLUGIN = Path(__file__).with_name("my_plugin.py")


@async_test
async def test_the_tool_answers() -> None:
    async with run_plugin(PLUGIN) as run:
        result = await run.call("my_plugin", {"name": "Ada"})
        assert result_text(result) == "Hello, Ada!"


@async_test
async def test_the_setting_is_live() -> None:
    async with run_plugin(PLUGIN) as run:
        assert await run.edit({"greeting": "Ahoy"}), "the plugin was restarted"
        result = await run.call("my_plugin", {"name": "Ada"})
        assert result_text(result) == "Ahoy, Ada!"


@async_test
async def test_an_agent_uses_the_tool() -> None:
    model = [call("my_plugin", {"name": "Ada"}), say("I greeted Ada.")]
    async with run_plugin(PLUGIN, model=model) as run:
        turn = await run.prompt("Please greet Ada.")
        assert turn.results == ["Hello, Ada!"]
        assert turn.text == "I greeted Ada."
