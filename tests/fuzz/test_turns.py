"""Whole turns against a server that answers anything: a turn ends, each call has one result, the session goes on."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dsh.models.mock_server import MockLlmServer
from tests.faults.kit import living, strict
from tests.fuzz.kit import fuzz

TOOLS = """\
from dsh.core.tools import Tools

def apply(ctx, config, tools: Tools):
    @tools.tool
    async def echo(word: str = "nothing") -> str:
        "Say a word."
        return f"said {word}"

    @tools.tool
    async def fails(count: int = 1) -> str:
        "Fail."
        raise ValueError("no")
"""
ROWS = "- {id: tools-of-mine, name: ./mine.py}\n- {id: limits, name: dsh-turn-limits, config: {maxStepsPerTurn: 12}}\n"

ID = st.sampled_from(["a", "b", "", "a", "日", "x" * 200]) | st.none()
NAME = st.sampled_from(["echo", "fails", "nope", "", "echo", "e\ud800", "has space"]) | st.none()
ARGUMENTS = st.sampled_from(
    [
        "",
        "{}",
        '{"word": "x"}',
        '{"word": ',
        '{"word": 3}',
        "null",
        "[]",
        '{"count": "x"}',
        '{"a": {"b": [1, 2]}}',
        "\ud800",
        "{}{}",
    ]
)
CALL = st.fixed_dictionaries(
    {},
    optional={
        "index": st.integers(0, 2),
        "id": ID,
        "function": st.fixed_dictionaries({}, optional={"name": NAME, "arguments": ARGUMENTS}),
    },
)
TEXT = st.sampled_from(["hi", "", " ", "日本 😀", "\ud83d", "\0", "<tool_call>"])
DELTA = st.fixed_dictionaries(
    {}, optional={"content": TEXT, "reasoning_content": TEXT, "tool_calls": st.lists(CALL, min_size=1, max_size=3)}
)
FINISH = st.sampled_from([None, None, "stop", "tool_calls", "length", "content_filter", "odd"])
PAYLOAD = st.builds(
    lambda delta, finish: {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}, DELTA, FINISH
) | st.sampled_from(
    [
        {"usage": {"prompt_tokens": 1, "completion_tokens": 1}},
        {},
        {"error": {"message": "m", "code": 500}},
        {"choices": []},
    ]
)
ENDING = st.sampled_from(["end", "end", "end", "reset"])
REPLY = st.builds(
    lambda chunks, done, ending: {"chunks": [*chunks, *(["data: [DONE]\n\n"] if done else [])], "ending": ending},
    st.lists(PAYLOAD, max_size=5),
    st.booleans(),
    ENDING,
)


@fuzz(160)
@given(st.lists(REPLY, min_size=1, max_size=4))
def test_any_replies_end_in_a_turn_that_is_closed_and_a_session_that_goes_on(replies: list[Any]) -> None:
    async def run(folder: Path) -> None:
        script = [strict(_plain(reply)) for reply in replies]
        async with MockLlmServer([*script, *[strict("success")] * 40]) as server:
            async with living(folder, server, ROWS, {"mine.py": TOOLS}) as life:
                for number in range(1, 9):
                    reason = await life.prompt("go")
                    assert reason["kind"] in ("completed", "error", "max-tokens", "aborted")
                    starts, ends = life.of_type("turn/start"), life.of_type("turn/end")
                    assert len(starts) == len(ends) == number
                    called = [call["callId"] for call in life.of_type("tool/call")]
                    answered = [result["message"]["source"]["callId"] for result in life.of_type("tool/result")]
                    assert answered == called, "one result for each call, in their order"
                    if len(server.requests) > len(replies):
                        break
                assert await life.prompt("and now?") == {"kind": "completed"}
                events = [event.to_wire() for event in life.agent.session.events]
                life.log()
            async with living(folder, server, ROWS) as life:
                assert [event.to_wire() for event in life.agent.session.events][: len(events)] == events
                assert await life.prompt("once more") == {"kind": "completed"}

    with tempfile.TemporaryDirectory(prefix="dsh-fuzz-") as folder:
        asyncio.run(asyncio.wait_for(run(Path(folder)), 50))


def _plain(reply: dict[str, Any]) -> dict[str, Any]:
    """The reply with its payloads as the bytes of events: lone surrogates travel as escapes, as servers send them."""
    chunks = [piece if isinstance(piece, str) else f"data: {json.dumps(piece)}\n\n" for piece in reply["chunks"]]
    return {**reply, "chunks": chunks}
