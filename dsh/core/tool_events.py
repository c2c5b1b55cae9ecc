"""Events of a tool call, and the decisions their listeners answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from dsh.cordis import Emit, Waterfall
from dsh.cordis.records import identity_record, record

if TYPE_CHECKING:
    from dsh.llm.types import Block, Message

    from .tool_result import ToolResult
    from .tool_run import ToolRun


@record
class Allow:
    """Let the call run; guards still have the last word."""


@record
class Deny:
    """Refuse the call; the model reads `Error: <reason>`."""

    reason: str


@record
class Ask:
    """Let the approval service decide; `reason` is shown with the question."""

    reason: str | None = None


PolicyDecision: TypeAlias = Allow | Deny | Ask


UNSET: Final[Any] = object()
"""No replacement value (None is a value)."""


@identity_record
class Accept:
    """Keep the result. `content` replaces what the model reads; `value` is validated and rendered anew; not both."""

    content: Sequence[Block] | None = None
    value: Any = UNSET
    additional_contexts: Sequence[Message] = ()


@identity_record
class Blocked:
    """Turn the result into a failure the model reads as `feedback` (blocks, or one text)."""

    feedback: Sequence[Block] | str
    additional_contexts: Sequence[Message] = ()


ResultDecision: TypeAlias = Accept | Blocked

ALLOW: Final = Allow()
ACCEPT: Final = Accept()


def _caller(event: ToolsPreExecute | ToolsExecute | ToolsPostExecute | ToolsResult) -> Any:
    return event.exec.agent


class ToolsPreExecute(Waterfall[PolicyDecision], name="tools/pre-execute", scoped_by=_caller):
    """May this call run? Default: allow. Call `next()` first and tighten its answer; what must not be bypassed is a
    guard (`Tools.guard`)."""

    exec: ToolRun


class ToolsExecute(Waterfall["ToolResult"], name="tools/execute", scoped_by=_caller):
    """Wraps the body. Only `exec.signal` may be replaced; an answer without `next()` skips the body."""

    exec: ToolRun


class ToolsPostExecute(Waterfall[ResultDecision], name="tools/post-execute", scoped_by=_caller):
    """Judges a settled result. Default: accept."""

    exec: ToolRun
    result: ToolResult


class ToolsResult(Emit, name="tools/result", scoped_by=_caller):
    """A result became final. Dispatched exactly once for each call."""

    exec: ToolRun
    result: ToolResult


class ToolsChange(Emit, name="tools/change", veto=True):
    """Tools appeared, left or were masked. A raising listener undoes the registration."""
