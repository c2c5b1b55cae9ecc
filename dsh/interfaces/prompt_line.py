"""A prompt at the bottom of a terminal that takes input at any time, with everything else appearing above it.

The line that is still being streamed is drawn as part of the prompt; once complete it is printed above for good.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from .terminal_text import Style

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

LIVE_ROWS: Final = 8
"""Rows of the terminal that an unfinished line may take; of a longer one the end is shown."""


class PromptLine:
    """A screen with an input line. interrupted: called for each Ctrl-C; True when it needs no further answer."""

    def __init__(self, interrupted: Callable[[], bool]) -> None:
        self.style = Style(sys.stdout)
        self._interrupted = interrupted
        self._stream = sys.stdout
        self._session: PromptSession[str] | None = None
        self._open = ""
        self._complete = ""
        self._default = ""

    # -- output ---------------------------------------------------------------------------------------------------

    def write(self, text: str) -> None:
        """See `Screen`."""
        lines, newline, rest = text.rpartition("\n")
        if newline:
            self._complete += self._open + lines + newline
            self._open = rest
        else:
            self._open += text
        self._show()

    def line(self, text: str) -> None:
        """See `Screen`."""
        self.close_line()
        self.write(text + "\n")

    def close_line(self) -> None:
        """See `Screen`."""
        if self._open:
            self.write("\n")

    def _show(self) -> None:
        app = self._session.app if self._session is not None else None
        if app is None or not app.is_running:
            if self._complete:  # an unfinished line waits for the prompt that draws it, or for its end
                self._stream.write(self._complete)
                self._stream.flush()
                self._complete = ""
        else:
            if self._complete:
                # Without leaving the raw mode in which keys are read: one typed meanwhile must not become a signal.
                app.renderer.erase()
                app.output.write_raw(self._complete.replace("\n", "\r\n"))
                app.output.flush()
                app.renderer.reset()
                self._complete = ""
            app.invalidate()

    # -- input ----------------------------------------------------------------------------------------------------

    async def lines(self) -> AsyncGenerator[str, None]:
        """What is typed, line by line, until Ctrl-D or `leave`."""
        from prompt_toolkit import PromptSession
        from prompt_toolkit.patch_stdout import patch_stdout

        session: PromptSession[str] = PromptSession(message=self._message, key_bindings=self._keys())
        session.app.min_redraw_interval = 0.03
        self._session = session
        try:
            with _kept_input(session.app.input.fileno()), patch_stdout(raw=True):
                while True:
                    default, self._default = self._default, ""
                    yield (await session.prompt_async(default=default, handle_sigint=False)).strip()
        except EOFError:
            return
        finally:
            self._session = None
            if self._open:
                self.write("\n")

    def give_back(self, text: str) -> None:
        """Put a line that could not be used in front of the person again."""
        self._default = text

    def leave(self) -> bool:
        """End `lines`; False when that cannot be, for no prompt is there just now."""
        if self._session is None or not self._session.app.is_running:
            return False
        self._session.app.exit(exception=EOFError)
        return True

    def _keys(self) -> Any:
        from prompt_toolkit.key_binding import KeyBindings

        keys = KeyBindings()

        @keys.add("c-c")
        def interrupt(event: Any) -> None:
            buffer = event.app.current_buffer
            if buffer.text and not self._interrupted():
                buffer.reset()
            elif not buffer.text:
                self._interrupted()

        return keys

    def _message(self) -> Any:
        """The prompt, below the unfinished line; that one is left out of what a sent line leaves behind."""
        from prompt_toolkit.application import get_app
        from prompt_toolkit.formatted_text import ANSI, to_formatted_text
        from prompt_toolkit.utils import get_cwidth

        app = get_app()
        if not self._open or app.is_done:
            return "> "
        width = max(10, app.output.get_size().columns - 1)
        rows: list[list[tuple[str, str]]] = [[]]
        used = 0
        for style, text, *_ in to_formatted_text(ANSI(self._open[-4 * LIVE_ROWS * width :])):
            for character in text:
                cells = get_cwidth(character)
                if used + cells > width:
                    rows.append([])
                    used = 0
                rows[-1].append((style, character))
                used += cells
        return [piece for row in rows[-LIVE_ROWS:] for piece in (*row, ("", "\n"))] + [("", "> ")]


@contextmanager
def _kept_input(fd: int) -> Iterator[None]:
    """A terminal that keeps what is typed between two prompts for the next one; Ctrl-C stays a signal there.

    In its usual mode it would show that text itself, and throw it away at a Ctrl-C.
    """
    import termios

    try:
        before = termios.tcgetattr(fd)
    except termios.error:  # no terminal
        yield
        return
    kept = termios.tcgetattr(fd)
    kept[3] = kept[3] & ~(termios.ICANON | termios.ECHO) | termios.NOFLSH
    termios.tcsetattr(fd, termios.TCSANOW, kept)
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSANOW, before)
