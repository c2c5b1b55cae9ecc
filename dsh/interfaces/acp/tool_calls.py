"""The tool calls of a session as an editor follows them: pending, in progress, then completed or failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dsh.core.tool_batch import parse_arguments

from .cards import call_fields, result_fields
from .outbox import Outbox

if TYPE_CHECKING:
    from dsh.core.tool_presentation import PresentedResult
    from dsh.core.tools import ToolDefinition


class _Call:
    __slots__ = ("arguments", "fields", "name", "wire_id")

    def __init__(self, wire_id: str, name: str) -> None:
        self.wire_id = wire_id
        self.name = name
        self.arguments: Any = None
        self.fields: dict[str, Any] = {"title": name}


class ToolCalls:
    """Sends ``tool_call`` and ``tool_call_update``; a call's state never goes back.

    A model may use one call id again in a later turn; the client then sees another id, because to it an id is one call
    for the whole session.
    """

    def __init__(self, outbox: Outbox, cwd: str | None, find: Callable[[str], ToolDefinition | None]) -> None:
        self._outbox = outbox
        self._cwd = cwd
        self._find = find
        self._open: dict[str, _Call] = {}
        self._used: set[str] = set()

    def seen(self, call_id: str, name: str) -> None:
        """The model has begun to write a call."""
        if call_id not in self._open:
            call = self._enter(call_id, name)
            self._send("tool_call", call, title=name, kind="other", status="pending")

    def started(self, call_id: str, name: str, raw_arguments: str) -> None:
        """The call is in the log and about to run."""
        call, update = self._open.get(call_id), "tool_call_update"
        if call is None:
            call, update = self._enter(call_id, name), "tool_call"
        call.arguments = parse_arguments(raw_arguments)
        call.fields = call_fields(self._find(name), name, call.arguments, self._cwd)
        self._send(update, call, status="in_progress", **call.fields)

    def finished(self, call_id: str, result: PresentedResult) -> None:
        """The call has its result: content, isError, meta."""
        call = self._open.pop(call_id, None)
        if call is None:
            return
        fields = result_fields(self._find(call.name), call.arguments, result, self._cwd)
        self._send("tool_call_update", call, status="failed" if result["isError"] else "completed", **fields)

    def give_up(self) -> None:
        """Nothing that is open will get a result any more."""
        for call in self._open.values():
            self._send("tool_call_update", call, status="failed")
        self._open.clear()

    def describe(self, call_id: str) -> tuple[dict[str, Any], Any]:
        """The call as the client is asked about it, and its arguments."""
        call = self._open.get(call_id)
        if call is None:
            return {"toolCallId": call_id}, None
        return {"toolCallId": call.wire_id, **call.fields}, call.arguments

    def _enter(self, call_id: str, name: str) -> _Call:
        wire_id, again = call_id, 1
        while wire_id in self._used:
            again += 1
            wire_id = f"{call_id}#{again}"
        self._used.add(wire_id)
        call = self._open[call_id] = _Call(wire_id, name)
        return call

    def _send(self, update: str, call: _Call, /, **fields: Any) -> None:
        self._outbox.send({"sessionUpdate": update, "toolCallId": call.wire_id, **fields})
