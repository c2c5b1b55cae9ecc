"""The process's real standard input as chunks of bytes, kept away from plugins and child processes."""

from __future__ import annotations

import asyncio
import os
import select
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable

CHUNK_BYTES = 64 * 1024

CHUNKS_AHEAD = 16
"""How many chunks are read before somebody takes them; a client that writes faster waits in its own write."""


class ByteInput:
    """The bytes of one file descriptor, read by a thread: pipes, files, sockets and terminals alike.

    Iterate over it with ``async for``; it ends at the end of the input. A later iteration goes on where an earlier
    one stopped.
    """

    def __init__(self, fd: int, *, close: Callable[[], None] | None = None) -> None:
        self._fd = fd
        self._close = close
        self._chunks: deque[bytes] = deque()
        self._arrived = asyncio.Event()
        self._room = threading.Semaphore(CHUNKS_AHEAD)
        self._ended = False
        self.is_empty = True
        """Whether nothing has come so far."""
        self._on_end: Callable[[], None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._wake: tuple[int, int] | None = None

    def start(self, on_end: Callable[[], None] | None = None) -> None:
        """Begin to read in the running event loop; ``on_end`` is called there once the input is over."""
        self._on_end = on_end or self._on_end
        if self._thread is None:
            self._loop = asyncio.get_running_loop()
            self._wake = os.pipe()
            self._thread = threading.Thread(target=self._run, name="stdin", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop reading."""
        if self._wake is None:
            return
        os.write(self._wake[1], b"x")
        self._room.release()
        if self._thread is not None:
            self._thread.join()
        for fd in self._wake:
            os.close(fd)
        self._wake = None
        if self._close is not None:
            self._close()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self.start()
        while True:
            while self._chunks:
                chunk = self._chunks.popleft()
                self._room.release()
                yield chunk
            if self._ended:
                return
            self._arrived.clear()
            await self._arrived.wait()

    def _take(self, chunk: bytes) -> None:
        self._arrived.set()
        if chunk:
            self.is_empty = False
            self._chunks.append(chunk)
            return
        self._ended = True
        if self._on_end is not None:
            self._on_end()

    def _run(self) -> None:
        assert self._loop is not None and self._wake is not None
        wake = self._wake[0]
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        poll.register(wake, select.POLLIN)
        chunk = b"x"
        while chunk:
            self._room.acquire()
            if any(fd == wake for fd, _ in poll.poll()):
                return
            try:
                chunk = os.read(self._fd, CHUNK_BYTES)
            except BlockingIOError:  # somebody shares the descriptor and was faster
                self._room.release()
                continue
            except OSError:  # such as a terminal that went away
                chunk = b""
            try:
                self._loop.call_soon_threadsafe(self._take, chunk)
            except RuntimeError:  # the loop is closed
                return


def claim_stdin() -> ByteInput:
    """Take standard input for protocol lines; plugins and children read an empty file from now on."""
    fd = os.dup(0)
    os.set_inheritable(fd, False)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)

    def give_back() -> None:
        os.dup2(fd, 0)
        os.close(fd)

    return ByteInput(fd, close=give_back)


async def stdin_chunks() -> AsyncIterator[bytes]:
    """Chunks of the real standard input until its end. Leaving the iteration gives standard input back."""
    source = claim_stdin()
    try:
        async for chunk in source:
            yield chunk
    finally:
        source.close()
