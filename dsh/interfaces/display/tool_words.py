"""A tool call in a few words: what it is about, and what came of it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, Literal

from dsh.cordis.records import record

from ..terminal_text import visible
from .amounts import counted, size

MAIN: Final = ("command", "file_path", "pattern", "query", "url", "path", "code", "name", "description", "prompt")
"""Arguments that say best what a call is about, the best one first."""

LONGEST: Final = 400
"""Characters of an argument that are looked at."""

SHORT: Final = 60
"""A result of one line and at most so many characters is shown itself."""

_ENDED: Final = re.compile(r"\[(exit code: -?\d+|killed by signal: \w+|timed out after [^\]]+)\]\s*\Z")
_BROKEN_OFF: Final = {
    "ABORTED": "",
    "ABORTED_BEFORE_DISPATCH": "before it began",
    "TOOL_NOT_STARTED": "before it began",
    "TOOL_OUTCOME_UNKNOWN": "outcome unknown",
}

State = Literal["done", "failed", "cancelled"]


@record
class Outcome:
    """How a call ended: ``words`` for its line, and the edit that it made."""

    state: State
    words: str
    diffs: tuple[Mapping[str, Any], ...] = ()


def arguments_of(raw: Any) -> Any:
    """The arguments of a call, which the log holds as the model wrote them: a value, or text that is no JSON."""
    if not isinstance(raw, str):
        return raw
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return raw


def main_argument(value: Any) -> str:
    """What a call is about, in one line."""
    if not isinstance(value, Mapping):
        return "" if value is None else _line(_text(value))
    for name in MAIN:
        if isinstance(value.get(name), str) and value[name].strip():
            return _line(value[name])
    for name, one in value.items():
        return _line(f"{name} ({len(one)})" if isinstance(one, list) else _text(one))
    return ""


def written(value: Any) -> str:
    """How much a call writes; empty for one that writes no file."""
    text = value.get("content") if isinstance(value, Mapping) else None
    return _amount(text, short=0) if isinstance(text, str) else ""


def outcome(data: Mapping[str, Any], content: Any, failed: bool, written: str = "") -> Outcome:
    """What came of a call.

    data: the event with its ``error`` and ``meta``; content: the blocks of the result; written: see `written`.
    """
    text = "".join(str(block.get("text", "")) for block in content if block.get("type") == "text")
    error = data.get("error")
    code = error.get("code") if isinstance(error, Mapping) else None
    if code in _BROKEN_OFF:
        return Outcome("cancelled", _BROKEN_OFF[code])
    if failed:
        return Outcome("failed", _line(text).removeprefix("Error: ") or str(code or "failed"))
    meta = data.get("meta")
    if isinstance(meta, Mapping):
        if diffs := _diffs(meta.get("diffs")):
            return Outcome("done", "", diffs)
        if written and "diffs" in meta:
            return Outcome("done", written)
        if words := _of_meta(meta):
            return Outcome("done", words)
    if ended := _ENDED.search(end := text[-LONGEST:]):
        last = next((line for line in reversed(end[: ended.start()].split("\n")) if line.strip()), "")
        return Outcome("failed", f"{ended[1]}, {_line(last)}" if last else ended[1])
    others = [str(block.get("type")) for block in content if block.get("type") != "text"]
    return Outcome("done", ", ".join([*([_amount(text)] if text or not others else []), *others]))


def _of_meta(meta: Mapping[str, Any]) -> str | None:
    lines, total = meta.get("lines"), meta.get("totalLines")
    if isinstance(lines, list) and isinstance(total, int):
        if len(lines) == total:
            return counted(total, "line")
        first = meta.get("offset")
        return f"lines {first}-{first + len(lines) - 1} of {total}" if isinstance(first, int) and lines else None
    total = meta.get("total")
    shape = {"paths": "path", "matches": "match"}.get(str(meta.get("shape")))
    if shape is not None and isinstance(total, int):
        return counted(total, shape) if shape == "path" or total == 1 else f"{total} matches"
    return None


def _diffs(value: Any) -> tuple[Mapping[str, Any], ...]:
    if not isinstance(value, list):
        return ()
    return tuple(
        one
        for one in value
        if isinstance(one, Mapping) and isinstance(one.get("newText"), str) and isinstance(one.get("oldText", ""), str)
    )


def _amount(text: str, short: int = SHORT) -> str:
    """How much text there is; the text itself where it is one line of at most ``short`` characters."""
    bare = text.strip("\r\n")
    if not bare.strip() or bare == "(no output)":
        return "no output"
    lines = bare.count("\n") + 1
    if lines == 1 and len(bare) <= short:
        return _line(bare)
    return f"{counted(lines, 'line')}, {size(len(text.encode('utf-8', 'replace')))}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _line(text: str) -> str:
    """The text in one line, of which the first `LONGEST` characters are enough."""
    return " ".join(visible(text[:LONGEST]).split())
