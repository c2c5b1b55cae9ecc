"""The event types this build understands, and the rule for logs that hold others.

A log is only interpreted when every event in it is either known or marked ignorable by its writer: skipping an unknown
event that matters would silently change what the conversation means.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from dsh.core.session_event import SessionError, SessionEvent

CORE_EVENT_TYPES: Final = frozenset(
    {
        "turn/start",
        "turn/end",
        "step/start",
        "step/end",
        "user/message",
        "assistant/chunk",
        "assistant/message",
        "tool/call",
        "tool/result",
        "request/header",
        "request/context",
        "agent/inbox/spliced",
        "session/end-seed",
        "todo/write",
    }
)
"""Written by the core itself."""

PLUGIN_EVENT_TYPES: Final = frozenset(
    {
        "approval/asked",
        "approval/decided",
        "approval/policy",
        "sandbox/mode",
        "permission/preset",
        "plan/mode",
        "agent-preset/selected",
        "feedback/record",
        "command/run",
        "command/done",
        "compaction/start",
        "compaction/end",
        "compaction/summary",
        "compaction/prune",
        "hook/invoked",
        "hook/result",
        "llm/retry",
        "llm/retry-started",
        "goal/change",
        "schedule/change",
        "session/title",
        "session/title-llm-request",
        "subagent/descriptor",
        "tool/code-dispatch-start",
        "tool/code-dispatch",
        "tool-workflow/run-start",
        "tool-workflow/agent-start",
        "tool-workflow/agent-end",
        "tool-workflow/run-end",
        "team/member",
        "team/task",
        "team/message/queued",
        "team/message/delivered",
        "web/deepseek-search-llm-request",
    }
)
"""Written by bundled plugins; names and fields are shared with other builds of this log format."""

KNOWN_EVENT_TYPES: Final = CORE_EVENT_TYPES | PLUGIN_EVENT_TYPES


class UnknownEventTypeError(SessionError):
    """A stored log holds an event that this build cannot interpret. `event_type` and `seq` name it."""

    code = "SESSION_UNKNOWN_EVENT"

    def __init__(self, session_id: str, event_type: str, seq: int) -> None:
        super().__init__(
            f'session "{session_id}" contains event type "{event_type}" (seq {seq}) unknown to this harness and not '
            "marked ignorable; refusing to interpret the log — it was likely written by a newer harness"
        )
        self.session_id = session_id
        self.event_type = event_type
        self.seq = seq


def refuse_unknown_types(session_id: str, events: Iterable[SessionEvent], extra: Collection[str] = ()) -> None:
    """Raise `UnknownEventTypeError` for the first event whose type is neither known, in `extra`, nor ignorable."""
    known = KNOWN_EVENT_TYPES.union(extra) if extra else KNOWN_EVENT_TYPES
    for event in events:
        if event.type not in known and not event.ignorable:
            raise UnknownEventTypeError(session_id, event.type, event.seq)
