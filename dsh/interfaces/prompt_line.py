"""A prompt at the bottom of a terminal that takes input at any time, with everything else appearing above it.

What is still going on, its live region, is drawn as part of the prompt; what is finished is printed above for good.
"""

from __future__ import annotations

import asyncio
import io
import shutil
import sys
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TextIO

from .display.cells import wrapped
from .terminal_modes import hold_keys
from .terminal_text import Style

if TYPE_CHECKING:
    from .completion import Completion
    from .history import InputHistory
    from .prompt_app import PromptApp
    from .screen import Region

INTERRUPTED: Final = "\x03"
"""What `PromptLine.lines` yields for a Ctrl-C that came while earlier lines had not been acted on."""


class PromptLine:
    """A screen with an input line. interrupted: called for each Ctrl-C; True when it needs no further answer.

    ``waiting``: rows that say what waits, drawn above the input; ``keys``: what further keys do, by prompt_toolkit's
    names; ``typed_ahead``: keys pressed before there was a prompt; ``history`` and ``completion`` may be left out;
    ``sent``: told each text when it is sent, and None when nothing more comes.
    """

    live = True

    def __init__(self, interrupted: Callable[[], bool]) -> None:
        self.style = Style(sys.stdout)
        self.interrupted = interrupted
        self.region: Region | None = None
        self.waiting: Callable[[], Sequence[str]] = tuple
        self.keys: dict[str, Callable[[], None]] = {}
        self.typed_ahead: list[str] = []
        self.history: InputHistory | None = None
        self.completion: Completion | None = None
        self.sent: Callable[[str | None], None] = lambda text: None
        self._stream = sys.stdout
        self._app: PromptApp | None = None
        self._sent: deque[str | None] = deque()
        self._news = asyncio.Event()
        self._default = ""
        self._left: str | None = None

    # -- output ---------------------------------------------------------------------------------------------------

    @property
    def width(self) -> int:
        """See `Screen`."""
        if self._app is not None:
            return self._app.output.get_size().columns
        return shutil.get_terminal_size().columns

    def print(self, text: str) -> None:
        """See `Screen`."""
        if self._app is not None:
            self._app.print(text)
        else:
            self._stream.write(text + "\n")
            self._stream.flush()

    def write(self, text: str) -> None:
        """See `Screen`."""

    def say(self, text: str) -> None:
        """Print whole lines of others, broken at words where the screen ends."""
        rows: list[str] = []
        for line in text.split("\n"):
            rows += wrapped(line, max(1, self.width)) if line.isprintable() else [line]
        self.print("\n".join(rows))

    def changed(self) -> None:
        """See `Screen`."""
        if self._app is not None:
            self._app.app.invalidate()

    # -- input ----------------------------------------------------------------------------------------------------

    async def lines(self) -> AsyncGenerator[str, None]:
        """What is typed and sent, as it was typed, until Ctrl-D or `leave`."""
        from .prompt_app import PromptApp

        self._sent.clear()
        self._left = None
        self._app = app = PromptApp(self, self._send)
        app.buffer.insert_text(self._default)
        give_back, typed = hold_keys()
        app.press("".join([*self.typed_ahead, typed]))
        self.typed_ahead.clear()
        running = asyncio.create_task(app.run(), name="prompt line")
        running.add_done_callback(lambda _: self._send(None))
        try:
            with _above(self):
                while True:
                    while not self._sent:
                        self._news.clear()
                        await self._news.wait()
                    if (text := self._sent.popleft()) is None:
                        break
                    yield text
                await running
        finally:
            app.leave()
            try:
                await asyncio.wait({running})
            finally:
                self._app = None
                self._left = app.buffer.text
                self._keep(self._left)
                give_back()

    def give_back(self, text: str) -> None:
        """Put a text that could not be used in front of the person again, before what is typed by now.

        Where no line is left for it, it goes into the history.
        """
        if self._app is None:
            self._default = text
            if self._left is not None:
                self._keep(text)
            return
        buffer = self._app.buffer
        buffer.text = text if not buffer.text else f"{text}\n{buffer.text}"
        buffer.cursor_position = len(buffer.text)

    def _keep(self, draft: str) -> None:
        if draft.strip() and self.history is not None:
            self.history.add(draft)

    @property
    def unread(self) -> list[str]:
        """What was sent and `lines` has not yielded yet."""
        return [text for text in self._sent if text is not None]

    @property
    def interrupt_follows(self) -> bool:
        """Whether the next that `lines` yields is `INTERRUPTED`."""
        return bool(self._sent) and self._sent[0] == INTERRUPTED

    def interrupt_later(self) -> None:
        """Let `lines` yield `INTERRUPTED` behind what was sent by now."""
        self._send(INTERRUPTED)

    def _send(self, text: str | None) -> None:
        self._sent.append(text)
        self._news.set()
        self.sent(text)

    @property
    def typed(self) -> str:
        """What stands in the input line, or stood there when it ended."""
        return self._left or "" if self._app is None else self._app.buffer.text

    def leave(self) -> None:
        """End `lines`."""
        if self._app is not None:
            self._app.leave()


class _Above(io.TextIOBase):
    """Takes the place of a standard stream: whole lines written to it, by any thread, appear above the prompt."""

    def __init__(self, stream: TextIO, show: Callable[[str], None]) -> None:
        self._stream = stream
        self._show = show
        self._open = ""
        self._lock = threading.Lock()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    def write(self, text: str) -> int:
        with self._lock:
            lines, newline, rest = text.rpartition("\n")
            if not newline:
                self._open += text
                return len(text)
            lines, self._open = self._open + lines, rest
        if threading.get_ident() == self._thread:
            self._show(lines)
        else:
            self._loop.call_soon_threadsafe(self._show, lines)
        return len(text)

    def rest(self) -> str:
        """The line that was begun and not ended."""
        return self._open

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """As of the stream it stands for."""
        return self._stream.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        """As of the stream it stands for."""
        return self._stream.errors


@contextmanager
def _above(line: PromptLine) -> Iterator[None]:
    out, err = sys.stdout, sys.stderr
    ours = [_Above(out, line.say), _Above(err, line.say)]
    sys.stdout, sys.stderr = ours
    try:
        yield
    finally:
        sys.stdout, sys.stderr = out, err
        for each in ours:
            if rest := each.rest():
                line.say(rest)
