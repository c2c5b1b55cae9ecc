"""The listener of ``my-plugin`` beside a tool that it hears of."""

from pathlib import Path

from dsh.cordis import Context
from dsh.core.tools import Tools
from dsh.testing import async_test, run_plugin

PLUGIN = Path(__file__).with_name("my_plugin.py")


def echo_tool(ctx: Context, config: None, tools: Tools) -> None:
    """A plugin of this test alone."""

    @tools.tool
    async def echo(text: str) -> str:
        """Say it again."""
        return text


@async_test
async def test_a_slow_call_is_noted() -> None:
    async with run_plugin(PLUGIN, {"slowMs": 0}, plugins=[echo_tool]) as run:
        await run.call("echo", {"text": "hi"})
        assert [line for line in run.logged() if line.startswith("echo took")]


@async_test
async def test_the_setting_is_live() -> None:
    async with run_plugin(PLUGIN, {"slowMs": 0}, plugins=[echo_tool]) as run:
        assert await run.edit({"slowMs": 60_000}), "the plugin was restarted"
        await run.call("echo", {"text": "hi"})
        assert not [line for line in run.logged() if line.startswith("echo took")]
