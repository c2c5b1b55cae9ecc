"""A real pseudo-terminal for tests: starts any command on it, types, resizes, and reads the screen as a person would.

What the command writes goes through a terminal emulator (`pyte`), so that `picture` is what stands on the screen and
in its scrollback now, while `screen` is everything that was ever written, without escape sequences.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import re
import struct
import termios
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pyte
from pyte.screens import StaticDefaultDict

from tests.cli.kit import PYTHON, Place

# The child makes the terminal its own, so that Ctrl-C becomes a signal as it does in a real one.
TAKE_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)
ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\x1b\][^\x07]*\x07")
COLOUR = re.compile(r"\x1b\[(?:[0-9;]*;)?(?:[34][0-9]|9[0-7]|10[0-7])(?:;[0-9;]*)?m")
"""A sequence that gives text a colour."""

SECONDS = 30.0
"""How long something may take to appear: a bound against hangs, not a measurement."""

SCROLLBACK = 5000

UP, DOWN, RIGHT, LEFT = "\x1b[A", "\x1b[B", "\x1b[C", "\x1b[D"
CTRL_C, CTRL_D, CTRL_J, ALT_ENTER = "\x03", "\x04", "\n", "\x1b\r"


class _Screen(pyte.HistoryScreen):
    """Keeps what a lower window pushes out, and answers what programs ask a terminal."""

    answer: Callable[[str], None]
    reflows = False
    """Break rows that are too long for a narrower window anew, as most terminals do; otherwise they are cut."""

    def resize(self, lines: int | None = None, columns: int | None = None) -> None:
        """Rows that no longer fit go to the scrollback, as far as the cursor needs the room."""
        lines, columns = lines or self.lines, columns or self.columns
        rows = [*self.history.top, *(self.buffer[y] for y in range(self.lines))]
        at = len(self.history.top) + self.cursor.y
        last = max([at, *(n for n, row in enumerate(rows) if _length(row))])
        found: list[Any] = []
        for n, row in enumerate(rows[: last + 1]):
            if n == at:
                cursor = (len(found) + self.cursor.x // columns, self.cursor.x % columns)
            parts = max(1, -(-_length(row) // columns)) if self.reflows else 1
            for part in range(parts):
                kept = StaticDefaultDict(self.default_char)
                kept.update({x - part * columns: row[x] for x in row if 0 <= x - part * columns < columns})
                found.append(kept)
        if not self.reflows:
            cursor = (at, min(self.cursor.x, columns - 1))
        stays = max(0, len(found) - lines) if self.reflows else len(self.history.top)
        above = max(stays, cursor[0] - lines + 1)
        self.history.top.clear()
        self.history.top.extend(found[:above])
        self.buffer.clear()
        self.buffer.update(dict(enumerate(found[above : above + lines])))
        self.lines, self.columns = lines, columns
        self.set_margins()
        self.cursor.y, self.cursor.x = cursor[0] - above, cursor[1]
        self.dirty.update(range(lines))

    def write_process_input(self, data: str) -> None:
        self.answer(data)


def _length(row: Any) -> int:
    return max((x for x in row if row[x].data != " "), default=-1) + 1


class Terminal:
    """A child behind a pseudo-terminal, and everything it showed."""

    def __init__(self, fd: int, process: asyncio.subprocess.Process, rows: int, columns: int, began: float) -> None:
        self.fd = fd
        self.process = process
        self.raw = ""
        self.first_output: float | None = None
        """Seconds from before the process was started to its first visible character."""
        self._began = began
        self._modes = termios.tcgetattr(fd)
        self._screen = _Screen(columns, rows, history=SCROLLBACK, ratio=0.5)
        self._screen.answer = self.type
        self._stream = pyte.ByteStream(self._screen)
        self._news = asyncio.Event()
        self._partial = b""
        asyncio.get_running_loop().add_reader(fd, self.read)

    # -- what is shown --------------------------------------------------------------------------------------------

    def screen(self) -> str:
        """Everything that was ever written, in order, also what was drawn over since."""
        return ANSI.sub("", self.raw).replace("\r", "")

    def screen_since(self, written: int) -> str:
        """The same of what was written after the first ``written`` characters of `raw`."""
        return ANSI.sub("", self.raw[written:]).replace("\r", "")

    def visible(self) -> list[str]:
        """The rows of the window now."""
        return [row.rstrip() for row in self._screen.display]

    def picture(self) -> str:
        """Scrollback and window as they are now, without empty rows at the end."""
        columns = self._screen.columns
        above = ["".join(line[x].data for x in range(columns)).rstrip() for line in self._screen.history.top]
        return "\n".join([*above, *self.visible()]).rstrip("\n")

    def style_of(self, text: str) -> Any:
        """The character cell where `text` begins in the window: its colours and attributes. Raises LookupError."""
        for y, row in enumerate(self._screen.display):
            if (x := row.find(text)) >= 0:
                return self._screen.buffer[y][x]
        raise LookupError(text)

    @property
    def cursor(self) -> tuple[int, int]:
        """Row and column of the cursor in the window, from 0."""
        return self._screen.cursor.y, self._screen.cursor.x

    async def shows(self, text: str, seconds: float = SECONDS) -> None:
        """Wait until ``text`` appeared, at whatever moment."""
        await self.until(lambda: text in self.screen() or text in self.picture(), f"{text!r} never appeared", seconds)

    async def stands(self, text: str, seconds: float = SECONDS) -> None:
        """Wait until ``text`` stands in the window or above it."""
        await self.until(lambda: text in self.picture(), f"{text!r} does not stand there", seconds)

    async def gone(self, text: str, seconds: float = SECONDS) -> None:
        """Wait until ``text`` stands nowhere in the window."""
        await self.until(lambda: text not in "\n".join(self.visible()), f"{text!r} is still there", seconds)

    async def until(self, wanted: Callable[[], bool], complaint: str, seconds: float = SECONDS) -> None:
        """Wait until ``wanted()``; looks again whenever something was written."""
        end = time.monotonic() + seconds
        self.read()
        while not wanted():
            left = end - time.monotonic()
            assert left > 0, f"{complaint} in:\n{self.picture()}\n-- all of it:\n{self.screen()}"
            self._news.clear()
            try:
                await asyncio.wait_for(self._news.wait(), min(left, 0.2))
            except TimeoutError:
                pass
            self.read()

    def read(self) -> None:
        """Take what the child has written so far."""
        try:
            data = os.read(self.fd, 65536)
        except BlockingIOError:
            return
        except OSError:  # the child has closed its side
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self.fd)
            self._news.set()
            return
        text = (self._partial + data).decode("utf-8", "surrogateescape")
        # A character cut by the end of the chunk waits for its rest.
        cut = next((n for n in (3, 2, 1) if len(text) >= n and text[-n:].encode("utf-8", "surrogateescape")[0] >= 0xC0
                    and all("\udc80" <= c <= "\udcff" for c in text[-n:])), 0)  # fmt: skip
        self._partial = text[len(text) - cut :].encode("utf-8", "surrogateescape") if cut else b""
        text = text[: len(text) - cut] if cut else text
        self.raw += text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        self._stream.feed(data)
        if self.first_output is None and self.screen().strip():
            self.first_output = time.monotonic() - self._began
        self._news.set()

    # -- what a person does ---------------------------------------------------------------------------------------

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self.fd, text.encode())

    async def enter(self, line: str, *wanted: str) -> None:
        """Send a line, and wait until each of these texts stands there."""
        self.type(f"{line}\r")
        for text in wanted:
            await self.stands(text)

    async def feed(self, text: str, seconds: float = SECONDS) -> None:
        """Press many keys, as fast as they are taken."""
        rest = text.encode()

        def written() -> bool:
            nonlocal rest
            try:
                rest = rest[os.write(self.fd, rest[:4096]) :]
            except BlockingIOError:
                pass
            return not rest

        await self.until(written, "the keys are not taken", seconds)

    def paste(self, text: str) -> None:
        """Paste, as a terminal does for a program that asked to be told of it."""
        self.type(f"\x1b[200~{text}\x1b[201~")

    def resize(self, rows: int, columns: int) -> None:
        """Give the window another size; the child gets SIGWINCH."""
        self.read()
        self._screen.resize(rows, columns)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def reflow(self, wanted: bool) -> None:
        """Whether rows are broken anew in a narrower window."""
        self._screen.reflows = wanted

    async def ends(self, seconds: float = 20.0) -> int:
        """The exit code, once the child has ended and left the terminal as it found it."""
        await self.until(lambda: self.process.returncode is not None, "still running", seconds)
        self.read()
        assert termios.tcgetattr(self.fd) == self._modes
        code = self.process.returncode
        assert code is not None
        return code


@asynccontextmanager
async def on_terminal(
    *command: str,
    cwd: Path,
    env: dict[str, str],
    rows: int = 40,
    columns: int = 120,
    term: str = "xterm-256color",
) -> AsyncIterator[Terminal]:
    """Any command on a pseudo-terminal of this size; killed at the end of the block if still there."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    os.set_blocking(master, False)
    began = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        PYTHON, "-S", "-c", TAKE_TERMINAL, *command,
        cwd=cwd, env={**env, "TERM": term},
        stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
    )  # fmt: skip
    os.close(slave)
    terminal = Terminal(master, process, rows, columns, began)
    try:
        yield terminal
    finally:
        asyncio.get_running_loop().remove_reader(master)
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(master)


@asynccontextmanager
async def console(
    place: Place, *arguments: str, command: str = "run", rows: int = 40, columns: int = 120, reflows: bool = False
) -> AsyncIterator[Terminal]:
    """A `dsh` command of a place on a pseudo-terminal; ``reflows``: one that breaks rows anew when made narrower."""
    whole = (PYTHON, "-m", "dsh.cli.main", command, *arguments)
    env = {name: value for name, value in place.env.items() if name not in ("STY", "TMUX")}
    env |= {"VTE_VERSION": "7600"} if reflows else {}
    async with on_terminal(*whole, cwd=place.work, env=env, rows=rows, columns=columns) as terminal:
        terminal.reflow(reflows)
        yield terminal
