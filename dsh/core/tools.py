"""The tool registry: what may be called, by whom, and the door to running a call."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal, Unpack, cast

from dsh.cordis import AnonymousEntries, ConfigModel, Context, Disposer, NamedEntries, ScopedLayers, Service, owned
from dsh.cordis.jsonio import FrozenDict, snapshot_json
from dsh.cordis.records import identity_record

from . import texts
from .system_prompt import AssembleContext, SystemPrompt, ToolSet
from .tool_definition import Output, ToolDefinition, define_tool, is_positive, text
from .tool_errors import (
    JsonSchemaError,
    ToolArgsError,
    ToolNotFoundError,
    ToolOutputError,
    ToolRegistrationError,
    ToolTimeoutError,
)
from .tool_events import (
    UNSET,
    Accept,
    Allow,
    Ask,
    Blocked,
    Deny,
    ToolsChange,
    ToolsExecute,
    ToolsPostExecute,
    ToolsPreExecute,
    ToolsResult,
)
from .tool_hints import ToolOptions, tool, tool_from
from .tool_pipeline import ABORTED_BEFORE_DISPATCH, Guard, RegisteredTool, ToolExecution
from .tool_result import ToolErrorInfo, ToolResult
from .tool_run import ToolInput, ToolRun, ToolToken
from .tool_schema import freeze_schema

if TYPE_CHECKING:
    from dsh.llm.types import ToolSchema

__all__ = [
    "ABORTED_BEFORE_DISPATCH",
    "UNSET",
    "Accept",
    "Allow",
    "Ask",
    "Blocked",
    "Deny",
    "JsonSchemaError",
    "Output",
    "ToolArgsError",
    "ToolDefinition",
    "ToolErrorInfo",
    "ToolExecution",
    "ToolInput",
    "ToolNotFoundError",
    "ToolOutputError",
    "ToolRegistrationError",
    "ToolResult",
    "ToolRun",
    "ToolTimeoutError",
    "ToolToken",
    "Tools",
    "ToolsChange",
    "ToolsExecute",
    "ToolsPostExecute",
    "ToolsPreExecute",
    "ToolsResult",
    "define_tool",
    "text",
    "tool",
]


class _Layer:
    """What one scope, or the whole deployment, contributes."""

    def __init__(self, variant: str | None = None) -> None:
        self.tools: NamedEntries[RegisteredTool] = NamedEntries(
            lambda name: ToolRegistrationError(texts.duplicate("tool", name, variant))
        )
        self.filters: AnonymousEntries[_Filter] = AnonymousEntries()
        self.guards: AnonymousEntries[Guard] = AnonymousEntries()

    def admits(self, name: str) -> bool:
        """Whether this scope's restrictions let an inherited tool through."""
        return all(mask.admits(name) for mask in self.filters)


@identity_record
class _Filter:
    """One restriction."""

    allow: Collection[str] | None
    deny: Collection[str]

    def admits(self, name: str) -> bool:
        return (self.allow is None or name in self.allow) and name not in self.deny


class Tools(Service, name="tools"):
    """Tools by name, layered by scope: an agent sees the deployment's tools, its presets', and its own.

    Row `tools`. A registration belongs to the scope of the calling context and leaves with the calling plugin. The
    visible tools feed the system prompt for as long as there is one.
    """

    def __init__(self, ctx: Context, config: ConfigModel | None = None) -> None:
        self._layers = ScopedLayers(_Layer, lambda: ctx.emit(ToolsChange()))
        self._layers.global_ = _Layer("variant")
        # A child, so that either row may come first and a restart of the prompt leaves the tools alone. It is mounted
        # before anything can depend on this service, so it runs before the first agent asks for a prompt.
        ctx.inject([SystemPrompt], self._feed_prompt)

    @owned
    def register(self, caller: Context, definition: ToolDefinition) -> Disposer:
        """Add a tool. Raises `ToolRegistrationError` or `JsonSchemaError` for one that cannot be registered."""
        name = definition.name
        entry = _checked(definition)
        return self._layers.effect(caller, lambda layer: layer.tools.add(name, entry), f"tool {name}")

    @owned
    def tool(
        self, caller: Context, function: Callable[..., Any] | None = None, /, **options: Unpack[ToolOptions]
    ) -> Any:
        """Decorator: make a tool of a function (see `dsh.core.tool_hints.tool`) and register it; gives the function
        back."""

        def add(decorated: Callable[..., Any]) -> Callable[..., Any]:
            Tools.register(self, caller, tool_from(decorated, options))
            return decorated

        return add if function is None else add(function)

    @owned
    def restrict(
        self, caller: Context, *, allow: Iterable[str] | None = None, deny: Iterable[str] | None = None
    ) -> Disposer:
        """Mask inherited tools for the calling scope and everything inside it; its own tools stay.

        Several restrictions intersect, and tools registered later are covered by name. Raises `ToolRegistrationError`
        outside a scope, for an empty filter, and for a name that is not there to be masked.
        """
        scope = caller.scope_key
        if scope is None:
            raise ToolRegistrationError(texts.RESTRICT_UNSCOPED)
        allowed = None if allow is None else dict.fromkeys(allow)
        denied = dict.fromkeys(deny or ())
        if allowed is None and not denied:
            raise ToolRegistrationError(texts.RESTRICT_EMPTY)
        named = [*(allowed or ()), *denied]
        if texts.RESERVED_TOOL in named:
            raise ToolRegistrationError(texts.RESTRICT_RESERVED)
        inherited = self._names(scope, inherited_only=True)
        if unknown := [name for name in named if name not in inherited]:
            raise ToolRegistrationError(texts.restrict_unknown(unknown, sorted(inherited)))
        mask = _Filter(allowed, denied)
        return self._layers.effect(caller, lambda layer: layer.filters.add(mask), "restrict tools")

    @owned
    def guard(self, caller: Context, guard: Guard) -> Disposer:
        """Add a last policy word after an allow: `guard(exec)` answers why the call must not run, or None.

        No listener can undo a guard's refusal. A raising guard refuses the call.
        """
        return self._layers.effect(caller, lambda layer: layer.guards.add(guard), "tool guard", notify=False)

    def schemas(self, scope: Any = None) -> list[ToolSchema]:
        """What a model in `scope` sees of its tools. The list is fresh, its frozen entries are shared."""
        return [cast("ToolSchema", tool.schema) for tool in self._visible(scope).values()]

    def get(self, name: str, scope: Any = None) -> ToolDefinition | None:
        """The tool visible under `name` in `scope`."""
        found = self.resolve(name, scope)
        return None if found is None else found.definition

    def resolve(self, name: str, scope: Any) -> RegisteredTool | None:
        """As `get`, with the frozen schemas."""
        for layer in reversed(self._layers.layers(scope)):
            found = layer.tools.get(name)
            if found is not None:
                return found
            if layer.filters and not layer.admits(name):
                return None
        return None

    def guards(self, scope: Any) -> Iterator[Guard]:
        """Guards that apply in `scope`, the deployment's first, then from the farthest scope to the nearest."""
        for layer in self._layers.layers(scope):
            yield from layer.guards

    def execution_mode(self, call: ToolInput) -> Literal["parallel", "exclusive"]:
        """Whether the call may overlap others: only a known tool whose classifier answers exactly True."""
        tool = self.get(call.name, call.agent)
        if tool is None or tool.is_concurrency_safe is None:
            return "exclusive"
        try:
            safe = tool.is_concurrency_safe(snapshot_json(call.arguments))
        except Exception:
            return "exclusive"
        return "parallel" if safe is True else "exclusive"

    def start(self, call: ToolInput) -> ToolExecution:
        """Take a call in (arguments frozen, identity given) without running anything yet."""
        return ToolExecution(self, call)

    async def execute(self, call: ToolInput) -> ToolResult:
        """Run a call through all stages. Never raises for what a tool, a policy or a wrapper does.

        A cancelled caller gets its `CancelledError` after the body has ended and the result was announced.
        """
        execution = self.start(call)
        try:
            if await execution.prepare():
                await execution.dispatch()
            return await execution.commit()
        except BaseException:
            execution.abandon()
            raise

    def _visible(self, scope: Any) -> dict[str, RegisteredTool]:
        visible: dict[str, RegisteredTool] = {}
        for layer in self._layers.layers(scope):
            if layer.filters:
                visible = {name: tool for name, tool in visible.items() if layer.admits(name)}
            visible.update(layer.tools)
        return visible

    def _names(self, scope: Any, *, inherited_only: bool = False) -> set[str]:
        """Names registered for a scope, masked ones included; without those of its own layer if asked."""
        own = self._layers.peek(scope) if inherited_only else None
        return {name for layer in self._layers.layers(scope) if layer is not own for name in layer.tools}

    def _feed_prompt(self, child: Context) -> None:
        def provide(context: AssembleContext) -> ToolSet:
            return ToolSet(self.schemas(context.scope), self._names(context.scope))

        child[SystemPrompt].tools(provide)


def _checked(definition: ToolDefinition) -> RegisteredTool:
    """The definition with its schemas checked and frozen, once."""
    name = definition.name
    if not isinstance(name, str) or not name:
        raise ToolRegistrationError("tool name must be a non-empty string")
    if name == texts.RESERVED_TOOL:
        raise ToolRegistrationError(texts.RESERVED)
    if not isinstance(definition.output, Output) or not callable(definition.output.render):
        raise ToolRegistrationError(texts.no_output(name))
    if definition.timeout_ms is not None and not is_positive(definition.timeout_ms):
        raise ToolRegistrationError(texts.bad_timeout(name))
    try:
        parameters = snapshot_json(definition.parameters)
    except Exception as error:
        raise ToolRegistrationError(texts.bad_parameters(name)) from error
    if not isinstance(parameters, FrozenDict) or not isinstance(definition.description, str):
        raise ToolRegistrationError(f'tool "{name}" needs a description text and an object of parameters')
    schema = FrozenDict(name=name, description=definition.description, parameters=parameters)
    return RegisteredTool(definition, schema, freeze_schema(definition.output.schema))
