"""A screen that remembers, a clock that is set by hand, and short ways to write events."""

from __future__ import annotations

import io
import json
import re
from typing import Any

from dsh.interfaces.display.cells import cells
from dsh.interfaces.terminal_text import Style
from dsh.interfaces.transcript import Transcript

SGR = re.compile(r"\x1b\[[0-9;]*m")
HIDDEN = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def plain(text: str) -> str:
    """Without colours."""
    return SGR.sub("", text)


class _Stream(io.StringIO):
    def __init__(self, encoding: str) -> None:
        super().__init__()
        self._encoding = encoding

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding


class RecordingScreen:
    """A screen with a live region. ``printed`` holds what stands above it for good."""

    live = True

    def __init__(self, width: int = 60, *, colour: bool = False, encoding: str = "utf-8") -> None:
        self.style = Style(_Stream(encoding))
        self.style.enabled = colour
        self.width = width
        self.printed: list[str] = []
        self.redraws = 0

    def print(self, text: str) -> None:
        self.printed.append(text)

    def write(self, text: str) -> None:
        raise AssertionError("a screen with a live region is given whole lines only")

    def changed(self) -> None:
        self.redraws += 1

    @property
    def text(self) -> str:
        """What stands above, without colours."""
        return plain("\n".join(self.printed))


class Session:
    """A transcript that is told events. ``now`` is the time, in seconds."""

    def __init__(self, width: int = 60, *, colour: bool = False, encoding: str = "utf-8") -> None:
        self.screen = RecordingScreen(width, colour=colour, encoding=encoding)
        self.now = 100.0
        self.transcript = Transcript(self.screen, lambda: self.now)

    def event(self, kind: str, **data: Any) -> None:
        """One event; ``turn`` and ``step`` are filled in."""
        self.transcript.event(kind, {"turn": 1, "step": 1, **data})

    def chunk(self, kind: str, **chunk: Any) -> None:
        """A piece of the model's stream."""
        self.event("assistant/chunk", chunk={"type": kind, "index": 0, **chunk})

    def says(self, *pieces: str) -> None:
        """The model streams an answer, which is not ended."""
        for piece in pieces:
            self.chunk("text-delta", text=piece)

    def thinks(self, *pieces: str) -> None:
        """The model streams reasoning, which is not ended."""
        for piece in pieces:
            self.chunk("reasoning-delta", text=piece)

    def user(self, text: str, id: str = "m") -> None:
        """A prompt enters."""
        self.event("user/message", **message(text, id))

    def call(self, id: str, name: str, **arguments: Any) -> None:
        """A tool call begins."""
        self.event("tool/call", callId=id, name=name, arguments=json.dumps(arguments))

    def result(self, id: str, text: str, *, failed: bool = False, **more: Any) -> None:
        """A tool call ends."""
        block = {"type": "tool-result", "toolCallId": id, "isError": failed, "content": [text_block(text)]}
        self.event("tool/result", message={"content": [block], "source": {"kind": "tool", "callId": id}}, **more)

    def ends(self, **reason: Any) -> None:
        """The turn ends, completed unless said otherwise."""
        self.event("turn/end", reason=reason or {"kind": "completed"})

    @property
    def text(self) -> str:
        """What stands above the live region, without colours."""
        return self.screen.text

    def live(self, width: int | None = None) -> str:
        """The live region, without colours."""
        width = self.screen.width if width is None else width
        rows = [plain(row) for row in self.transcript.live(width)]
        assert all(cells(row) <= width for row in rows), (width, rows)
        return "\n".join(rows)

    def status(self, width: int | None = None) -> str:
        """The status line, without colours."""
        return plain(self.transcript.status(self.screen.width if width is None else width))


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def message(text: str, id: str = "m", kind: str = "user") -> dict[str, Any]:
    """A message as it stands in a log."""
    return {"id": id, "role": "user", "source": {"kind": kind}, "content": [text_block(text)]}
