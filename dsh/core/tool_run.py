"""One call as everybody who takes part in it sees it: its input, its identity, and what its body may ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dsh.cordis.abort import AbortSignal
from dsh.cordis.errors import HarnessError
from dsh.cordis.records import struct
from dsh.llm.message import freeze_message

if TYPE_CHECKING:
    from dsh.cordis.jsonio import JsonValue
    from dsh.llm.types import Message


class ToolToken:
    """Identity of one execution. Handed as `parent` to calls made from inside it; usable as a weak key."""

    __slots__ = ("__weakref__", "call_id", "root_call_id")

    def __init__(self, call_id: str, root_call_id: str) -> None:
        self.call_id = call_id
        self.root_call_id = root_call_id

    def __repr__(self) -> str:
        return f"<ToolToken {self.call_id}>"


@struct
class ToolInput:
    """A request to run a tool. `parent` is the token of the call that makes this one, if any.

    `arguments` is the decoded value; text the model wrote that is no JSON stays a string and fails validation.
    """

    call_id: str
    name: str
    arguments: Any
    agent: Any = None
    parent: ToolToken | None = None
    signal: AbortSignal | None = None
    root_call_id: str | None = None


class ToolRun:
    """The `exec` of one call: the same object in every stage, closed when the result is final.

    Identity is read-only, so policy can never approve one call and run another. `signal` may be replaced while
    `tools/execute` wrappers run; a body sees the caller's and the wrapper's signal fused.
    """

    __slots__ = (
        "__weakref__",
        "_agent",
        "_arguments",
        "_closed",
        "_concludes",
        "_contexts",
        "_name",
        "_parent",
        "_signal",
        "_signal_open",
        "_token",
    )

    def __init__(self, call: ToolInput, arguments: JsonValue, signal: AbortSignal) -> None:
        parent = call.parent
        inherited = parent.root_call_id if isinstance(parent, ToolToken) else call.call_id
        self._token = ToolToken(call.call_id, call.root_call_id or inherited)
        self._name = call.name
        self._arguments = arguments
        self._agent = call.agent
        self._parent = parent
        self._signal = signal
        self._signal_open = False
        self._closed = False
        self._concludes = False
        self._contexts: list[Message] = []

    @property
    def call_id(self) -> str:
        """Id the model gave the call."""
        return self._token.call_id

    @property
    def root_call_id(self) -> str:
        """Id of the outermost call this one was made from; its own without a parent."""
        return self._token.root_call_id

    @property
    def name(self) -> str:
        """Name of the tool."""
        return self._name

    @property
    def arguments(self) -> Any:
        """Frozen arguments; None when they were not JSON."""
        return self._arguments

    @property
    def agent(self) -> Any:
        """The calling agent, or None."""
        return self._agent

    @property
    def parent(self) -> ToolToken | None:
        """Token of the outer call, or None."""
        return self._parent

    @property
    def token(self) -> ToolToken:
        """Identity of this execution."""
        return self._token

    @property
    def closed(self) -> bool:
        """Whether the result is final."""
        return self._closed

    @property
    def signal(self) -> AbortSignal:
        """Fires when the work should stop. Replaceable inside `tools/execute` only."""
        return self._signal

    @signal.setter
    def signal(self, signal: AbortSignal) -> None:
        if not self._signal_open:
            raise AttributeError(f'the signal of tool call "{self.call_id}" can only be replaced inside tools/execute')
        if not isinstance(signal, AbortSignal):
            raise TypeError(f'the signal of tool call "{self.call_id}" must be an AbortSignal')
        self._signal = signal

    def defer_context(self, message: Message) -> None:
        """Give the model `message` after all results of this step. Kept even when the body fails afterwards.

        Raises `NotJsonError` for a message that is not JSON, `HarnessError` once the result is final.
        """
        self._require_open()
        self._contexts.append(freeze_message(message))

    def conclude_turn(self) -> None:
        """End the turn after this step; counts only if the call succeeds. Raises `HarnessError` once final."""
        self._require_open()
        self._concludes = True

    def _require_open(self) -> None:
        if self._closed:
            raise HarnessError(f'tool call "{self.call_id}" has already finished', "TOOL_CALL_CLOSED")

    def __repr__(self) -> str:
        return f"<ToolRun {self._name} {self.call_id}>"
