"""Where the agents of a harness live: in this process, or in a runtime of their own."""

from __future__ import annotations

import inspect
import sys
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakValueDictionary

from dsh.cordis import describe_error
from dsh.cordis.records import record

if TYPE_CHECKING:
    from dsh.core.session_event import SessionEvent

    from .run import Run
    from .session import Session


@record
class PermissionRequest:
    """A tool call that waits for a person's word. The arguments stand in the log under ``call_id``."""

    session_id: str
    tool_name: str
    call_id: str | None
    reason: str | None


PermissionCallback = Callable[[PermissionRequest], "Awaitable[bool] | bool"]
"""Answers True to let one call run; anything else refuses it. Cancelled when nobody waits for it any more."""


async def decide(callback: PermissionCallback, request: PermissionRequest) -> bool:
    """The callback's answer; one that raises refuses."""
    try:
        answer = callback(request)
        return (await answer if inspect.isawaitable(answer) else answer) is True
    except Exception as error:
        _failed("the permission callback", error)
        return False


def _failed(what: str, error: Exception) -> None:
    print(f"{what} failed: {describe_error(error)}", file=sys.stderr)


Watcher = Callable[[str, Any], object]
"""Called with a section's name and its value in force."""


@record
class AgentInfo:
    """A live agent. ``label``: its name in the composition, None for one made by a program."""

    session_id: str
    label: str | None
    status: Literal["idle", "running"]


class Backend(ABC):
    """Answers the requests of ``dsh.interfaces.agent_requests``, and tells sessions and watchers what happens.

    sessions: those the program holds, by id, for as long as it does. watchers: of settings.
    """

    def __init__(self) -> None:
        self.sessions: WeakValueDictionary[str, Session] = WeakValueDictionary()
        self.watchers: list[Watcher] = []

    @abstractmethod
    async def start(self) -> None:
        """Start the composition. Raises ``HarnessError`` saying what is wrong with it and where."""

    @abstractmethod
    async def stop(self) -> None:
        """End everything; every session is gone then."""

    @abstractmethod
    async def ask(self, name: str, **params: Any) -> Mapping[str, Any]:
        """The answer to a request."""

    @abstractmethod
    def tell(self, name: str, run: Run | None, **params: Any) -> None:
        """Make a request at once, in the order of the calls. Raises, or fails the run, when it is refused."""

    def happened(self, session_id: str, event: SessionEvent) -> None:
        """Pass the next event of a session on."""
        if (session := self.sessions.get(session_id)) is not None:
            session._happened(event)

    def disposed(self, session_id: str) -> None:
        """The agent of a session is gone."""
        if (session := self.sessions.get(session_id)) is not None:
            session._gone()

    def settings_changed(self, section: str, value: Any) -> None:
        """Pass a changed section on; a watcher that raises keeps nobody else from it."""
        for watcher in list(self.watchers):
            try:
                watcher(section, value)
            except Exception as error:
                _failed(f"a watcher of {section}", error)

    def all_gone(self) -> None:
        """Nothing runs any more."""
        for session in list(self.sessions.values()):
            session._gone()
        self.sessions.clear()
        self.watchers.clear()
