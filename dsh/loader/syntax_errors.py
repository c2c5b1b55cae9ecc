"""Syntax errors of YAML in words for whoever wrote the text: what is missing, and where it belongs."""

from __future__ import annotations

import re
from contextlib import suppress

import yaml


def explain_syntax(error: yaml.MarkedYAMLError, text: str) -> tuple[str, yaml.Mark | None]:
    """What is wrong with a text that the parser refused, and where it can be mended."""
    mark = error.problem_mark or error.context_mark
    if "another document" in (error.problem or ""):
        return "a second document starts here; a config file is one document", mark
    reason = error.problem or error.context or "cannot be read"
    if mark is None:
        return reason, None
    if marker := re.search(r"^(<{7} |={7}\r?$|>{7} )", text, re.MULTILINE):
        at = marker.start()
        return "an unresolved merge conflict is marked here", yaml.Mark("", at, text.count("\n", 0, at), 0, None, 0)
    if quoted := _quoted_before(text, mark):
        quote = text[quoted.index]
        return f"the {quote} here is not closed: {quote} is missing; line {mark.line + 1} has the next one", quoted
    start, lines = error.context_mark or mark, text.split("\n")
    line = lines[mark.line] if mark.line < len(lines) else ""
    at_end, context = not text[mark.index :].strip(), error.context or ""
    if "flow node" in context:
        before = text[: mark.index].rstrip()
        if before[-1:] not in ("[", "{"):
            return "this cannot stand within [ ] or { }; is one above not closed?", mark
        column = len(before) - 2 - before.rfind("\n")
        start = yaml.Mark("", len(before) - 1, before.count("\n"), column, None, 0)
    opened = text[start.index : start.index + 1]
    if "flow" in context or ("quoted" in context and "end of stream" in reason):
        # Where it was opened helps more than where, lines later, it could not go on.
        close = {"{": "}", "[": "]"}.get(opened, opened)
        if at_end or mark.line != start.line:
            rest = "" if at_end else f"; line {mark.line + 1} cannot be part of it"
            return f"the {opened} here is not closed: {close} is missing{rest}", start
        return f"a comma or {close} is missing here, or the text needs quotes", mark
    if "\t" in line[: mark.column + 1] and "cannot start any token" in reason:
        reason = "a tab stands here; indent with spaces, not tabs"
    elif "mapping values are not allowed" in reason and ": " in line[: mark.column]:
        reason = "a second ': ' stands in this line; a value that contains ': ' needs quotes"
    elif "mapping values are not allowed" in reason:
        reason = f"{_indented(lines, mark.line)}; keys of one mapping begin in one column"
    elif "could not find expected ':'" in reason:
        return "a colon is missing behind this key: it is written key: value", start
    elif "cannot start any token" in reason and line[mark.column : mark.column + 1] in "@`%&*!|>":
        reason = "a value that begins with this character needs quotes"
    elif "alias" in reason or "alias" in context or "anchor" in context:
        reason += "; a value that begins with * or & needs quotes"
    elif "escape" in reason:
        reason += "; within \"…\" a backslash is written \\\\, within '…' it stands for itself"
    elif "parsing a block" in context and line[: mark.column].strip():
        closes = line[mark.column : mark.column + 1] in ("]", "}")
        mend = "this does not belong to the value before it; put the whole value in quotes"
        reason = f"this {line[mark.column]} closes nothing" if closes else mend
    elif "parsing a block" in context and line.strip().startswith("-"):
        reason = f"{_indented(lines, mark.line)}; an item of a list begins with a dash and a space, all in one column"
    elif "parsing a block" in context:
        reason = f"{_indented(lines, mark.line)}; keys of one mapping begin in one column, items of a list with a dash"
    elif context:
        reason += f" ({context})"
    return reason, mark


def _indented(lines: list[str], number: int) -> str:
    """How far a line is indented, and how far the one above it that it is measured by."""
    here, dash = lines[number], lines[number].strip().startswith("-")
    said = [line for line in lines[:number] if line.strip() and not line.strip().startswith("#")]
    above = next((line for line in reversed(said) if not dash or line.strip().startswith("-")), "")
    there = len(above) - len(above.lstrip(" " if dash else " -"))
    what = "item" if dash else "key"
    return f"this line is indented by {len(here) - len(here.lstrip(' '))}, the {what} above it by {there}"


def _quoted_before(text: str, mark: yaml.Mark) -> yaml.Mark | None:
    """Where the quoted text begins that ends in front of a position and seems to have taken in more than it should."""
    found = None
    with suppress(yaml.YAMLError):
        for token in yaml.scan(text):
            if isinstance(token, yaml.ScalarToken) and token.style in ("'", '"') and token.end_mark.index <= mark.index:
                found = token
    if found is None or found.end_mark.line != mark.line or text[found.end_mark.index : mark.index].strip():
        return None
    return found.start_mark if found.start_mark.line < mark.line or " #" in found.value else None
