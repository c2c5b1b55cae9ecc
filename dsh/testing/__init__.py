"""The test kit for plugin authors: run a plugin for real, with a model that says what the test wrote down.

    @async_test
    async def test_it_counts_words() -> None:
        script = [call("word_count", {"text": "a b"}), "Two."]
        async with run_plugin(Path("plugins/word_count.py"), model=script) as run:
            assert (await run.call("word_count", {"text": "one two three"})).value == "3 words"
            turn = await run.prompt("How many?")
            assert turn.text == "Two."

Nothing here needs a plugin of pytest: `async_test` makes a plain function of an async one, which then runs under every
runner. Tests that already run on asyncio by anyio or pytest-asyncio use the same things without it. Everything is real
but the model: services, agents, the loop and its log; the model too, over HTTP, with ``ScriptedModel(…, http=True)``.
"""

from dsh.cordis.testing import harness, record

from .async_test import async_test
from .fake_clock import FakeClock
from .footprint import Footprint, assert_nothing_left, nothing_left
from .parts import PARTS
from .recorded import RecordedModel, save_log
from .replies import Reply, call, fail, hang, say
from .running import PluginRun, run_plugin
from .scripted import ScriptedModel
from .turn import Turn, result_text

__all__ = [
    "PARTS",
    "FakeClock",
    "Footprint",
    "PluginRun",
    "RecordedModel",
    "Reply",
    "ScriptedModel",
    "Turn",
    "assert_nothing_left",
    "async_test",
    "call",
    "fail",
    "hang",
    "harness",
    "nothing_left",
    "record",
    "result_text",
    "run_plugin",
    "save_log",
    "say",
]
