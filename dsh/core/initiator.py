"""Who caused the code now running: an agent, carried along every await and task of its work."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import ref

from dsh.cordis import HarnessError

if TYPE_CHECKING:
    from .agent import Agent

T = TypeVar("T")


class Boundary:
    """One entry into an initiator scope, linked to the one it was entered from.

    Connections and timers keep the context they were made in, often for longer than an agent lives: hence the weak
    reference.
    """

    __slots__ = ("_agent", "parent")

    def __init__(self, agent: Agent | None, parent: Boundary | None) -> None:
        self._agent = None if agent is None else ref(agent)
        self.parent = parent

    @property
    def agent(self) -> Agent | None:
        """Whom it was entered for; nobody once that agent is gone."""
        return None if self._agent is None else self._agent()


class InitiatorScope:
    """Tracks the initiating agent in a context variable and knows which boundaries are still open."""

    def __init__(self) -> None:
        self._current: ContextVar[Boundary | None] = ContextVar("initiator", default=None)
        self._open: dict[Boundary, asyncio.Future[Any] | None] = {}
        self._exempt: set[Boundary] = set()
        self._closing = False
        self._closed = False

    def current(self) -> Agent | None:
        """The initiating agent; ``None`` outside of any."""
        self._refuse(self._closed)
        boundary = self._current.get()
        return None if boundary is None else boundary.agent

    def enter(self, agent: Agent | None, operation: Callable[[], T]) -> T:
        """Run ``operation`` on behalf of ``agent`` and return exactly what it returns.

        A returned coroutine becomes a task, so that it keeps the scope across its awaits.
        """
        self._refuse(self._closing)
        boundary = Boundary(agent, self._open_above(self._current.get()))
        context = copy_context()
        context.run(self._current.set, boundary)
        self._open[boundary] = None
        try:
            result: Any = context.run(operation)
            if inspect.iscoroutine(result):
                result = asyncio.get_running_loop().create_task(result, context=context)
        except BaseException:
            del self._open[boundary]
            raise
        if isinstance(result, asyncio.Future) and not result.done():
            self._open[boundary] = result
            result.add_done_callback(lambda _: self._open.pop(boundary, None))
        else:
            del self._open[boundary]
        return result  # type: ignore[no-any-return]

    def exempt_current(self) -> None:
        """Leave the calling chain of boundaries out of the drain: it is what asked for the teardown."""
        boundary = self._current.get()
        while boundary is not None:
            self._exempt.add(boundary)
            boundary = boundary.parent

    async def drain(self) -> None:
        """Refuse new boundaries and wait for open ones, then let nobody read any more."""
        self._closing = True
        while waiting := [work for one, work in self._open.items() if work is not None and one not in self._exempt]:
            await asyncio.wait(waiting)
        self._closed = True

    def _open_above(self, boundary: Boundary | None) -> Boundary | None:
        """The nearest boundary that is still open: agents that wake each other for ever must not grow a chain."""
        while boundary is not None and boundary not in self._open:
            boundary = boundary.parent
        if boundary is not None:
            boundary.parent = self._open_above(boundary.parent)
        return boundary

    def _refuse(self, closed: bool) -> None:
        if closed:
            raise HarnessError("agent initiator scope is disposed", code="INITIATOR_CLOSED")
