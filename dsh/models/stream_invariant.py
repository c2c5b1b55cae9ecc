"""Companion that checks the grammar of every model stream, whoever answers it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from dsh.cordis import Context
from dsh.core.invariants import Fail, Invariants
from dsh.llm.grammar import StreamGrammar
from dsh.llm.service import LlmStream
from dsh.llm.types import StreamChunk

PACKAGE = "@deepseek-ai/dsh-llm"


def apply(ctx: Context, config: object, invariants: Invariants) -> None:
    """Check all streams, before any other listener sees them."""
    invariants.register(PACKAGE, _install)


def _install(ctx: Context, fail: Fail) -> None:
    def check(event: LlmStream, next: Callable[[], AsyncIterator[StreamChunk]]) -> AsyncIterator[StreamChunk]:
        return checked(next(), fail)

    ctx.on(LlmStream, check, prepend=True, global_=True)


async def checked(stream: AsyncIterator[StreamChunk], fail: Fail) -> AsyncIterator[StreamChunk]:
    """The same chunks; a breach of the grammar is reported instead of passed on."""
    grammar = StreamGrammar()
    try:
        async for chunk in stream:
            if wrong := grammar.check(chunk):
                fail(wrong)
            yield chunk
        if wrong := grammar.end():
            fail(wrong)
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()
