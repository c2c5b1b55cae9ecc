"""The process's real standard output, kept for machine-readable lines alone."""

from __future__ import annotations

import atexit
import errno
import os
import queue
import select
import sys
import threading
from contextlib import suppress
from typing import Any

from dsh.cordis.jsonio import encode


class LineOutput:
    """Writes whole lines to one file descriptor from its own thread, in order.

    A slow reader delays the lines, never the event loop. A closed pipe ends the output silently; :attr:`broken`
    tells, and :attr:`failure` what else ended it (a full disk).
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self.broken = False
        self.failure: OSError | None = None

    def write(self, text: str) -> None:
        """Write ``text`` as it is, with lone surrogates replaced."""
        self._put(text.encode("utf-8", errors="replace"))

    def write_json(self, value: Any) -> None:
        """Write one JSON value and a line feed."""
        self._put(encode(value) + b"\n")

    def close(self, timeout: float = 5.0) -> None:
        """Wait up to ``timeout`` seconds until everything is written."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(timeout)

    def _put(self, data: bytes) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="stdout", daemon=True)
            self._thread.start()
        self._queue.put(data)

    def _run(self) -> None:
        while (data := self._queue.get()) is not None:
            view = memoryview(data)
            while view and not self.broken:
                try:
                    view = view[os.write(self._fd, view) :]
                except BlockingIOError:  # whoever started us made the pipe non-blocking
                    select.select([], [self._fd], [])
                except OSError as error:
                    self.broken = True
                    self.failure = None if error.errno == errno.EPIPE else error


def say(text: str) -> None:
    """One line for a person on standard error; one that cannot be written stops nothing."""
    with suppress(OSError, ValueError):
        print(f"dsh: {text}", file=sys.stderr, flush=True)


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
