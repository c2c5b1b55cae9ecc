"""Row `session-checkpoint-policy`: what must be on disk before the outside world is touched.

Barriers stand before a model request leaves, before a tool body runs, and before the first step of a turn (so that
hooks and guards judge a prompt that survives a crash). A barrier that fails fails the request, the tool or the step.
A crash can then lose only output that nothing has acted on.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

from dsh.cordis import ConfigModel, Context, field
from dsh.core.agent_events import AgentPreStep, Enter, Reject
from dsh.core.seams import SessionPersistence
from dsh.core.session import Session
from dsh.core.session_store import Sessions
from dsh.core.tool_events import ToolsExecute
from dsh.core.tool_result import ToolResult
from dsh.core.tools import Tools
from dsh.llm.service import Llm, LlmStream
from dsh.llm.types import StreamChunk

name = "session-checkpoint-policy"


class Config(ConfigModel):
    """When a lease is too short to start something."""

    min_lease_ms: int = field(
        2_000, min=0, unit="ms", description="A tool starts only while its session's lease lives at least this long"
    )


class _ExpiringLeases(Protocol):
    """What a persistence whose leases run out offers beside the seam."""

    def lease_left_ms(self, session: Session) -> float | None: ...

    async def renew_lease(self, session: Session) -> None: ...


def apply(
    ctx: Context, config: Config, llm: Llm, sessions: Sessions, tools: Tools, persistence: SessionPersistence
) -> None:
    """Put the barriers up. `llm` and `tools` are needed only so that what they dispatch can be held back."""
    leases: _ExpiringLeases | None = persistence if hasattr(persistence, "lease_left_ms") else None  # type: ignore[assignment]

    async def flush(session: Session) -> None:
        if sessions.get(session.id) is session:
            await sessions.flush(session)

    async def before_step(event: AgentPreStep, proceed: Callable[[], Awaitable[Enter | Reject]]) -> Enter | Reject:
        if event.step == 1:  # the request of a later step has a barrier of its own right behind this point
            await flush(event.agent.session)
        return await proceed()

    def before_request(
        event: LlmStream, proceed: Callable[[], AsyncIterator[StreamChunk]]
    ) -> AsyncIterator[StreamChunk]:
        session_id = event.request.session_id
        session = None if session_id is None else sessions.get(session_id)
        return proceed() if session is None else _Held(lambda: flush(session), proceed)

    async def before_tool(event: ToolsExecute, proceed: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
        run = event.exec
        if run.agent is not None and run.parent is None:
            session = run.agent.session
            if (
                leases is not None
                and (left := leases.lease_left_ms(session)) is not None
                and left < config.min_lease_ms
            ):
                await leases.renew_lease(session)
            await flush(session)
        return await proceed()  # which notices a call that was cancelled meanwhile

    # In front, so that a listener which answers on its own cannot slip past.
    ctx.on(AgentPreStep, before_step, prepend=True)
    ctx.on(LlmStream, before_request, prepend=True)
    ctx.on(ToolsExecute, before_tool, prepend=True)


class _Held(AsyncIterator[StreamChunk]):
    """A stream that begins only when its first chunk is asked for and the barrier has been passed.

    After that every pull goes straight to the stream behind it.
    """

    __slots__ = ("_barrier", "_inner", "_open", "_pull")

    def __init__(self, barrier: Callable[[], Awaitable[None]], open_: Callable[[], AsyncIterator[StreamChunk]]) -> None:
        self._barrier = barrier
        self._open = open_
        self._inner: AsyncIterator[StreamChunk] | None = None
        self._pull: Callable[[], Awaitable[StreamChunk]] = self._first

    def __anext__(self) -> Awaitable[StreamChunk]:
        return self._pull()

    async def aclose(self) -> None:
        """Close the stream behind, if it began."""
        self._pull = _ended
        close = getattr(self._inner, "aclose", None)
        if close is not None:
            await close()

    async def _first(self) -> StreamChunk:
        self._pull = _ended
        await self._barrier()
        self._inner = stream = aiter(self._open())
        self._pull = stream.__anext__
        return await stream.__anext__()


async def _ended() -> StreamChunk:
    raise StopAsyncIteration
