"""`@tool`: a typed Python function becomes a tool; its signature and docstring are the declaration."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack, is_typeddict, overload

from dsh.cordis.jsonio import encode_str
from dsh.cordis.records import record
from dsh.llm.content import text_block

from . import texts
from .hint_schema import (
    Field,
    HintError,
    compile_hint,
    decode_fields,
    describe,
    object_fields,
    object_schema,
    resolve_hints,
    to_json,
)
from .tool_author import compile_value
from .tool_definition import Output, ToolDefinition, ToolExtras, checked_tool
from .tool_run import ToolRun
from .tool_schema import freeze_schema

if TYPE_CHECKING:
    from dsh.llm.types import Block

_SECTION = re.compile(r"^(Args|Arguments|Parameters|Returns?|Raises|Yields?|Examples?|Notes?):\s*$")
_FIELD = re.compile(r"^:(?:param|parameter|arg|argument)\s+(?:[^:]*\s)?(\w+):\s*(.*)$")
_ENTRY = re.compile(r"^\s+\*{0,2}(\w+)(?:\s*\([^)]*\))?:\s*(.*)$")


class ToolOptions(ToolExtras, total=False):
    """What `@tool` accepts beside the function. Without `output` the return hint says what comes back."""

    name: str
    description: str
    output: Output


@overload
def tool(function: Callable[..., Any], /) -> ToolDefinition: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[Callable[..., Any]], ToolDefinition]: ...
def tool(
    function: Callable[..., Any] | None = None, /, **options: Unpack[ToolOptions]
) -> ToolDefinition | Callable[[Callable[..., Any]], ToolDefinition]:
    """Make a tool of a function: `@tool` or `@tool(timeout_ms=5000)`.

    Each parameter is an argument with a schema from its hint; a default makes it optional; `Annotated[T, "text"]` or
    the docstring describes it. A parameter hinted `ToolRun` receives `exec` instead, with its `signal`; an async
    function without one is cancelled like any task when its call is aborted. A single parameter `args` hinted with a
    TypedDict or dataclass takes all arguments at once. The docstring's first part describes the tool. Presenters
    and the classifier get the raw argument object. Raises `HintError` for what no schema can express.
    """
    if function is not None:
        return tool_from(function, options)
    return lambda decorated: tool_from(decorated, options)


def tool_from(function: Callable[..., Any], options: ToolOptions) -> ToolDefinition:
    """The definition `tool` makes of `function`."""
    name = options.get("name") or str(getattr(function, "__name__", type(function).__name__))
    where = f"tool {name}"
    hints = resolve_hints(function, where)
    about, parameter_docs = split_docstring(inspect.getdoc(function) or "")
    call = _signature(function, hints, parameter_docs, where)
    extras: ToolOptions = {"hears_abort": call.exec_name is not None, **options}
    returns, has_dataclass = _output(options.get("output"), hints, where)
    return checked_tool(
        name,
        options.get("description", about),
        freeze_schema(object_schema(call.fields, closed=False), "parameters"),
        returns,
        _body(function, call, has_dataclass),
        extras,
    )


@record
class _Call:
    """How arguments reach the function: field by field, or all in one parameter `whole` built by `build`."""

    fields: Mapping[str, Field]
    exec_name: str | None
    whole: str | None = None
    build: Callable[..., Any] = dict

    def keywords(self, arguments: Mapping[str, Any], exec: ToolRun) -> dict[str, Any]:
        values = decode_fields(self.fields, arguments)
        if self.whole is not None:
            values = {self.whole: self.build(**values)}
        if self.exec_name is not None:
            values[self.exec_name] = exec
        return values


def _signature(function: Callable[..., Any], hints: Mapping[str, Any], docs: Mapping[str, str], where: str) -> _Call:
    parameters: dict[str, inspect.Parameter] = {}
    exec_name = None
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise HintError(where, f'parameter "{name}" must be one that can be passed by name')
        if name not in hints:
            raise HintError(where, f'parameter "{name}" needs a type hint')
        if hints[name] is ToolRun:
            exec_name = name
        else:
            parameters[name] = parameter
    if list(parameters) == ["args"]:
        cls = hints["args"]
        if is_typeddict(cls) or (isinstance(cls, type) and dataclasses.is_dataclass(cls)):
            fields = object_fields(cls, f"{where}: args")
            return _Call(_described(fields, docs), exec_name, "args", dict if is_typeddict(cls) else cls)
    fields = {
        name: Field(compile_hint(hints[name], f'{where}: parameter "{name}"'), parameter.default is parameter.empty)
        for name, parameter in parameters.items()
    }
    return _Call(_described(fields, docs), exec_name)


def _described(fields: Mapping[str, Field], docs: Mapping[str, str]) -> dict[str, Field]:
    return {
        name: dataclasses.replace(
            entry, hint=dataclasses.replace(entry.hint, schema=describe(entry.hint.schema, docs.get(name)))
        )
        for name, entry in fields.items()
    }


def _output(given: Output | None, hints: Mapping[str, Any], where: str) -> tuple[Output, bool]:
    if given is not None:
        return dataclasses.replace(given, schema=compile_value(given.schema)), False
    if "return" not in hints:
        raise HintError(where, "needs a return hint, or an output that says what comes back")
    returns = compile_hint(hints["return"], f"{where}: return")
    return Output(freeze_schema(returns.schema, "output.schema"), render_plain), returns.has_dataclass


def _body(function: Callable[..., Any], call: _Call, has_dataclass: bool) -> Callable[[Any, ToolRun], Any]:
    def run(arguments: Any, exec: ToolRun) -> Any:
        return function(**call.keywords(arguments, exec))

    async def run_and_convert(arguments: Any, exec: ToolRun) -> Any:
        value = run(arguments, exec)
        return to_json(await value if hasattr(value, "__await__") else value)

    return run_and_convert if has_dataclass else run


def render_plain(arguments: Any, value: Any) -> Sequence[Block]:
    """A value as one text block: text as it is, nothing as `(no output)`, everything else as compact JSON."""
    if value is None or value == "":
        return [text_block(texts.NO_OUTPUT)]
    return [text_block(value if isinstance(value, str) else encode_str(value))]


def split_docstring(text: str) -> tuple[str, dict[str, str]]:
    """The part of a docstring that describes the whole, and its parameter descriptions (`Args:` or `:param x:`)."""
    about: list[str] = []
    found: dict[str, str] = {}
    section = ""
    indent = 0
    current: str | None = None
    for line in text.splitlines():
        heading = _SECTION.match(line)
        field = _FIELD.match(line)
        if heading is not None:
            section, current = heading[1], None
        elif field is not None:
            section, current = "Args", field[1]
            found[current] = field[2].strip()
        elif line.startswith(":"):
            section, current = "Returns", None
        elif not section:
            about.append(line)
        elif section in ("Args", "Arguments", "Parameters") and line.strip():
            depth = len(line) - len(line.lstrip())
            entry = _ENTRY.match(line)
            if entry is not None and (current is None or depth <= indent):
                current, indent = entry[1], depth
                found[current] = entry[2].strip()
            elif current is not None:
                found[current] = f"{found[current]} {line.strip()}".strip()
    return "\n".join(about).strip(), found
