"""What a harness needs of the place where its agents live: this process, or a runtime of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from dsh.cordis.records import record

if TYPE_CHECKING:
    from dsh.core.session_event import SessionEvent
    from dsh.llm.types import Message

    from .run import Run
    from .session import Session

Outcome = Literal["allowed-once", "rejected", "cancelled"]


@record
class PermissionRequest:
    """A tool call that waits for a person's word. The arguments stand in the log under ``call_id``."""

    session_id: str
    tool_name: str
    call_id: str | None
    reason: str | None


PermissionCallback = Callable[[PermissionRequest], "Awaitable[bool] | bool"]
"""Answers True to let one call run, False to refuse it. What it raises refuses the call and is logged."""


@record
class AgentInfo:
    """A live agent. ``label``: its name in the composition, None for one made by a program."""

    session_id: str
    label: str | None
    status: Literal["idle", "running"]


@record
class Opening:
    """How a new session is made: its id if one is wanted, its folder, and ``provider/model`` if not the default."""

    session_id: str | None = None
    cwd: str | None = None
    provider: str | None = None
    model: str | None = None


class Backend(ABC):
    """The agents. ``sessions``: those the program has opened, which the backend tells what happens."""

    sessions: dict[str, Session]

    @abstractmethod
    async def start(self) -> None:
        """Start the composition. Raises ``HarnessError`` saying what is wrong with it and where."""

    @abstractmethod
    async def stop(self) -> None:
        """End everything; every session is gone then."""

    @abstractmethod
    async def agents(self) -> Sequence[AgentInfo]:
        """The live agents, those of the composition first and once all of them have started or failed."""

    @abstractmethod
    async def create(self, opening: Opening) -> str:
        """Make an agent on a fresh session; its id."""

    @abstractmethod
    async def why_not(self, label: str) -> str | None:
        """Why the agent with that label in the composition does not run; None if there is none such."""

    @abstractmethod
    async def resume(self, session_id: str) -> str:
        """Bring a stored session back to life, named by its id or a unique beginning; its id."""

    @abstractmethod
    def prompt(self, run: Run, message: Message, steer: bool) -> None:
        """Put the run's message into the inbox. Raises, or fails the run, when that cannot be done."""

    @abstractmethod
    def cancel(self, session: Session, run: Run | None) -> None:
        """Stop one run, or whatever the session's agent does."""

    @abstractmethod
    async def close_session(self, session: Session) -> None:
        """End the session's agent."""

    @abstractmethod
    async def read(self, session_id: str, from_seq: int) -> Sequence[SessionEvent]:
        """The session's events from a number on."""

    @abstractmethod
    async def flush(self, session_id: str) -> None:
        """Return once the session's events are on disk."""

    @abstractmethod
    async def settings(self) -> Mapping[str, Mapping[str, Any]]:
        """The values in force, by section."""

    @abstractmethod
    async def change_setting(self, section: str, operation: Mapping[str, Any]) -> None:
        """Store one ``{"op": "set"|"unset", "path": [...], "value"?}``."""

    @abstractmethod
    def watch_settings(self, callback: Callable[[str, Mapping[str, Any]], Any]) -> Callable[[], object]:
        """Call ``callback(section, value)`` after each change; returns the undo."""
