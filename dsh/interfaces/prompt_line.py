"""A prompt at the bottom of a terminal that takes input at any time, with everything else appearing above it.

What is still going on, its live region, is drawn as part of the prompt; what is finished is printed above for good.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .screen import Region
from .terminal_text import Style

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession


class PromptLine:
    """A screen with an input line. interrupted: called for each Ctrl-C; True when it needs no further answer."""

    def __init__(self, interrupted: Callable[[], bool]) -> None:
        self.style = Style(sys.stdout)
        self._interrupted = interrupted
        self._stream = sys.stdout
        self._session: PromptSession[str] | None = None
        self.region: Region | None = None
        self._default = ""

    # -- output ---------------------------------------------------------------------------------------------------

    @property
    def live(self) -> bool:
        """See `Screen`."""
        return True

    @property
    def width(self) -> int:
        """See `Screen`."""
        if self._session is not None:
            return self._session.app.output.get_size().columns
        return shutil.get_terminal_size().columns

    def print(self, text: str) -> None:
        """See `Screen`."""
        app = self._session.app if self._session is not None else None
        if app is None or not app.is_running:
            self._stream.write(text + "\n")
            self._stream.flush()
            return
        # Without leaving the raw mode in which keys are read: one typed meanwhile must not become a signal.
        app.renderer.erase()
        app.output.write_raw((text + "\n").replace("\n", "\r\n"))
        app.output.flush()
        app.renderer.reset()
        app.invalidate()

    def write(self, text: str) -> None:
        """See `Screen`."""

    def changed(self) -> None:
        """See `Screen`."""
        if self._session is not None and self._session.app.is_running:
            self._session.app.invalidate()

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
        """The prompt, below the live region; that one is left out of what a sent line leaves behind."""
        from prompt_toolkit.application import get_app
        from prompt_toolkit.formatted_text import ANSI, to_formatted_text

        app = get_app()
        if self.region is None or app.is_done:
            return "> "
        rows = self.region.live(max(1, app.output.get_size().columns - 1))
        return [*to_formatted_text(ANSI("".join(row + "\n" for row in rows))), ("", "> ")]


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
