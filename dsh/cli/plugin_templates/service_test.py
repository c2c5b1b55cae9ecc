"""The service ``myPlugin``: asked directly, and used by another plugin that comes and goes."""

from pathlib import Path

import pytest

from dsh.cordis import Context, HarnessError
from dsh.testing import async_test, run_plugin

PLUGIN = Path(__file__).with_name("my_plugin.py")


@async_test
async def test_it_greets() -> None:
    async with run_plugin(PLUGIN) as run:
        assert run["myPlugin"].greet("Ada") == "Hello, Ada!"
        with pytest.raises(HarnessError, match='no greeting for "de"'):
            run["myPlugin"].greet("Ada", "de")


@async_test
async def test_what_a_plugin_adds_leaves_with_it() -> None:
    def german(ctx: Context) -> None:
        ctx["myPlugin"].add("de", "Hallo")

    async with run_plugin(PLUGIN) as run:
        user = await run.ctx.plugin(german, inject=["myPlugin"])
        assert await run.edit({"defaultLanguage": "de"}), "the plugin was restarted"
        assert run["myPlugin"].greet("Ada") == "Hallo, Ada!"
        await user.dispose()
        with pytest.raises(HarnessError):
            run["myPlugin"].greet("Ada", "de")
