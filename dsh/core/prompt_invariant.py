"""Companion that checks every assembled prompt: names, texts, tools and variables."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from dsh.cordis import Context

from .invariants import Fail, Invariants
from .prompt_render import VARIABLE_NAME
from .system_prompt import Assembly, PromptText, SystemPromptAssemble

PACKAGE = "@deepseek-ai/dsh-system-prompt"


def apply(ctx: Context, config: object, invariants: Invariants) -> None:
    """Look at every assembly after all other listeners had their say."""
    invariants.register(PACKAGE, _install)


def _install(ctx: Context, fail: Fail) -> None:
    async def check(event: SystemPromptAssemble, next: Callable[[], Awaitable[Assembly]]) -> Assembly:
        assembly = await next()
        check_assembly(assembly, fail)
        return assembly

    ctx.on(SystemPromptAssemble, check, prepend=True, global_=True)


def check_assembly(assembly: Assembly, fail: Fail) -> None:
    """Call `fail` with the first thing about an assembly that no request may carry."""
    _check_texts("section", assembly.sections, fail)
    _check_texts("context", assembly.contexts, fail)
    tools: set[object] = set()
    for tool in assembly.tools:
        name = tool.get("name")
        if not isinstance(name, str) or not name:
            fail("an assembled tool has no name")
        if name in tools:
            fail(f'tool "{name}" stands in the assembly twice')
        tools.add(name)
    for variable, value in assembly.variables.items():
        if not isinstance(variable, str) or VARIABLE_NAME.fullmatch(variable) is None:
            fail(f"invalid prompt variable name {variable!r}")
        if value is not None and not isinstance(value, str):
            fail(f'prompt variable "{variable}" is neither text nor None')


def _check_texts(kind: str, parts: Iterable[PromptText], fail: Fail) -> None:
    names: set[str] = set()
    for part in parts:
        if not isinstance(part.name, str) or not part.name:
            fail(f"an assembled {kind} has no name")
        if part.name in names:
            fail(f'{kind} "{part.name}" stands in the assembly twice')
        names.add(part.name)
        if not isinstance(part.text, str):
            fail(f'the text of {kind} "{part.name}" is no string')
