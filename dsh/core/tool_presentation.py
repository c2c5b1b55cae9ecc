"""How a call and its result may be shown. Data for front ends only: no model ever sees it.

A presenter answers one of these cards, told apart by `card`, or None for anything it does not recognise. Cards are
computed again when a log is replayed, so they depend on the logged arguments and result alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

ToolKind: TypeAlias = Literal["read", "edit", "delete", "move", "search", "execute", "fetch", "other"]


class Location(TypedDict):
    """A place in a file; `line` counts from 1."""

    path: str
    line: NotRequired[int]


class FileDiff(TypedDict):
    """A file before and after; `oldText` is None for a new file."""

    path: str
    oldText: str | None
    newText: str


class GenericCall(TypedDict):
    """A call without a shape of its own."""

    card: Literal["generic"]
    title: str
    kind: NotRequired[ToolKind]
    rawInput: NotRequired[Any]
    content: NotRequired[Sequence[Mapping[str, Any]]]
    locations: NotRequired[Sequence[Location]]


class TerminalCall(TypedDict):
    """A command; `title` is the command line."""

    card: Literal["terminal"]
    title: str
    description: NotRequired[str]
    cwd: NotRequired[str]


class DiffCall(TypedDict):
    """An edit that the call is about to make."""

    card: Literal["diff"]
    title: str
    diffs: Sequence[FileDiff]
    locations: NotRequired[Sequence[Location]]


class GenericResult(TypedDict):
    """A result without a shape of its own."""

    card: Literal["generic"]
    title: NotRequired[str]
    content: NotRequired[Sequence[Mapping[str, Any]]]


class TerminalResult(TypedDict):
    """What a command printed and how it ended."""

    card: Literal["terminal"]
    title: NotRequired[str]
    output: NotRequired[str]
    exitCode: NotRequired[int]
    signal: NotRequired[str]


class DiffResult(TypedDict):
    """The edit that was made."""

    card: Literal["diff"]
    title: NotRequired[str]
    diffs: Sequence[FileDiff]


class LineMatch(TypedDict):
    """One matching line."""

    lineNumber: int
    line: str


class FileMatches(TypedDict):
    """The matching lines of one file."""

    path: str
    matches: Sequence[LineMatch]


class SearchMatches(TypedDict):
    """Lines found, by file; `total` counts all matches, shown or not."""

    card: Literal["search"]
    shape: Literal["matches"]
    files: Sequence[FileMatches]
    truncated: bool
    total: int


class SearchPaths(TypedDict):
    """Paths found; `total` counts all of them, shown or not."""

    card: Literal["search"]
    shape: Literal["paths"]
    paths: Sequence[str]
    truncated: bool
    total: int


class NumberedLine(TypedDict):
    """One line of a file; `number` counts from 1."""

    number: int
    text: str


class ReadResult(TypedDict):
    """A window of a file."""

    card: Literal["read"]
    path: str
    offset: int
    lines: Sequence[NumberedLine]
    totalLines: int
    lang: NotRequired[str]
    content: NotRequired[Sequence[Mapping[str, Any]]]


class WebSource(TypedDict):
    """One page a search found."""

    url: str
    title: NotRequired[str]
    snippet: NotRequired[str]
    publishedAt: NotRequired[str]


class WebSearchResult(TypedDict):
    """Pages found on the web."""

    card: Literal["web"]
    kind: Literal["search"]
    sources: Sequence[WebSource]
    answer: NotRequired[str]
    truncated: bool


class WebFetchResult(TypedDict):
    """A page fetched from the web."""

    card: Literal["web"]
    kind: Literal["fetch"]
    url: str
    statusCode: int
    truncated: bool


CallCard: TypeAlias = GenericCall | TerminalCall | DiffCall
ResultCard: TypeAlias = (
    GenericResult
    | TerminalResult
    | DiffResult
    | SearchMatches
    | SearchPaths
    | ReadResult
    | WebSearchResult
    | WebFetchResult
)


class PresentedResult(TypedDict):
    """What `present_result` gets: the logged result of the call."""

    content: Sequence[Mapping[str, Any]]
    isError: bool
    meta: NotRequired[Any]
