"""Requests that are built up from what the last one of their session said."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any

import orjson
import pytest

from dsh.llm.call_config import CallConfig
from dsh.llm.message import create_user_message
from dsh.llm.types import LlmRequest, Message
from dsh.models.deepseek import history as module
from dsh.models.deepseek.history import EncodedHistory
from dsh.models.deepseek.request import request_body
from tests.models.helpers import MODEL, ROUTE
from tests.models.test_deepseek_request import TOOL, call, reply, result


def request(messages: Sequence[Message], system: str | None = "Be brief.", **more: Any) -> LlmRequest:
    return LlmRequest(CallConfig(ROUTE, MODEL), messages, system, [TOOL], **{"session_id": "s", **more})


def conversation(turns: int) -> list[Message]:
    found: list[Any] = []
    for turn in range(turns):
        found += [create_user_message(f"go {turn} ü"), reply(call(f"c{turn}")), result(f"c{turn}", "ok"), reply()]
    return found


async def joined(history: EncodedHistory, one: LlmRequest, effort: str = "high") -> bytes:
    pieces = await history.encode(one, effort, 100)
    assert pieces is not None
    return b"".join(pieces)


async def whole(one: LlmRequest, effort: str = "high") -> bytes:
    return orjson.dumps(request_body(one, effort, 100))


@pytest.mark.parametrize("effort", ["high", "off"])
async def test_each_request_of_a_growing_session_is_what_encoding_it_whole_gives(effort: str) -> None:
    history, messages = EncodedHistory(), conversation(5)
    for end in (1, 3, 4, 8, 8, 20):
        one = request(messages[:end], system=None if end == 3 else f"prompt {end}")
        assert await joined(history, one, effort) == await whole(one, effort)


async def test_a_long_session_is_sent_in_blocks_that_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BLOCK", 500)
    history, messages = EncodedHistory(), conversation(30)
    before: list[bytes] = []
    for end in range(1, len(messages) + 1):
        one = request(messages[:end])
        if end % 4 == 2:
            continue  # between a call and its result
        pieces = await history.encode(one, "high", 100) or []
        assert b"".join(pieces) == await whole(one)
        assert all(now is then for now, then in zip(pieces[1:-1], before[1:-1], strict=False))
        before = pieces
    assert len(before) > 5
    assert await joined(history, request(messages)) == await whole(request(messages))


async def test_only_what_was_added_is_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    history, messages, seen = EncodedHistory(), conversation(3), []
    original = module._encode

    def counting(added: tuple[Message, ...], thinking: bool) -> bytes | None:
        seen.append(len(added))
        return original(added, thinking)

    monkeypatch.setattr(module, "_encode", counting)
    for end in (4, 8, 12, 12):
        await history.encode(request(messages[:end]), "high", 100)
    assert seen == [4, 4, 4, 0]


async def test_a_history_that_changed_is_encoded_anew() -> None:
    history, messages = EncodedHistory(), conversation(3)
    await history.encode(request(messages), "high", 100)
    for other in (messages[:4], conversation(3), [messages[0], *messages[4:]]):
        one = request(other)
        assert await joined(history, one) == await whole(one)


async def test_sessions_purposes_and_thinking_do_not_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_KEPT", 2)
    history = EncodedHistory()
    for session in ("a", "b", "c", "a"):
        for purpose, effort in ((None, "high"), ("session-title", "off"), (None, "off")):
            one = request(conversation(2), session_id=session, purpose=purpose)
            assert await joined(history, one, effort) == await whole(one, effort)
    assert len(history._kept) == 2


async def test_a_long_history_is_encoded_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []
    original = module._encode

    def seen(added: tuple[Message, ...], thinking: bool) -> bytes | None:
        threads.append(threading.get_ident())
        return original(added, thinking)

    monkeypatch.setattr(module, "_encode", seen)
    monkeypatch.setattr(module, "_THREAD_ABOVE", 3)
    one = request(conversation(3))
    assert await joined(EncodedHistory(), one) == await whole(one)
    assert threads and threading.get_ident() not in threads


@pytest.mark.parametrize(
    "messages",
    [
        [create_user_message("a"), reply(call("c1")), create_user_message("no result")],
        [create_user_message("a"), result("c9", "nobody asked")],
        [{**create_user_message("not frozen")}],
        [create_user_message("half a pair \ud800")],
    ],
)
async def test_what_cannot_be_built_up_is_left_to_the_whole_encoding(
    messages: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    history = EncodedHistory()
    assert await history.encode(request(messages), "high", 100) is None
    assert await history.encode(request(conversation(1), session_id=None), "high", 100) is None
    assert await history.encode(request(conversation(1), system="\ud800"), "high", 100) is None
    assert caplog.text == ""
