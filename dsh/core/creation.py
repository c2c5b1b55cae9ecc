"""From options to a published agent, and from there to quiet."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from dsh.cordis import AbortController, AbortError, AbortSignal, HarnessError

from .agent import AgentOptions, CreateAgentOptions, ResumeAgentOptions, Setup
from .agent_events import AgentSessionStart, notify
from .driver import DISPOSED, Driver
from .seams import SessionPersistence
from .session_store import Sessions
from .texts import LOOP_INACTIVE, NO_PERSISTENCE

if TYPE_CHECKING:
    from dsh.cordis import Context

    from .agent_loop import AgentLoop
    from .session import Session
    from .session_store import SessionPreparation

T = TypeVar("T")


async def create_agent(loop: AgentLoop, owner: Context, options: CreateAgentOptions) -> Lifecycle:
    """Create an agent on a fresh session, visible to others only when all of it stands.

    Raises what the seed, the metadata, ``setup`` or a vetoing listener raised; the ids are free again then.
    """
    persistence = loop.ctx.get(SessionPersistence) if options.reserve else None
    preparation = loop.sessions.prepare(options.session_id, seed=options.seed, meta=options.meta)
    lifecycle = Lifecycle(loop, owner, options.session_id, options.signal)
    try:
        lifecycle.construct(preparation, options.agent_options)
        if persistence is not None:
            await lifecycle.race(persistence.reserve(preparation.session))
        await lifecycle.set_up(options.setup)
        lifecycle.publish("startup")
    except BaseException:
        await lifecycle.dispose()
        if persistence is not None:
            persistence.unreserve(preparation.session)
        raise
    return lifecycle


async def resume_agent(loop: AgentLoop, owner: Context, options: ResumeAgentOptions) -> Lifecycle:
    """Bring a stored session back under a new driver; a load that ends too late is given back."""
    persistence = loop.ctx.get(SessionPersistence)
    if persistence is None:
        raise HarnessError(NO_PERSISTENCE, code="NO_PERSISTENCE")
    lifecycle = Lifecycle(loop, owner, options.resume_session_id, options.signal)
    try:
        load = persistence.prepare(options.resume_session_id, lifecycle.signal)
        preparation = await lifecycle.race(load, late=lambda late: late.release())
        route = options.agent_options
        if options.restore_route and route.provider is None and route.model is None:
            route = _last_route(loop, preparation.session, route)
        lifecycle.construct(preparation, route)
        await lifecycle.set_up(options.setup)
        lifecycle.publish("resume")
    except BaseException:
        await lifecycle.dispose()
        raise
    return lifecycle


def _last_route(loop: AgentLoop, session: Session, options: AgentOptions) -> AgentOptions:
    """The route of the session's last request; what stands in for it is said when it is not usable any more."""
    header = session.request_header()
    if header is None:
        return options
    provider, model = header["config"]["provider"], header["config"]["model"]
    reason = loop.llm.usable(provider)
    if reason is None:
        return AgentOptions(provider, model, options.max_tokens)
    text = 'session "%s" ran on %s/%s, which cannot be used now (%s); the default model answers instead'
    loop.ctx.logger.warning(text, session.id, provider, model, reason)
    return options


def create_now(
    loop: AgentLoop, owner: Context, session_id: str, options: AgentOptions, meta: dict[str, Any]
) -> Lifecycle:
    """The synchronous form without setup: the agent is published when this returns."""
    preparation = loop.sessions.prepare(session_id, meta=meta)
    lifecycle = Lifecycle(loop, owner, session_id)
    try:
        lifecycle.construct(preparation, options)
        lifecycle.publish("startup")
    except BaseException:
        lifecycle.dispose_soon()
        raise
    return lifecycle


class Lifecycle:
    """What one agent holds, and the one teardown that everybody who ends it shares.

    Owners are the creating context's fiber and the loop's; either one's unload ends the agent, at any stage.
    """

    def __init__(self, loop: AgentLoop, owner: Context, session_id: str, signal: AbortSignal | None = None) -> None:
        self.session_id = session_id
        self.agent: Driver | None = None
        self._loop = loop
        self._owner = owner
        self._abort = AbortController()
        self._preparation: SessionPreparation | None = None
        self._dispose_scope: Callable[[], Any] | None = None
        self._detach_agent: Callable[[], None] = lambda: None
        self._detach_session: Callable[[], None] = lambda: None
        self._teardown: asyncio.Task[None] | None = None
        if loop.closing:
            raise HarnessError(LOOP_INACTIVE, code="LOOP_INACTIVE")
        self._release_owner: Callable[[], Any] = lambda: None
        if owner.stack is not loop.ctx.stack:
            self._release_owner = owner.effect(lambda: self._owner_left, f"agentLoop.lifecycle({session_id})")
        loop.lifecycles.add(self)
        self._release_signal: Callable[[], Any] = lambda: None
        if signal is not None:
            self._release_signal = signal.on_abort(lambda: self._abort.abort(self._caller_reason(signal.reason)))

    @property
    def signal(self) -> AbortSignal:
        """Aborted, with an exception as reason, as soon as anything says that creation must stop."""
        return self._abort.signal

    def construct(self, preparation: SessionPreparation, options: AgentOptions) -> None:
        """Build the unpublished agent and its own registration scope."""
        self._preparation = preparation
        self._check()
        agent = Driver(self._loop, preparation.session, options)
        scope = self._loop.scopes.scope(agent)
        self._dispose_scope = scope.dispose
        agent.ctx = scope.ctx.extend(agent=agent)
        self.agent = agent

    async def set_up(self, setup: Setup | None) -> None:
        """Run the caller's setup on behalf of the creating agent."""
        agent = self._constructed()
        if setup is not None:
            parent, agents = self._owner.agent, self._loop.agents
            made = (
                agents.without_initiator(lambda: setup(agent.ctx))
                if parent is None
                else agents.with_initiator(parent, lambda: setup(agent.ctx))
            )
            if inspect.isawaitable(made):
                made = await self.race(made)
            if (commit := getattr(made, "commit", None)) is not None:
                commit()
        self._check()

    def publish(self, source: Literal["startup", "resume"]) -> None:
        """Enter session and agent, then announce both, in one synchronous run."""
        agent, loop = self._constructed(), self._loop
        sessions = agent.ctx[Sessions]
        self._check()
        self._detach_session = sessions.enter(agent.session)
        self._detach_agent = loop.agents.enter(agent, self._owner.agent)
        sessions.announce(agent.session)
        self._check()
        loop.agents.announce(agent)
        self._check()
        notify(loop.ctx, AgentSessionStart(agent=agent, source=source))
        self._check()
        self._release_signal()

    async def race(self, work: Awaitable[T], *, late: Callable[[T], Any] | None = None) -> T:
        """Await ``work`` unless creation must stop first; a result that still comes then goes to ``late``."""
        task = asyncio.ensure_future(work)
        stopped = asyncio.Event()
        undo = self.signal.on_abort(stopped.set)
        stop = self._loop.tasks.start(stopped.wait(), name=f"abort of {self.session_id}")
        taken = False
        try:
            await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
            if taken := task.done():
                return task.result()
        finally:
            undo()
            stop.cancel()
            if not taken:  # also when our own cancel and the result came in the same turn of the loop
                self._loop.abandon(self.session_id, task)
                task.add_done_callback(lambda done: _deliver_late(done, late))
                task.cancel()
        self._check()
        raise AssertionError("unreachable: the signal is aborted")

    async def drain(self, seconds: float) -> None:
        """End the agent at its next step boundary, after ``seconds`` at the latest."""
        agent = self._constructed()
        agent.retire()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await agent.when_idle()
        await self.dispose()

    async def dispose(self) -> None:
        """End the agent; every caller waits for the same quiet point and cannot stop it by being cancelled."""
        await asyncio.shield(self.dispose_soon())

    def dispose_soon(self, reason: BaseException | None = None) -> asyncio.Task[None]:
        """Start the teardown without waiting."""
        if self._teardown is None:
            self._abort.abort(reason or AbortError(f'agent "{self.session_id}" is disposed'))
            self._teardown = self._loop.tasks.start(self._tear_down(), name=f"dispose {self.session_id}")
        return self._teardown

    async def _tear_down(self) -> None:
        self._release_signal()
        if self.agent is not None:
            # Pending input stays in the log: whoever resumes the session finds it.
            self.agent.retire()
            self.agent.cancel(DISPOSED, keep_inbox=True)
            await self.agent.when_idle()
            await self.agent.tasks.join()
            self.agent.closed = True
        if self._dispose_scope is not None:
            await self._dispose_scope()
        self._detach_agent()
        self._detach_session()
        self._loop.lifecycles.discard(self)
        self._release_owner()
        if self._preparation is not None:
            self._preparation.release()  # last: it is foreign code and may raise

    def _owner_left(self) -> Awaitable[None] | None:
        if self not in self._loop.lifecycles:
            return None
        self.dispose_soon(self._owner_gone())
        return self.dispose()

    def _constructed(self) -> Driver:
        assert self.agent is not None
        return self.agent

    def _check(self) -> None:
        if self.signal.aborted:
            raise self.signal.reason
        # Asked to go, though the teardown itself comes a moment later: a listener may have disposed either just now.
        if not self._owner.stack.is_open:
            raise self._owner_gone()
        if not self._loop.ctx.stack.is_open:
            raise HarnessError(LOOP_INACTIVE, code="LOOP_INACTIVE")

    def _owner_gone(self) -> HarnessError:
        text = f'agent "{self.session_id}" setup aborted: owner disposed during setup'
        return HarnessError(text, code="SETUP_ABORTED")

    def _caller_reason(self, reason: object) -> BaseException:
        if isinstance(reason, BaseException):
            return reason
        return AbortError(f'agent "{self.session_id}" creation aborted', reason=reason)


def _deliver_late(task: asyncio.Future[Any], late: Callable[[Any], Any] | None) -> None:
    if not task.cancelled() and task.exception() is None and late is not None:
        late(task.result())
