"""What an agent is to everybody but its driver: the handle that plugins, front ends and tools hold."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from dsh.cordis import HarnessError
from dsh.cordis.records import record, struct

if TYPE_CHECKING:
    from dsh.cordis import AbortSignal, Context
    from dsh.llm.types import Message

    from .inbox import Inbox
    from .session import Session
    from .session_event import SessionEvent

AgentState = Literal["idle", "running"]
InboxTarget = Literal["next-turn", "next-step"]
AbortCause = Mapping[str, Any]
"""Why a turn was stopped: ``{"kind": "user" | "parent" | "disposed"}`` or ``{"kind": "hook", "reason": text}``."""

T = TypeVar("T")

MAX_SAFE_INTEGER = 2**53 - 1


@record
class AgentOptions:
    """The route of an agent's requests. Without one the deployment's default model answers.

    ``max_tokens`` caps the output of one reply, 1..2^53-1. Raises ``HarnessError`` for any other value.
    """

    provider: str | None = None
    model: str | None = None
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        cap = self.max_tokens
        if cap is not None and not (type(cap) is int and 1 <= cap <= MAX_SAFE_INTEGER):
            raise HarnessError("agent maxTokens must be a positive safe integer", code="INVALID_OPTIONS")


class Agent(Protocol):
    """One live driver over one session; both share an id.

    All sends are synchronous: when they return, the message is in the log. It is on disk after a flush.
    """

    id: str
    options: AgentOptions
    session: Session
    inbox: Inbox
    ctx: Context

    @property
    def status(self) -> AgentState:
        """``running`` while a turn is open, else ``idle`` (maintenance included)."""

    def send(self, message: Message, target: InboxTarget, wakeup: bool) -> None:
        """Put ``message`` into the list ``target``; with ``wakeup`` an idle agent starts a turn."""

    def followup(self, message: Message) -> None:
        """Queue a prompt for its own turn and wake the agent."""

    def steer(self, message: Message) -> None:
        """Deliver at the next step boundary and wake the agent."""

    def inject(self, message: Message) -> None:
        """Deliver at the next step boundary without waking."""

    def cancel(self, cause: AbortCause, keep_inbox: bool = False) -> None:
        """Ask the current activity to stop; the first cause wins. On an idle agent this does nothing at all."""

    async def when_idle(self) -> None:
        """Return once no activity is left, also after failed turns."""

    def run_maintenance(self, job: Callable[[AbortSignal], Awaitable[T]]) -> Awaitable[T]:
        """Run exclusive work that is no turn. Raises ``HarnessError`` (``AGENT_BUSY``) unless idle."""


Setup = Callable[["Context"], Any]


@struct
class CreateAgentOptions:
    """How to make an agent on a fresh session.

    ``meta`` holds header fields (``cwd``, ``parentSession``, ``seedLength``, ``origin``, ``delegationDepth``,
    ``agentPreset``); ``seed`` inherited events; ``setup`` runs with the agent's own context before anything is
    published and may return an object with ``commit()``; ``reserve`` takes the session's lease before publication,
    for ids that another process may know.
    """

    session_id: str
    meta: Mapping[str, Any] = field(default_factory=dict)
    seed: Sequence[SessionEvent] | None = None
    agent_options: AgentOptions = field(default_factory=AgentOptions)
    signal: AbortSignal | None = None
    setup: Setup | None = None
    reserve: bool = False


@struct
class ResumeAgentOptions:
    """How to bring a stored session back to life.

    ``restore_route`` keeps the model the session last ran on when the options name none and it is still usable.
    """

    resume_session_id: str
    agent_options: AgentOptions = field(default_factory=AgentOptions)
    signal: AbortSignal | None = None
    setup: Setup | None = None
    restore_route: bool = False


class AgentHandle:
    """An agent and the right to end it. Also an async context manager."""

    __slots__ = ("_dispose", "agent")

    def __init__(self, agent: Agent, dispose: Callable[[], Awaitable[None]]) -> None:
        self.agent = agent
        self._dispose = dispose

    async def dispose(self) -> None:
        """End the agent; every caller waits for the same quiet point."""
        await self._dispose()

    async def __aenter__(self) -> Agent:
        return self.agent

    async def __aexit__(self, *_: object) -> None:
        await self.dispose()


class AgentFactory(Protocol):
    """Makes agents. One a composition; the agent loop provides it."""

    async def create_agent(self, owner: Context, options: CreateAgentOptions) -> AgentHandle:
        """Create a fresh agent that lives no longer than ``owner``."""

    async def resume(self, owner: Context, options: ResumeAgentOptions) -> AgentHandle:
        """Resume a stored session as an agent that lives no longer than ``owner``."""
