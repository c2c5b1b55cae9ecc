"""Pages of the public packages: every exported name with its signature and its docstring."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe

PAGES = {
    "cordis": ("dsh.cordis",),
    "plugins": (
        "dsh.core.tools",
        "dsh.core.tool_schema",
        "dsh.core.system_prompt",
        "dsh.core.agent",
        "dsh.core.agent_events",
        "dsh.core.agents",
        "dsh.core.session",
        "dsh.core.session_store",
        "dsh.core.seams",
        "dsh.llm.adapter",
        "dsh.llm.message",
    ),
    "testing": ("dsh.testing",),
    "sdk": ("dsh.sdk", "dsh.sdk.sync"),
}
"""Modules of each page."""


def render(root: Path) -> dict[str, str]:
    """The text of each page, by its name."""
    package = griffe.load("dsh", search_paths=[root], allow_inspection=False)
    return {
        page: "\n".join(_page(page, [package[name.removeprefix("dsh.")] for name in names]))
        for page, names in PAGES.items()
    }


def _page(title: str, modules: list[Any]) -> Iterator[str]:
    yield f"# Reference: {title}"
    yield ""
    yield "Written by `scripts/docs` from the docstrings."
    for module in modules:
        yield ""
        yield f"## {module.path}"
        yield from _about(module)
        for member in _public(module):
            yield from _member(member, 3)
    yield ""


def _public(module: Any) -> Iterator[Any]:
    names = module.exports or [name for name, each in module.members.items() if not each.is_alias]
    for name in sorted(map(str, names), key=str.lower):
        member = module.members.get(name)
        if member is None or name.startswith("_"):
            continue
        if member.is_alias:
            member = member.final_target
        if member.is_module and name in member.members:  # a module called as what it holds
            member = member.members[name]
        if member.is_class or member.is_function or member.docstring is not None:
            yield member


def _member(member: Any, level: int) -> Iterator[str]:
    yield ""
    yield f"{'#' * level} {member.name}"
    yield ""
    yield "```python"
    yield _signature(member)
    yield "```"
    yield from _about(member)
    if member.is_class:
        for name, each in member.members.items():
            if name.startswith("_") or each.is_alias or (each.docstring is None and not each.is_function):
                continue
            yield from _member(each, level + 1)


def _about(member: Any) -> Iterator[str]:
    if member.docstring is not None:
        yield ""
        yield from member.docstring.value.splitlines()


def _signature(member: Any) -> str:
    if member.is_function:
        prefix = "async def" if "async" in member.labels else "def"
        return f"{prefix} {member.name}({', '.join(_parameters(member))}){_returns(member.returns)}"
    if member.is_class:
        bases = ", ".join(map(str, member.bases))
        own = f"class {member.name}({bases})" if bases else f"class {member.name}"
        start = member.members.get("__init__")
        if start is not None and not start.is_alias:
            own += f"\n{member.name}({', '.join(_parameters(start))})"
        elif fields := _fields(member):
            own += f"\n{member.name}({', '.join(fields)})"
        return own
    kind = f": {member.annotation}" if getattr(member, "annotation", None) else ""
    return f"{member.name}{kind}"


def _fields(member: Any) -> list[str]:
    """What a class that declares its data holds, in the order in which it is made of them; nothing of a protocol."""
    if any(str(base).startswith("Protocol") for base in member.bases):
        return []
    found: dict[str, str] = {}
    for each in [*reversed(member.mro()), member]:
        if "__init__" in each.members:
            return []
        for name, attribute in each.members.items():
            annotation = getattr(attribute, "annotation", None)
            data = attribute.is_attribute and annotation and "property" not in attribute.labels
            if data and not name.startswith("_") and "ClassVar" not in str(annotation):
                default = f" = {attribute.value}" if attribute.value is not None else ""
                found[name] = f"{name}: {annotation}{default}"
    return list(found.values())


def _returns(annotation: Any) -> str:
    return f" -> {annotation}" if annotation is not None else ""


def _parameters(function: Any) -> Iterator[str]:
    starred = False
    for parameter in function.parameters:
        if parameter.name == "self":
            continue
        kind = parameter.kind.name
        if kind == "keyword_only" and not starred:
            starred = True
            yield "*"
        mark = {"var_positional": "*", "var_keyword": "**"}.get(kind, "")
        starred |= kind == "var_positional"
        text = mark + parameter.name
        if parameter.annotation is not None:
            text += f": {parameter.annotation}"
        if parameter.default is not None and not mark:
            text += f" = {parameter.default}"
        yield text
