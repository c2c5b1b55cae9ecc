"""Events of an agent's life. Listeners registered through ``agent.ctx`` hear that agent alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from dsh.cordis import Context, Emit, InvariantError, Serial, Waterfall
from dsh.cordis.records import record
from dsh.llm.call_config import CallConfig

if TYPE_CHECKING:
    from dsh.cordis import AbortSignal
    from dsh.llm.failure import LlmFailure
    from dsh.llm.retry_policy import RetryPolicy
    from dsh.llm.types import Message

    from .agent import Agent, AgentState


class AgentCreated(Emit, name="agent/created", veto=True, scoped_by="agent"):
    """An agent entered the registry. A raising listener undoes its creation."""

    agent: Agent


class AgentDisposed(Emit, name="agent/disposed", scoped_by="agent"):
    """An agent left the registry; its session is still in the store."""

    agent: Agent


class AgentSessionStart(Emit, name="agent/session-start", scoped_by="agent"):
    """A session begins under a new driver."""

    agent: Agent
    source: Literal["startup", "resume"]


class AgentStatus(Emit, name="agent/status", scoped_by="agent"):
    """The agent went idle or started to run."""

    agent: Agent
    status: AgentState


class InboxInserted(Emit, name="agent/inbox/inserted", scoped_by="agent"):
    """A message now waits in the inbox."""

    agent: Agent
    message: Message


class InboxDiscarded(Emit, name="agent/inbox/discarded", scoped_by="agent"):
    """A pending message was taken out unread."""

    agent: Agent
    message: Message


class InboxClaimed(Emit, name="agent/inbox/claimed", scoped_by="agent"):
    """A pending message was taken out for a step of ``turn``."""

    agent: Agent
    message: Message
    turn: int


@record
class Enter:
    """Start the step with exactly these messages."""

    messages: tuple[Message, ...]


@record
class Reject:
    """Refuse the step; the turn ends as blocked."""


class AgentPreStep(Waterfall[Enter | Reject], name="agent/pre-step", scoped_by="agent"):
    """A step is about to start with the claimed ``messages``; the decision's list replaces them."""

    agent: Agent
    messages: tuple[Message, ...]
    turn: int
    step: int
    signal: AbortSignal


class AgentRequest(Waterfall[CallConfig], name="agent/request", scoped_by="agent"):
    """Route and parameters of the next request; ``next()`` gives the current proposal."""

    agent: Agent
    turn: int
    step: int
    signal: AbortSignal


class AgentRequestError(Waterfall[Literal["retry"] | None], name="agent/request-error", scoped_by="agent"):
    """The provider ended a request with a failure while the step is open; ``"retry"`` sends it again."""

    agent: Agent
    turn: int
    step: int
    provider: str
    failure: LlmFailure
    retry_policy: RetryPolicy | None
    signal: AbortSignal


class AgentTurnStopping(Serial[Any], name="agent/turn-stopping", scoped_by="agent"):
    """The turn would end now; steer or inject to keep it going."""

    agent: Agent
    turn: int
    signal: AbortSignal


class AgentError(Emit, name="agent/error", scoped_by="agent"):
    """Something failed in the agent's own work; ``turn`` and ``step`` say where."""

    agent: Agent
    turn: int
    step: int
    error: BaseException


class AgentConfigStartFailed(Emit, name="agent-loop/config-start-failed"):
    """An agent of the composition could not be restored or resumed; no agent exists."""

    session_id: str
    error: BaseException


def notify(ctx: Context, event: Emit) -> None:
    """Dispatch an observation that must never break its emitter: even a broken invariant is only logged."""
    try:
        ctx.emit(event)
    except InvariantError as error:
        name = event.__event__.name if event.__event__ is not None else type(event).__name__
        ctx.logger.error('agent event "%s" listener threw: %s', name, error)
