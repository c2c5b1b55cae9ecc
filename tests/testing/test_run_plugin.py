"""The test kit runs plugins as a composition does, and notices what they leave behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsh.testing import ScriptedModel, async_test, call, result_text, run_plugin

REPOSITORY = Path(__file__).parents[2]
CLOCK = REPOSITORY / "plugins" / "clock.py"


@async_test
async def test_a_tool_of_a_plugin_file_is_called_through_all_stages() -> None:
    async with run_plugin(CLOCK, {"timezone": "Asia/Tokyo"}) as run:
        result = await run.call("now")
        assert str(result.value).endswith("+09:00") and result_text(result) == result.value
        assert await run.edit({"timezone": "Europe/Berlin"}) is True
        assert "+0" in str((await run.call("now")).value)
        assert await run.edit({"timezone": "Nowhere/Land"})
        failed = await run.call("now")
        assert failed.is_error and failed.error is not None and "Nowhere/Land" in failed.error.message


@async_test
@pytest.mark.parametrize("http", [False, True])
async def test_an_agent_takes_a_scripted_turn(http: bool) -> None:
    model = ScriptedModel([call("now"), lambda request: "Late."], http=http)
    async with run_plugin(CLOCK, model=model) as run:
        turn = await run.prompt("What time is it?")
        assert (turn.status, turn.text, len(turn.results), model.left) == ("completed", "Late.", 1, 0)
        assert turn.calls == [("now", "{}")]
