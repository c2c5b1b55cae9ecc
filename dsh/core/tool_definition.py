"""What a tool is: the raw definition, and `define_tool`, which adds checked arguments to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, Unpack

from dsh.cordis.jsonio import JsonValue
from dsh.cordis.records import identity_record, record
from dsh.llm.content import text_block

from .tool_author import compile_parameters, compile_value
from .tool_errors import ToolArgsError, ToolRegistrationError
from .tool_schema import argument_violations

if TYPE_CHECKING:
    from dsh.llm.types import Block

    from .tool_presentation import CallCard, PresentedResult, ResultCard
    from .tool_result import ToolResult
    from .tool_run import ToolRun

Body: TypeAlias = "Callable[[Any, ToolRun], Any]"
Classifier: TypeAlias = Callable[[Any], bool]
CallPresenter: TypeAlias = "Callable[[Any], CallCard | None]"
ResultPresenter: TypeAlias = "Callable[[Any, PresentedResult], ResultCard | None]"
Finalizer: TypeAlias = "Callable[[ToolRun, ToolResult], Sequence[Block] | None]"

text = text_block


@record
class Output:
    """The value a tool returns and how a model reads it.

    `render(args, value)` gives the content blocks; `presentation_meta(args, value)` data for presenters that no model
    sees, computed for top-level calls only.
    """

    schema: Mapping[str, Any]
    render: Callable[[Any, Any], Sequence[Block]]
    presentation_meta: Callable[[Any, Any], JsonValue] | None = None


@identity_record
class ToolDefinition:
    """A tool as it is registered. A model sees `name`, `description` and `parameters` (JSON Schema), nothing else.

    `execute(args, exec)` may be a coroutine function or a plain one (which then runs on the event loop's thread); it
    returns the value, not blocks. A definition made by hand validates its own arguments. `finalize_content(exec,
    result)` has the last word on the content (None keeps it). `timeout_ms` is enforced by the timeout policy.
    `is_concurrency_safe(args)` lets a call overlap others by answering exactly `True`. `hears_abort` False says that
    the body cannot look at `exec.signal`: its task is cancelled when the call is aborted.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    output: Output
    execute: Body
    finalize_content: Finalizer | None = None
    timeout_ms: float | None = None
    is_concurrency_safe: Classifier | None = None
    present_call: CallPresenter | None = None
    present_result: ResultPresenter | None = None
    hears_abort: bool = True


class ToolExtras(TypedDict, total=False):
    """What a tool may say about itself beyond what it takes and gives; see `ToolDefinition`."""

    finalize_content: Finalizer | None
    timeout_ms: float | None
    is_concurrency_safe: Classifier | bool | None
    present_call: CallPresenter | None
    present_result: ResultPresenter | None
    hears_abort: bool


def define_tool(
    name: str,
    description: str,
    parameters: Mapping[str, Any],
    output: Output,
    execute: Body,
    **extras: Unpack[ToolExtras],
) -> ToolDefinition:
    """A tool with an authored schema, whose body only ever sees arguments that fit it.

    `parameters` maps each argument's name to its property (see `tool_author`); `output.schema` is written the same way.
    Arguments that do not fit raise `ToolArgsError` before the body, count as not safe to overlap, and are shown without
    a card; presenters that raise or answer something odd are ignored.
    Raises `JsonSchemaError` for a schema outside the subset, `ToolRegistrationError` for a bad `timeout_ms`.
    """
    schema = compile_parameters(parameters)
    return checked_tool(
        name, description, schema, replace(output, schema=compile_value(output.schema)), execute, extras
    )


def checked_tool(
    name: str, description: str, schema: Mapping[str, Any], output: Output, execute: Body, extras: ToolExtras
) -> ToolDefinition:
    """`define_tool` for schemas that are compiled already."""
    timeout_ms = extras.get("timeout_ms")
    if timeout_ms is not None and not is_positive(timeout_ms):
        raise ToolRegistrationError(f"defineTool({name}): timeoutMs must be a positive finite number")
    return ToolDefinition(
        name,
        description,
        schema,
        output,
        _checked(schema, execute),
        finalize_content=extras.get("finalize_content"),
        timeout_ms=timeout_ms,
        is_concurrency_safe=_classifier(schema, extras.get("is_concurrency_safe")),
        present_call=_soft(schema, extras.get("present_call")),
        present_result=_soft(schema, extras.get("present_result")),
        hears_abort=extras.get("hears_abort", True),
    )


def is_positive(number: object) -> bool:
    """Whether `number` is a positive finite number (a bool is none)."""
    return isinstance(number, (int, float)) and not isinstance(number, bool) and isfinite(number) and number > 0


def _checked(schema: Mapping[str, Any], execute: Body) -> Body:
    def run(args: Any, exec: ToolRun) -> Any:
        if violations := argument_violations(schema, args):
            raise ToolArgsError(violations)
        return execute(args, exec)

    return run


def _classifier(schema: Mapping[str, Any], safe: Classifier | bool | None) -> Classifier | None:
    if not safe:
        return None

    def classify(args: Any) -> bool:
        if argument_violations(schema, args):
            return False
        return safe is True or (callable(safe) and safe(args) is True)

    return classify


def _soft(schema: Mapping[str, Any], present: Callable[..., Any] | None) -> Callable[..., Any] | None:
    """A presenter (of a call or a result) that answers None for whatever is odd."""
    if present is None:
        return None

    def soft(args: Any, *result: PresentedResult) -> Any:
        if argument_violations(schema, args):
            return None
        try:
            card = present(args, *result)
        except Exception:
            return None
        return card if isinstance(card, dict) and isinstance(card.get("card"), str) else None

    return soft
