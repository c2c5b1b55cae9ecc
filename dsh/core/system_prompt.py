"""What an agent is told: sections, runtime contexts, variables and tools, put together anew for every step.

Row `system-prompt`. Plugins register pieces; a piece registered through an agent's own context belongs to that agent
and replaces a deployment's piece of the same name. `assemble` gathers them, `render_prompt` turns the result into text.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import field as data_field
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from dsh.cordis import (
    AbortSignal,
    AnonymousEntries,
    ConfigModel,
    Context,
    Disposer,
    Emit,
    NamedEntries,
    ScopedLayers,
    Service,
    Waterfall,
    field,
    owned,
)
from dsh.cordis.jsonio import snapshot_json
from dsh.cordis.records import identity_record, record, struct
from dsh.cordis.waiting import awaiting
from dsh.llm.waiting import until_abort

from . import texts
from .prompt_order import order_tools, tool_order_problem
from .prompt_render import VARIABLE_NAME, PromptError, render_contexts, render_prompt

if TYPE_CHECKING:
    from dsh.llm.types import ToolSchema

__all__ = [
    "AssembleContext",
    "Assembly",
    "PromptConfig",
    "PromptError",
    "PromptText",
    "SystemPrompt",
    "SystemPromptAssemble",
    "SystemPromptChange",
    "ToolSet",
    "render_contexts",
    "render_prompt",
]

T = TypeVar("T")


@record
class AssembleContext:
    """For whom a prompt is assembled. `scope` decides which registrations count; normally it is the agent."""

    scope: Any = None
    signal: AbortSignal | None = None
    agent: Any = None


Text: TypeAlias = "str | Callable[[AssembleContext], str | Awaitable[str | None] | None]"
VariableProvider: TypeAlias = "Callable[[AssembleContext], str | Awaitable[str | None] | None]"
ToolProvider: TypeAlias = "Callable[[AssembleContext], ToolSet | Awaitable[ToolSet]]"


@struct
class PromptText:
    """A section or context of one assembly; `text` is still a template."""

    name: str
    order: float
    text: str
    complete: bool = False


@record
class ToolSet:
    """What a tool provider contributes. `known_names` adds names that exist but are masked for this scope."""

    schemas: Sequence[ToolSchema]
    known_names: Collection[str] | None = None


@struct
class Assembly:
    """A prompt put together for one step. Its lists are its own: editing them changes this step only."""

    sections: list[PromptText] = data_field(default_factory=list)
    contexts: list[PromptText] = data_field(default_factory=list)
    tools: list[ToolSchema] = data_field(default_factory=list)
    variables: dict[str, str | None] = data_field(default_factory=dict)


class SystemPromptAssemble(Waterfall[Assembly], name="system-prompt/assemble", scoped_by=lambda e: e.context.scope):
    """An assembly was put together. The answer counts: edit `next()`'s, or answer another one."""

    assembly: Assembly
    context: AssembleContext


class SystemPromptChange(Emit, name="system-prompt/change", veto=True):
    """Something that feeds the prompt was registered or left. A raising listener undoes a registration."""


class PromptConfig(ConfigModel):
    """Row config of the system prompt; every key applies to the next step."""

    include_harness_identity: bool = field(True, live=True, description="Say that the agent runs on this harness")
    persona: str = field("", live=True, description="Who the agent is, for every agent of the deployment")
    include_runtime_context: bool = field(True, live=True, description="Tell agents about their changing surroundings")
    tool_order: list[str] | None = field(
        None, live=True, description=f"Tool names in the order to show them, with {texts.REST} where the others go"
    )

    def cross_check(self) -> Iterable[tuple[str, str]]:
        problem = tool_order_problem(self.tool_order) if self.tool_order is not None else None
        if problem is not None:
            yield "toolOrder", problem


@identity_record
class _Piece:
    """A registered section or context."""

    name: str
    order: float
    text: Text
    complete: bool = False


class _Layer:
    """What one scope, or the whole deployment, contributes."""

    def __init__(self, *, everywhere: bool = False) -> None:
        def entries(kind: str, variant: str) -> NamedEntries[Any]:
            of_agents = variant if everywhere else None
            return NamedEntries(lambda name: PromptError(texts.duplicate(f"prompt {kind}", name, of_agents)))

        self.sections: NamedEntries[_Piece] = entries("section", "override")
        self.contexts: NamedEntries[_Piece] = entries("context", "override")
        self.variables: NamedEntries[VariableProvider] = entries("variable", "value")
        self.providers: AnonymousEntries[ToolProvider] = AnonymousEntries()
        self.suppressions: AnonymousEntries[None] = AnonymousEntries()


class SystemPrompt(Service, name="systemPrompt"):
    """The registry of prompt pieces. Every registration leaves with the plugin that made it."""

    Config = PromptConfig

    def __init__(self, ctx: Context, config: PromptConfig) -> None:
        self._config = config
        self._layers = ScopedLayers(_Layer, self._changed)
        self._layers.global_ = _Layer(everywhere=True)
        ctx.defer(config.watch(self._changed))
        self.section("harness:identity", -100, lambda _: texts.IDENTITY if config.include_harness_identity else None)
        self.section("deployment:persona", 0, lambda _: config.persona or None)

    @owned
    def section(self, caller: Context, name: str, order: float, text: Text, complete: bool = False) -> Disposer:
        """Add a section of the system prompt. Lower `order` comes first; equal ones in order of registration.

        `text` is a template or a function that gives one (None leaves the section out this time). A `complete` section
        is the whole prompt. Raises `PromptError` for a name taken in the same scope and for an order that is no number.
        """
        piece = _checked("section", name, order, text, complete)
        return self._layers.effect(caller, lambda layer: layer.sections.add(name, piece), f"prompt section {name}")

    @owned
    def context(self, caller: Context, name: str, order: float, text: Text) -> Disposer:
        """Add a runtime context: text about changing surroundings, sent as a message whenever it changed."""
        piece = _checked("context", name, order, text, False)
        return self._layers.effect(caller, lambda layer: layer.contexts.add(name, piece), f"prompt context {name}")

    @owned
    def suppress_runtime_context(self, caller: Context) -> Disposer:
        """Leave all runtime contexts out, for the calling scope or, from outside any, for everybody."""
        return self._layers.effect(caller, lambda layer: layer.suppressions.add(None), "suppress runtime context")

    @owned
    def tools(self, caller: Context, provider: ToolProvider) -> Disposer:
        """Contribute tools. The provider is asked at each assembly; of two tools with one name the nearer scope's,
        then the later provider's, counts."""
        return self._layers.effect(caller, lambda layer: layer.providers.add(provider), "prompt tools")

    @owned
    def variable(self, caller: Context, name: str, provider: VariableProvider) -> Disposer:
        """Give `{{name}}` a value. The provider is asked at each assembly; None means there is no value now."""
        if VARIABLE_NAME.fullmatch(name) is None:
            raise PromptError(texts.bad_variable_name(name))
        return self._layers.effect(caller, lambda layer: layer.variables.add(name, provider), f"prompt variable {name}")

    async def assemble(self, context: AssembleContext | None = None) -> Assembly:
        """Gather everything that counts for `context.scope` into a fresh `Assembly`.

        Raises what a provider raises, `PromptError` for a tool order or complete sections that cannot be honoured, and
        `AbortError` when the signal fires while a provider is awaited.
        """
        context = context or AssembleContext()
        scope = context.scope
        variables = await self._variables(context)
        sections = self._layers.merge(scope, lambda layer: layer.sections)
        contexts = {} if self._suppressed(scope) else self._layers.merge(scope, lambda layer: layer.contexts)
        providers = [provider for layer in self._layers.layers(scope) for provider in layer.providers]
        tools, known = await _collect(providers, context)
        assembly = Assembly(
            await _evaluate("section", sections.values(), context),
            await _evaluate("context", contexts.values(), context),
            order_tools(tools.values(), self._config.tool_order, known),
            variables,
        )
        answer = await self.ctx.waterfall(SystemPromptAssemble(assembly, context), lambda: assembly)
        complete = [section for section in answer.sections if section.complete]
        if len(complete) > 1:
            raise PromptError(texts.several_complete(section.name for section in complete))
        if complete:
            answer.sections = complete
        if self._suppressed(scope):
            answer.contexts = []
        return answer

    async def _variables(self, context: AssembleContext) -> dict[str, str | None]:
        values: dict[str, str | None] = {}
        for layer in self._layers.layers(context.scope):
            asked: set[str] = set()
            # A variable that an earlier provider registers is seen by this very assembly.
            while new := [name for name in layer.variables if name not in asked]:
                for name in new:
                    asked.add(name)
                    provider = layer.variables.get(name)
                    if provider is None:
                        continue
                    value = await _ask(provider, context)
                    if value is not None and not isinstance(value, str):
                        raise PromptError(f'prompt variable "{name}" must be text or None, not {type(value).__name__}')
                    values[name] = value
        return values

    def _suppressed(self, scope: Any) -> bool:
        if not self._config.include_runtime_context:
            return True
        return any(layer.suppressions for layer in self._layers.layers(scope))

    def _changed(self) -> None:
        self.ctx.emit(SystemPromptChange())


def _checked(kind: str, name: str, order: float, text: Text, complete: bool) -> _Piece:
    if isinstance(order, bool) or not isinstance(order, (int, float)) or not isfinite(order):
        raise PromptError(texts.bad_order(kind, name))
    if not isinstance(name, str) or not name:
        raise PromptError(f"prompt {kind} name must be a non-empty string")
    return _Piece(name, order, text, complete)


async def _evaluate(kind: str, pieces: Collection[_Piece], context: AssembleContext) -> list[PromptText]:
    evaluated: list[PromptText] = []
    for piece in sorted(pieces, key=lambda piece: piece.order):
        text = piece.text if isinstance(piece.text, str) else await _ask(piece.text, context)
        if text is None:
            continue
        if not isinstance(text, str):
            raise PromptError(f'prompt {kind} "{piece.name}" must be text or None, not {type(text).__name__}')
        evaluated.append(PromptText(piece.name, piece.order, text, piece.complete))
    return evaluated


async def _collect(
    providers: Sequence[ToolProvider], context: AssembleContext
) -> tuple[dict[str, ToolSchema], set[str]]:
    """Schemas by name, and all names that exist for the scope."""
    schemas: dict[str, ToolSchema] = {}
    known: set[str] = set()
    for provider in providers:
        contributed = await _ask(provider, context)
        for schema in contributed.schemas:
            schemas[schema["name"]] = cast("ToolSchema", snapshot_json(schema))
            known.add(schema["name"])
        known.update(contributed.known_names or ())
    return schemas, known


async def _ask(provider: Callable[[AssembleContext], T | Awaitable[T]], context: AssembleContext) -> T:
    answer: Any = provider(context)
    if hasattr(answer, "__await__"):
        # A provider need not listen to the signal: one that hangs must not hold a cancelled turn.
        answer = await until_abort(awaiting(answer), context.signal)
        if context.signal is not None:
            context.signal.raise_if_aborted()
    return cast(T, answer)
