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


class _Encoded(NamedTuple):
    """Messages as they were sent last, and their JSON texts with commas between them."""

    messages: tuple[Message, ...] = ()
    text: bytes = b""


class EncodedHistory:
    """Encodes requests of one adapter."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str | None, bool], _Encoded] = OrderedDict()

    async def encode(
        self, request: LlmRequest, effort: str, max_tokens: int, omit: Collection[str] = ()
    ) -> bytes | None:
        """The request's body, the same bytes that encoding it in one piece gives.

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
            text = b",".join(part for part in (before.text, more) if part)
            self._kept[key] = _Encoded(messages, text)
            self._kept.move_to_end(key)
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
            system = wire_messages(request.system, (), thinking=thinking)
            parts = [part for part in (orjson.dumps(system)[1:-1], text) if part]
            whole = orjson.Fragment(b"[" + b",".join(parts) + b"]")
            return orjson.dumps(request_body(request, effort, max_tokens, messages=whole, omit=omit))
        except (TypeError, ValueError):
            return None


def _encode(messages: tuple[Message, ...], thinking: bool) -> bytes | None:
    if not all(type(message) is FrozenDict for message in messages):
        return None
    wire = wire_messages(None, messages, thinking=thinking, repair=False)
    return orjson.dumps(wire)[1:-1] if is_paired(wire) else None
