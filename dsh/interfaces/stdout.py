"""The process's real standard output, kept for machine-readable lines alone."""

from __future__ import annotations

import atexit
import errno
import os
import queue
import select
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from dsh.cordis.errors import describe_error
from dsh.cordis.jsonio import encode

from .log_lines import logged
from .terminal_text import printable

BATCH_BYTES = 64 * 1024
"""Lines that wait together are written together, up to about this many bytes."""


class LineOutput:
    """Writes whole lines to one file descriptor from its own thread, in order.

    A slow reader delays the lines, never the event loop. What it has not read yet waits in memory, without a limit of
    its own: events, of which many may wait, are given as functions (:meth:`write_later`), so that only a reference to
    the log waits and the line is made when its turn comes. A closed pipe ends the output silently; :attr:`broken`
    tells, and :attr:`failure` what else ended it (a full disk).
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._queue: queue.SimpleQueue[bytes | Callable[[], bytes] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self.broken = False
        self.failure: OSError | None = None
        self.concluded = False
        """The line that ends a run's output has been written."""

    def write(self, text: str) -> None:
        """Write ``text`` as it is, with lone surrogates replaced; to a terminal without control characters."""
        if os.isatty(self._fd):
            text = printable(text)
        self._put(text.encode("utf-8", errors="replace"))

    def write_json(self, value: Any) -> None:
        """Write one JSON value and a line feed."""
        self._put(encode(value) + b"\n")

    def write_line(self, line: bytes) -> None:
        """Write an encoded line that has its line feed already."""
        self._put(line)

    def write_later(self, line: Callable[[], bytes]) -> None:
        """Write what ``line()`` returns, a whole line with its line feed, asked for when the reader has room for it.

        It is called in another thread, so it may only read what never changes. A line that fails is left out and
        named on standard error.
        """
        self._put(line)

    def close(self, timeout: float = 5.0) -> None:
        """Wait up to ``timeout`` seconds until everything is written."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(timeout)

    def _put(self, data: bytes | Callable[[], bytes]) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="stdout", daemon=True)
            self._thread.start()
        self._queue.put(data)

    def _run(self) -> None:
        more = True
        while more:
            batch = bytearray()
            more = self._take(batch, self._queue.get())
            while more and len(batch) < BATCH_BYTES:
                try:
                    more = self._take(batch, self._queue.get_nowait())
                except queue.Empty:
                    break
            self._write(batch)

    def _take(self, batch: bytearray, item: bytes | Callable[[], bytes] | None) -> bool:
        """Add a line to the batch; False for the mark that ends the output."""
        if item is None:
            return False
        if isinstance(item, bytes):
            batch += item
        elif not self.broken:
            try:
                batch += item()
            except Exception as error:
                say(f"a line of output is left out: {describe_error(error)}")
        return True

    def _write(self, batch: bytearray) -> None:
        view = memoryview(batch)
        while view and not self.broken:
            try:
                view = view[os.write(self._fd, view) :]
            except BlockingIOError:  # whoever started us made the pipe non-blocking
                select.select([], [self._fd], [])
            except OSError as error:
                self.broken = True
                self.failure = None if error.errno == errno.EPIPE else error


def say(text: str) -> None:
    """One line for a person on standard error, without control characters; if it cannot be written, nothing stops.

    A JSON line where the log is one for programs.
    """
    if logged(printable(text)):
        return
    with suppress(OSError, ValueError):
        print(f"dsh: {printable(text)}", file=sys.stderr, flush=True)


def claim_stdout() -> LineOutput:
    """Take standard output for protocol lines; prints of plugins and children go to standard error from now on."""
    sys.stdout.flush()
    fd = os.dup(1)
    os.set_inheritable(fd, False)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    output = LineOutput(fd)
    atexit.register(output.close, 0.5)  # also when the launcher has to leave without unloading
    return output
