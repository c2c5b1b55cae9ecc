"""A session's events as a person reads them: prompts, streamed answers, one line for each tool call and its result."""

from __future__ import annotations

from typing import Any

from dsh.llm.content import text_of

from .outcome import end_name
from .screen import Screen
from .terminal_text import one_line, printable


class Transcript:
    """Shows events on a screen. typed: prompts that were typed on it, so that they are not shown a second time."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._style = screen.style
        self.typed: list[str] = []
        self._open = ""

    # -- the live region ------------------------------------------------------------------------------------------

    @property
    def ticking(self) -> bool:
        """See `Region`."""
        return False

    def live(self, width: int) -> list[str]:
        """See `Region`."""
        tail = self._open[-4 * width :]
        return [tail[at : at + width // 2] for at in range(0, len(tail), max(1, width // 2))][-8:]

    def status(self, width: int) -> str:
        """See `Region`."""
        return ""

    # -- what happened --------------------------------------------------------------------------------------------

    def event(self, kind: str, data: Any) -> None:
        """Show one event, if it is one for people."""
        if kind == "assistant/chunk":
            self._chunk(data["chunk"])
        elif kind == "user/message":
            self._user(data)
        elif kind == "tool/call":
            shown = one_line(data["arguments"])
            self._line(f"{self._style('36', printable(data['name']))} {self._style('2', shown)}")
        elif kind == "tool/result":
            block = data["message"]["content"][0]
            first = one_line(text_of(block["content"])) or "(no text)"
            self._line("  " + self._style("31" if block.get("isError") else "2", first))
        elif kind == "llm/retry":
            self.note(f"retry {data['retry']} in {data['delayMs'] / 1000:.1f} s: {data['failure']['message']}", "33")
        elif kind == "turn/end":
            self._turn_end(data["reason"])

    def message(self, kind: str, data: Any) -> None:
        """Show a message of the past as a whole: the data of a `user/message` or `assistant/message`."""
        message = data if kind == "user/message" else data["message"]
        if text := text_of(message["content"]):
            self.note(("> " if kind == "user/message" else "") + text)

    def note(self, text: str, colour: str = "2") -> None:
        """A line about what happens."""
        self._line(self._style(colour, printable(text)))

    def error(self, text: str) -> None:
        """A line about what went wrong."""
        self.note(text, "31")

    def _chunk(self, chunk: Any) -> None:
        if chunk["type"] == "text-delta":
            self._stream("", printable(chunk["text"]))
        elif chunk["type"] == "reasoning-delta":
            self._stream("2", printable(chunk["text"]))
        elif chunk["type"] == "block-end":
            self._close()

    def _stream(self, colour: str, text: str) -> None:
        if not self._screen.live:
            self._screen.write(self._style(colour, text) if colour else text)
            return
        lines, newline, rest = text.rpartition("\n")
        if newline:
            self._screen.print(self._style(colour or "0", self._open + lines))
            self._open = rest
        else:
            self._open += text
        self._screen.changed()

    def _line(self, text: str) -> None:
        self._close()
        self._screen.print(text)

    def _close(self) -> None:
        if self._open:
            open_line, self._open = self._open, ""
            self._screen.print(open_line)

    def _user(self, message: Any) -> None:
        text = text_of(message["content"])
        if text in self.typed:
            self.typed.remove(text)
        elif message["source"]["kind"] == "user" and text:
            self._line(self._style("1", printable(f"> {text}")))

    def _turn_end(self, reason: Any) -> None:
        self._close()
        self.typed.clear()  # one that is left was taken back; the same text may come from somebody else
        name = end_name(reason)
        if name == "error":
            error = reason["error"]
            self.error(f"{error['code']}: {error['message']}")
        elif name != "completed":
            self.note(f"turn ended: {name}", "33")
