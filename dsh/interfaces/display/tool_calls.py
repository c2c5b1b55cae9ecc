"""Tool calls, one line each: a row of the live region while it runs, a printed line when it has ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dsh.cordis.records import struct

from ..terminal_text import visible
from .amounts import MOMENT, counted, duration, elapsed, size
from .cells import cells, cut
from .diff_view import DiffView
from .ink import CYAN, DIM, GREEN, RED, YELLOW, Ink, Piece
from .tool_words import Outcome, arguments_of, main_argument, outcome, written

LIVE_ROWS: Final = 6
"""Calls that are shown while they run; of more their number."""

NARROW: Final = 30
"""Cells below which the line of a call tells no time."""


@struct
class Call:
    """One call that has not ended: being written by the model (``size`` in characters), or running.

    ``about`` is its main argument, ``writes`` how much it writes to a file.
    """

    name: str
    about: str
    began: float
    depth: int = 0
    running: bool = True
    size: int = 0
    writes: str = ""


class ToolCalls:
    """The calls of a turn; all times are in seconds."""

    def __init__(self, ink: Ink) -> None:
        self._ink = ink
        self._calls: dict[str, Call] = {}
        self._announced: dict[str, str] = {}

    @property
    def running(self) -> bool:
        """Whether any is."""
        return bool(self._calls)

    # -- what happens ---------------------------------------------------------------------------------------------

    def written(self, chunk: Mapping[str, Any], now: float) -> None:
        """The model has written a piece of a call."""
        call = self._calls.get(chunk["id"])
        if call is None:
            call = self._calls[chunk["id"]] = Call(visible(str(chunk.get("name") or "tool")), "", now, running=False)
        call.size += len(chunk["argumentsDelta"])

    def announced(self, calls: Mapping[str, str]) -> None:
        """The model has made these calls (id to name), of which each starts when it can."""
        self._calls = {id: call for id, call in self._calls.items() if call.running}
        self._announced = dict(calls)

    def start(self, id: str, name: str, arguments: Any, now: float, parent: str | None = None) -> Call:
        """A call begins; one with a parent was made by the code of that one."""
        self._announced.pop(id, None)
        self._calls.pop(id, None)  # to the end: in the order of their starts
        above = self._calls.get(parent) if parent is not None else None
        depth = 0 if above is None else above.depth + 1
        value = arguments_of(arguments)
        call = Call(visible(name).replace("\n", " "), main_argument(value), now, depth, writes=written(value))
        self._calls[id] = call
        return call

    def end(self, id: str, data: Mapping[str, Any], content: Any, failed: bool, now: float, width: int) -> str:
        """A call has ended; what to print about it."""
        call = self._calls.pop(id, None) or Call("tool", "", now)
        self._announced.pop(id, None)
        done = outcome(data, content, failed, call.writes)
        if not done.diffs:
            return self._line(call, done, now, width)
        diff = DiffView(done.diffs)
        counts: list[Piece] = [("", " "), (GREEN, f"+{diff.added}"), ("", " "), (RED, f"-{diff.removed}")]
        return "\n".join([self._line(call, done, now, width, counts), *diff.rows(self._ink, width)])

    def abandon(self, now: float, width: int) -> list[str]:
        """The turn is over, and with it whatever had not ended; the lines to print."""
        left = [call for call in self._calls.values() if call.running]
        self._calls.clear()
        self._announced.clear()
        return [self._line(call, Outcome("cancelled", ""), now, width) for call in left]

    def past(self, kind: str, data: Any, now: float) -> None:
        """An event of the past: which calls run already when one comes to a session."""
        if kind == "tool/call":
            self.start(data["callId"], data["name"], data["arguments"], now)
        elif kind == "tool/result":
            self._calls.pop(data["message"]["content"][0]["toolCallId"], None)
        elif kind == "turn/end":
            self._calls.clear()

    def forget(self) -> None:
        """Another session comes."""
        self._calls.clear()
        self._announced.clear()

    # -- how it looks ---------------------------------------------------------------------------------------------

    def _line(self, call: Call, done: Outcome, now: float, width: int, counts: Sequence[Piece] = ()) -> str:
        """The line of a call that has ended."""
        ink, glyphs = self._ink, self._ink.glyphs
        sign, colour = {
            "done": (glyphs.done, GREEN),
            "failed": (glyphs.failed, RED),
            "cancelled": (glyphs.cancelled, YELLOW),
        }[done.state]
        words = list(counts)
        if done.state == "cancelled":
            words.append((YELLOW, f" {glyphs.dot} cancelled{' ' * bool(done.words)}{done.words}"))
        elif done.words:
            words.append((RED if done.state == "failed" else DIM, f" {glyphs.dot} {done.words}"))
        took = now - call.began
        time = f" {glyphs.dot} {duration(took)}" if took >= MOMENT and width >= NARROW else ""
        head = [("", "  " * call.depth), (colour, f"{sign} "), (CYAN, call.name)]
        about = f" {call.about}" if call.about else ""
        room = width - cells(time)
        left = room - sum(cells(text) for _, text in head)
        about = cut(about, max(left // 2, left - sum(cells(text) for _, text in words)), glyphs.ellipsis)
        return ink.row(room, *head, ("", about), *words) + ink(DIM, time)

    def begun(self, call: Call, width: int) -> str:
        """The line of a call that begins, where there is no live region."""
        about = f" {call.about}" if call.about else ""
        return self._ink.row(width, ("", "  " * call.depth), (CYAN, call.name), (DIM, about))

    def live(self, width: int, now: float) -> list[str]:
        """A row for each call that has not ended, the oldest first."""
        glyphs = self._ink.glyphs
        rows = [self._row(call, width, now) for call in list(self._calls.values())[:LIVE_ROWS]]
        more = len(self._calls) - len(rows)
        if more > 0:
            rows.append(self._ink.row(width, (DIM, f"{glyphs.ellipsis} {more} more run")))
        if self._announced:
            names = ", ".join(visible(name).replace("\n", " ") for name in self._announced.values())
            text = f"{glyphs.waiting} {counted(len(self._announced), 'call')} to come: {names}"
            rows.append(self._ink.row(width, (DIM, text)))
        return rows

    def _row(self, call: Call, width: int, now: float) -> str:
        spin = self._ink.spinner(now)
        head = [("", "  " * call.depth), (CYAN, f"{spin} {call.name}")]
        dot = self._ink.glyphs.dot
        if not call.running:
            return self._ink.row(width, *head, (DIM, f" {dot} being written, {size(call.size)}"))
        about = f" {call.about}" if call.about else ""
        return self._ink.fitted(width, head, ("", about), [(DIM, f" {dot} {elapsed(now - call.began)}")])
