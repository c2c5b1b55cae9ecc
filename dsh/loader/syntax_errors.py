"""Syntax errors of YAML in words for whoever wrote the text: what is missing, and where it belongs."""

from __future__ import annotations

import yaml


def explain_syntax(error: yaml.MarkedYAMLError, text: str) -> tuple[str, yaml.Mark | None]:
    """What is wrong with a text that the parser refused, and where it can be mended."""
    mark = error.problem_mark or error.context_mark
    if "another document" in (error.problem or ""):
        return "a second document starts here; a config file is one document", mark
    reason = error.problem or error.context or "cannot be read"
    if mark is None:
        return reason, None
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
    inside = f" (in what begins in line {start.line + 1})" if start.line != mark.line else ""
    if "\t" in line[: mark.column + 1] and "cannot start any token" in reason:
        reason = "a tab stands here; indent with spaces, not tabs"
    elif "mapping values are not allowed" in reason:
        above = (
            "a second ': ' stands in this line" if ": " in line[: mark.column] else "the value above ends before this"
        )
        reason = f"{above}; a value that contains ': ' needs quotes, and keys of one mapping the same indentation"
    elif "cannot start any token" in reason and line[mark.column : mark.column + 1] in "@`%&*!|>":
        reason = "a value that begins with this character needs quotes"
    elif "alias" in reason or "alias" in context or "anchor" in context:
        reason += "; a value that begins with * or & needs quotes"
    elif "escape" in reason:
        reason += "; within \"…\" a backslash is written \\\\, within '…' it stands for itself"
    elif "parsing a block" in context and line[: mark.column].strip():
        reason = f"this does not belong to the value before it; put the whole value in quotes{inside}"
    elif "parsing a block" in context:
        reason = f"this line is not indented like the lines it follows{inside}; a list item begins with a dash"
    elif context:
        reason += f" ({context})"
    return reason, mark
