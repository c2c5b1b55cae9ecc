"""What one session tells the client, in order, also when something of it has to be fetched first."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from dsh.interfaces.stdio_jsonrpc import JsonRpcPeer

if TYPE_CHECKING:
    from dsh.cordis import Context
    from dsh.cordis.spawn import Spawned

Update = Mapping[str, Any]


class Outbox:
    """Sends ``session/update`` notifications. The first failure stays until somebody takes it."""

    def __init__(self, ctx: Context, peer: JsonRpcPeer, session_id: str) -> None:
        self._ctx = ctx
        self._peer = peer
        self._session_id = session_id
        self._waiting: deque[Update | Callable[[], Awaitable[Update]]] = deque()
        self._work: Spawned[None] | None = None
        self._failure: Exception | None = None

    def send(self, update: Update) -> None:
        """Send ``update`` after everything that was given before."""
        if self._waiting:
            self._waiting.append(update)
        else:
            self._deliver(update)

    def send_later(self, make: Callable[[], Awaitable[Update]]) -> None:
        """Send what ``make()`` comes to, before anything that is given afterwards."""
        self._waiting.append(make)
        if len(self._waiting) > 1:
            return
        try:
            self._work = self._ctx.spawn(self._work_off, name=f"acp updates of {self._session_id}")
        except Exception as error:  # this row is being unloaded
            self._waiting.clear()
            self._failure = self._failure or error

    async def drained(self) -> None:
        """Return once everything given so far is on its way to the client."""
        if self._work is not None:
            await self._work.ended()

    def take_failure(self) -> Exception | None:
        """What could not be delivered since this was asked last."""
        failure, self._failure = self._failure, None
        return failure

    def _deliver(self, update: Update) -> None:
        try:
            self._peer.notify("session/update", {"sessionId": self._session_id, "update": update})
        except Exception as error:  # such as a card of a tool that is no JSON
            self._failure = self._failure or error

    async def _work_off(self) -> None:
        try:
            while self._waiting:
                update = self._waiting[0]
                try:
                    self._deliver(await update() if callable(update) else update)
                except Exception as error:
                    self._failure = self._failure or error
                self._waiting.popleft()
        finally:
            self._waiting.clear()  # after a cancel nothing more is delivered
