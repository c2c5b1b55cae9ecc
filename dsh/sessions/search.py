"""Searching stored sessions for a text: titles and what was said, without an index and without opening a session.

A log is decompressed frame by frame and a line is parsed only when it may hold the text, so a gigabyte of logs takes
seconds. What comes of a search is bounded by how much is asked for and by the time it may take.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from dsh.cordis.jsonio import JsonDecodeError, decode
from dsh.cordis.records import record, struct
from dsh.sessions.errors import SessionPersistenceError
from dsh.sessions.frames import BadFrameError, FrameCodec, walk
from dsh.sessions.log_file import is_compressed, read_stable
from dsh.sessions.stored import StoredSession, title_of

SNIPPET: Final = 120
"""Characters of a line around what was found."""
_PIECE: Final = 4 * 1024 * 1024
"""Bytes of an uncompressed log that are looked at together."""


@record
class Match:
    """One place where the text stands. seq: number of the event; kind: who said it; snippet: one line around it."""

    seq: int
    type: str
    kind: str
    time: int
    snippet: str


@struct
class FoundSession:
    """A session in which the text stands: in its title, or in `matches`, or both; more: matches not listed."""

    entry: StoredSession
    title: str | None
    in_title: bool
    matches: list[Match] = field(default_factory=list)
    more: bool = False


@struct
class SearchResult:
    """What a search found. searched: sessions looked at; complete: nothing was left out for lack of time or room."""

    found: list[FoundSession] = field(default_factory=list)
    searched: int = 0
    complete: bool = True
    unreadable: list[tuple[str, str]] = field(default_factory=list)


def search_stored(
    entries: Sequence[StoredSession],
    text: str,
    *,
    titles_only: bool = False,
    limit: int = 20,
    per_session: int = 3,
    seconds: float = 20.0,
    clock: Callable[[], float] = time.monotonic,
) -> SearchResult:
    """The sessions that hold `text`, whatever the case, in the order of `entries`.

    limit: sessions to find; per_session: places to list of each; seconds: how long it may take. A session that cannot
    be read is named and passed over.
    """
    result = SearchResult()
    needle = _Needle(text)
    end = clock() + seconds
    for entry in entries:
        if len(result.found) >= limit or clock() > end:
            result.complete = False
            break
        result.searched += 1
        try:
            title = title_of(entry)
            found = FoundSession(entry, title, needle.stands_in(title or ""))
            if not titles_only:
                for match in _matches(entry, needle):
                    if match is not None:
                        if len(found.matches) >= per_session:
                            found.more = True
                            break
                        found.matches.append(match)
                    if clock() > end:
                        result.complete = False
                        break
        except (OSError, SessionPersistenceError, BadFrameError) as error:
            result.unreadable.append((entry.id, str(error)))
            continue
        if found.in_title or found.matches:
            result.found.append(found)
    return result


class _Needle:
    """The text looked for, as it may stand in a line of JSON and as it stands in what was said."""

    def __init__(self, text: str) -> None:
        self.folded = text.casefold()
        inside = json.dumps(text, ensure_ascii=False)[1:-1]
        self._ascii = inside.isascii()
        self._bytes = inside.lower().encode()
        self._text = inside.casefold()

    def may_be_in(self, content: bytes) -> bool:
        """Whether a line or several can hold it."""
        if self._ascii:
            return self._bytes in content.lower()
        return self._text in content.decode("utf-8", "replace").casefold()

    def stands_in(self, text: str) -> bool:
        return self.folded in text.casefold()

    def snippet(self, text: str) -> str:
        """One line of `text` around the first place."""
        line = " ".join(text.split())
        at = line.casefold().find(self.folded)
        if at < 0:  # it stands over a line end
            at = 0
        begin = max(0, min(at - SNIPPET // 3, len(line) - SNIPPET))
        cut = line[begin : begin + SNIPPET]
        return ("…" if begin else "") + cut + ("…" if begin + SNIPPET < len(line) else "")


def _matches(entry: StoredSession, needle: _Needle) -> Iterator[Match | None]:
    """The places in a log; None before each piece of it, for whoever looks at the time."""
    for content in _pieces(entry):
        yield None
        if not needle.may_be_in(content):
            continue
        for line in content.split(b"\n"):
            if not line or not needle.may_be_in(line):
                continue
            try:
                row = decode(line)
            except JsonDecodeError:  # the torn end of a write that goes on
                continue
            if isinstance(row, dict):
                for kind, said in searchable(row):
                    if needle.stands_in(said):
                        seq, when = row.get("seq"), row.get("time")
                        yield Match(
                            seq if isinstance(seq, int) else -1,
                            str(row.get("type")),
                            kind,
                            when if isinstance(when, int) else 0,
                            needle.snippet(said),
                        )
                        break


def _pieces(entry: StoredSession) -> Iterator[bytes]:
    """The text of a log in pieces that end at line ends."""
    if is_compressed(entry.path):
        data, _ = read_stable(entry.path)
        codec = FrameCodec()
        for start, end in walk(data):
            yield codec.decode(data, start, end)
        return
    with open(entry.path, "rb") as file:
        while content := file.read(_PIECE):
            yield content + file.readline()


def searchable(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What a person would look for in one event: who said it, and the text. No reasoning, no stream chunks."""
    data = row.get("data")
    if not isinstance(data, dict):
        return
    kind = row.get("type")
    if kind == "user/message":
        source = data.get("source")
        yield str(source.get("kind", "user") if isinstance(source, dict) else "user"), _texts(data.get("content"))
    elif kind == "assistant/message":
        message = data.get("message")
        yield "assistant", _texts(message.get("content") if isinstance(message, dict) else None)
    elif kind == "tool/call":
        yield "call", f"{data.get('name')} {data.get('arguments')}"
    elif kind == "tool/result":
        message = data.get("message")
        blocks = message.get("content") if isinstance(message, dict) else None
        for block in blocks if isinstance(blocks, list) else ():
            if isinstance(block, dict):
                yield "result", _texts(block.get("content"))
    elif kind == "todo/write":
        todos = data.get("todos")
        for todo in todos if isinstance(todos, list) else ():
            if isinstance(todo, dict):
                yield "todo", f"{todo.get('status')} {todo.get('content')}"
    elif kind == "turn/end":
        reason = data.get("reason")
        if isinstance(reason, dict) and reason.get("kind") != "completed":
            error = reason.get("error")
            said = error.get("message", "") if isinstance(error, dict) else ""
            yield "end", f"{reason.get('kind')} {said}"


def _texts(blocks: Any) -> str:
    if not isinstance(blocks, list):
        return ""
    return "\n".join(
        block["text"]
        for block in blocks
        if isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str)
    )
