"""Scripts of model calls taken from recorded sessions: what a replay streams, call by call."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dsh.cordis import HarnessError
from dsh.cordis.jsonio import decode
from dsh.cordis.records import record
from dsh.llm.types import Message

_PACKED = {
    "text-chunks": ("text-delta", "texts"),
    "reasoning-chunks": ("reasoning-delta", "texts"),
    "tool-call-chunks": ("tool-call-delta", "args"),
}
# The closing braces are the last two of a run: a pattern may itself end in a brace.
_FROM_REQUEST = re.compile(r"\{\{fromRequest:(.*?)\}\}(?!\})", re.DOTALL)
ENTRY_KINDS = ("chunks", "throw", "hang")


class ReplayError(HarnessError):
    """The recording and the run do not fit together."""

    code = "REPLAY"


@dataclass(slots=True, eq=False)
class Script:
    """The model calls of one session. Entries: ``{kind: chunks, chunks}``, ``{kind: throw, chunks, message, code}``,
    ``{kind: hang, readyFile?}``.
    """

    name: str
    entries: list[Mapping[str, Any]]
    used: int = 0

    def next(self) -> Mapping[str, Any]:
        """The entry of the next call. Raises `ReplayError` past the end."""
        if self.used >= len(self.entries):
            raise ReplayError(f"{self.name}: the run asked for model call {self.used + 1}, past the recording's end")
        self.used += 1
        return self.entries[self.used - 1]


@record
class Recording:
    """A decoded log: its header and its events, envelopes or not."""

    name: str
    header: Mapping[str, Any]
    events: list[Mapping[str, Any]] = field(default_factory=list)


def read_recording(path: Path, cwd: str) -> Recording:
    """The log at `path` with ``{{cwd}}`` filled in. Raises ``OSError`` and ``ValueError`` for what is no log."""
    # Lines end in LF alone: the other separators are legal inside JSON strings.
    rows: list[Any] = [decode(line) for line in path.read_text("utf-8").split("\n") if line.strip()]
    if not rows or not isinstance(rows[0], dict) or rows[0].get("type") != "session":
        raise ValueError(f"{path}: not a session log: its first line is no session header")
    hydrated = [fill(row, "{{cwd}}", cwd) for row in rows]
    return Recording(str(path), hydrated[0], [event for row in hydrated[1:] for event in _unpacked(row)])


def derive_script(recording: Recording) -> Script:
    """One entry for each model call of the log's own part (what it inherited from its parent is skipped).

    Raises `ReplayError` for a call without a finish: such a recording needs an override.
    """
    entries: list[Mapping[str, Any]] = []
    chunks: list[Mapping[str, Any]] = []
    place: tuple[Any, Any] | None = None
    for event in recording.events[recording.header.get("seedLength") or 0 :]:
        data = event.get("data") or {}
        if event.get("type") == "assistant/chunk":
            here = (data.get("turn"), data.get("step"))
            if chunks and here != place:
                raise _cut_call(recording, place)
            place = here
            chunks.append(data["chunk"])
            if data["chunk"]["type"] == "finish":
                entries.append({"kind": "chunks", "chunks": chunks})
                chunks = []
        elif event.get("type") == "compaction/summary" and data.get("llmStreamCall") is True:
            entries.append({"kind": "chunks", "chunks": _summary_call(data)})
    if chunks:
        raise _cut_call(recording, place)
    return Script(recording.name, entries)


def override_entries(override: Any, derived: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The script after an override: a list replaces it, ``{patches: [{at, entry}]}`` replaces or appends single calls.

    Raises ``ValueError`` for a malformed override.
    """
    if isinstance(override, list):
        return [_checked(entry) for entry in override]
    patches = override.get("patches") if isinstance(override, dict) else None
    if not isinstance(patches, list):
        raise ValueError("a replay override is a list of entries or {patches: [{at, entry}]}")
    entries = list(derived)
    seen: set[int] = set()
    for patch in patches:
        at = patch.get("at") if isinstance(patch, dict) else None
        if type(at) is not int or not 0 <= at <= len(entries) or at in seen:
            raise ValueError(f"replay override: patch position {at!r} is repeated or outside 0..{len(entries)}")
        seen.add(at)
        entries[at : at + 1] = [_checked(patch.get("entry"))]
    return entries


def resolve_placeholders(entry: Any, messages: Sequence[Message]) -> Any:
    """The entry with each ``{{fromRequest:REGEX}}`` replaced by the last match in the request's texts (its first
    group, if it has one). Raises `ReplayError` when nothing matches.
    """
    haystack: str | None = None

    def replaced(match: re.Match[str]) -> str:
        nonlocal haystack
        if haystack is None:
            haystack = "\n".join(_leaves(messages))
        found = None
        for found in re.finditer(match[1], haystack):  # noqa: B007 - the last one counts
            pass
        if found is None:
            raise ReplayError(f"nothing in the request matches the placeholder {match[0]}")
        return found[1] if found.re.groups else found[0]

    return _map_strings(entry, lambda text: _FROM_REQUEST.sub(replaced, text) if "{{fromRequest:" in text else text)


def fill(value: Any, placeholder: str, text: str) -> Any:
    """`value` with every occurrence of `placeholder` inside its strings replaced."""
    return _map_strings(value, lambda found: found.replace(placeholder, text))


def _unpacked(row: Any) -> Iterator[Mapping[str, Any]]:
    if not isinstance(row, dict) or row.get("type") not in _PACKED:
        yield row
        return
    kind, key = _PACKED[row["type"]]
    data = row["data"]
    shared = {"type": kind, "index": data["index"]}
    if kind == "tool-call-delta":
        shared |= {field_: data[field_] for field_ in ("id", "name") if field_ in data}
    for part in data[key]:
        chunk = {**shared, "argumentsDelta" if kind == "tool-call-delta" else "text": part}
        yield {"type": "assistant/chunk", "data": {"turn": data["turn"], "step": data["step"], "chunk": chunk}}


def _summary_call(data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """A compaction's own call, of which the log keeps the finished blocks."""
    chunks: list[Mapping[str, Any]] = []
    for index, block in enumerate(data.get("rawOutput") or ()):
        chunks.append({"type": "block-start", "index": index, "blockType": block["type"]})
        chunks.append({"type": "block-end", "index": index, "block": block})
    if data.get("usage") is not None:
        chunks.append({"type": "usage", "usage": data["usage"]})
    chunks.append({"type": "finish", "reason": {"kind": "stop"}})
    return chunks


def _cut_call(recording: Recording, place: tuple[Any, Any] | None) -> ReplayError:
    turn, step = place or (None, None)
    return ReplayError(
        f"{recording.name}: the model call of turn {turn}, step {step} has no finish; replaying it needs an override"
    )


def _checked(entry: Any) -> Mapping[str, Any]:
    if not isinstance(entry, dict) or entry.get("kind") not in ENTRY_KINDS:
        raise ValueError(f"a replay entry has a kind of {', '.join(ENTRY_KINDS)}")
    needed = {"chunks": ("chunks",), "throw": ("chunks", "message", "code"), "hang": ()}[entry["kind"]]
    missing = [key for key in needed if key not in entry]
    if missing:
        raise ValueError(f"a replay entry of kind {entry['kind']} needs {', '.join(missing)}")
    return entry


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(item)


def _map_strings(value: Any, change: Any) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key: _map_strings(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_map_strings(item, change) for item in value]
    return value
