"""The JSON of conversations, kept from one request to the next: a step encodes what it added and nothing else."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Collection
from typing import NamedTuple

import orjson

from dsh.cordis.jsonio import FrozenDict
from dsh.llm.types import LlmRequest, Message
from dsh.models.deepseek.request import is_paired, request_body, wire_messages

_KEPT = 64
"""Sessions remembered; one that falls out is encoded in full once more."""
_THREAD_ABOVE = 1000
"""New messages of one request from which on they are encoded in a thread."""
_BLOCK = 256 * 1024
"""Bytes from which on encoded messages are a block of their own, which nothing copies again."""
_NO_MESSAGES = b'"messages":[]'


class _Encoded(NamedTuple):
    """Messages as they were sent last, and their JSON texts with commas between and behind blocks."""

    messages: tuple[Message, ...] = ()
    blocks: tuple[bytes, ...] = ()
    text: bytes = b""

    def extended(self, messages: tuple[Message, ...], more: bytes) -> _Encoded:
        """The same with what was added to it."""
        if not more:
            return _Encoded(messages, self.blocks, self.text)
        if len(self.text) >= _BLOCK:
            return _Encoded(messages, (*self.blocks, self.text + b","), more)
        return _Encoded(messages, self.blocks, b",".join(filter(None, (self.text, more))))


class EncodedHistory:
    """Encodes requests of one adapter."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str | None, bool], _Encoded] = OrderedDict()

    def forget(self, session_id: str) -> None:
        """Let go of what a session's requests held."""
        for key in [key for key in self._kept if key[0] == session_id]:
            del self._kept[key]

    async def encode(
        self, request: LlmRequest, effort: str, max_tokens: int, omit: Collection[str] = ()
    ) -> list[bytes] | None:
        """The request's body in pieces: together the same bytes that encoding it whole gives.

        None for a conversation that cannot be built up message by message: without a session, not frozen, in need of
        repair, or with text that is no Unicode.
        """
        if request.session_id is None:
            return None
        thinking = effort != "off"
        key = (request.session_id, request.purpose, thinking)
        messages = tuple(request.messages)
        before = self._kept.get(key, _Encoded())
        if messages[: len(before.messages)] != before.messages:
            before = _Encoded()
        added = messages[len(before.messages) :]
        try:
            if len(added) > _THREAD_ABOVE:
                more = await asyncio.to_thread(_encode, added, thinking)
            else:
                more = _encode(added, thinking)
            if more is None:
                return None
            kept = self._kept[key] = before.extended(messages, more)
            self._kept.move_to_end(key)
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
            # Only around the messages can these bytes stand: a string escapes its quotes.
            body = request_body(request, effort, max_tokens, messages=orjson.Fragment(b"[]"), omit=omit)
            head, tail = orjson.dumps(body).split(_NO_MESSAGES, 1)
            system = orjson.dumps(wire_messages(request.system, (), thinking=thinking))[1:-1]
            head += _NO_MESSAGES[:-1] + system + (b"," if system and messages else b"")
            tail = kept.text + b"]" + tail
            return [head, *kept.blocks, tail] if kept.blocks else [head + tail]
        except (TypeError, ValueError):
            return None


def _encode(messages: tuple[Message, ...], thinking: bool) -> bytes | None:
    if not all(type(message) is FrozenDict for message in messages):
        return None
    wire = wire_messages(None, messages, thinking=thinking, repair=False)
    return orjson.dumps(wire)[1:-1] if is_paired(wire) else None
