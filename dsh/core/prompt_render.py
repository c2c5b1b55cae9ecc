"""Prompt templates: `{{name}}` becomes the variable's value, and everything that only looks like it is refused."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dsh.cordis.errors import HarnessError

from . import texts

if TYPE_CHECKING:
    from .system_prompt import Assembly, PromptText

VARIABLE_NAME = re.compile(r"[a-z][a-z0-9_]*")
_GROUP = re.compile(r"\{\{([^{}]*)\}\}")


class PromptError(HarnessError):
    """A system prompt that cannot be registered, assembled or rendered."""

    code = "INVALID_PROMPT"


def render_prompt(assembly: Assembly) -> str:
    """The system prompt: sections in order, variables replaced, empty ones dropped, joined by a blank line.

    Raises `PromptError` for a reference without a value and for anything malformed.
    """
    rendered = _render(assembly.sections, assembly.variables, "section")
    return "\n\n".join(text for _, text in rendered)


def render_contexts(assembly: Assembly) -> list[dict[str, str]]:
    """The runtime contexts as `{name, text}` in order, rendered by the same rules; empty ones are left out."""
    rendered = _render(assembly.contexts, assembly.variables, "context")
    return [{"name": name, "text": text} for name, text in rendered]


def _render(parts: Sequence[PromptText], variables: Mapping[str, str | None], kind: str) -> list[tuple[str, str]]:
    rendered = [(part.name, render_text(part.text, variables, kind, part.name)) for part in parts]
    return [(name, text) for name, text in rendered if text.strip()]


def render_text(text: str, variables: Mapping[str, str | None], kind: str, name: str) -> str:
    """One template with its variables replaced. Values go in verbatim and are never looked at again.

    `kind` and `name` say in errors which template it is. An opening `{{` without any `}}` after it is plain text.
    """
    start = text.find("{{")
    if start < 0:
        return text
    done: list[str] = []
    at = 0
    while start >= 0:
        group = _GROUP.match(text, start)
        if group is None:
            if text.find("}}", start + 2) < 0:
                break
            raise PromptError(texts.broken_variable(text[start:], kind, name))
        done.append(text[at:start])
        done.append(_value_of(group, variables, kind, name))
        at = group.end()
        start = text.find("{{", at)
    done.append(text[at:])
    return "".join(done)


def _value_of(group: re.Match[str], variables: Mapping[str, str | None], kind: str, section: str) -> str:
    variable = group[1]
    if VARIABLE_NAME.fullmatch(variable) is None:
        raise PromptError(texts.malformed_variable(group[0], kind, section))
    if variable not in variables:
        raise PromptError(texts.unknown_variable(variable, kind, section, variables))
    value = variables[variable]
    if value is None:
        raise PromptError(texts.empty_variable(variable, kind, section))
    return value
