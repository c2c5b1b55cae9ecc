"""Companion that checks the order of a tool call's stages and that what they hand out cannot change."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from dsh.cordis import Context, Dispatching
from dsh.cordis.jsonio import FrozenDict, FrozenList

from .invariants import Fail, Invariants
from .tool_result import ToolResult
from .tool_run import ToolRun, ToolToken

PACKAGE = "@deepseek-ai/dsh-tools"

_STAGES = frozenset({"tools/pre-execute", "tools/execute", "tools/post-execute", "tools/result"})


def apply(ctx: Context, config: object, invariants: Invariants) -> None:
    """Watch every tool call."""
    invariants.register(PACKAGE, _install)


def _install(ctx: Context, fail: Fail) -> None:
    passed: WeakKeyDictionary[ToolRun, set[str]] = WeakKeyDictionary()

    def check(event: Dispatching) -> None:
        if event.name in _STAGES:
            stages = passed.setdefault(event.payload.exec, set())
            check_stage(event.payload, event.name, stages, fail)
            stages.add(event.name)

    ctx.on(Dispatching, check, global_=True)


def check_stage(payload: Any, stage: str, passed: set[str], fail: Fail) -> None:
    """Call `fail` if `stage` may not come now; `passed` holds the stages of this call so far."""
    exec: ToolRun = payload.exec
    if stage in passed:
        fail(f"{stage} repeated for one execution")
    if stage in ("tools/execute", "tools/post-execute") and "tools/pre-execute" not in passed:
        fail(f"{stage} must follow tools/pre-execute")
    if stage == "tools/execute" and "tools/post-execute" in passed:
        fail("tools/execute must come before tools/post-execute")
    if "tools/result" in passed:
        fail(f"{stage} must come before tools/result")
    if not exec.name or not exec.call_id or not exec.root_call_id:
        fail("a tool call needs a name, a call id and a root call id")
    parent = exec.parent
    if isinstance(parent, ToolToken) and exec.root_call_id != parent.root_call_id:
        fail(f'root call id "{exec.root_call_id}" differs from that of the calling execution, "{parent.root_call_id}"')
    if stage == "tools/result":
        _check_final(exec, payload.result, fail)


def _check_final(exec: ToolRun, result: object, fail: Fail) -> None:
    if not exec.closed:
        fail("tools/result while the execution is still open")
    if type(result) is not ToolResult:
        fail("tools/result without a ToolResult")
    if type(result.content) is not FrozenList:
        fail("the content of a final result is not frozen")
    if not all(type(message) is FrozenDict for message in result.additional_contexts):
        fail("a context of a final result is not frozen")
    if result.is_error != (result.error is not None):
        fail("a result is a failure exactly if it has an error")
