"""The two ends of a child's pipes, driven by the event loop without a transport in between."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable

from .service import ProcessInput

_READ_SIZE = 1 << 16
_HELD = 1 << 20
"""What a pipe of the largest size holds."""


class PipeReader(asyncio.ReadTransport):
    """Reads a pipe and hands the bytes to `feed`; `ended` is called once, at end of stream or `close`.

    It is a transport only so far as `asyncio.StreamReader` needs one for back-pressure.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, fd: int, feed: Callable[[bytes], None], ended: Callable[[], None]
    ) -> None:
        super().__init__()
        self._loop = loop
        self._fd: int | None = fd
        self._feed = feed
        self._ended = ended
        os.set_blocking(fd, False)
        loop.add_reader(fd, self._read)

    def _read(self) -> None:
        if self._fd is None:
            return
        try:
            data = os.read(self._fd, _READ_SIZE)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if data:
            self._feed(data)
        else:
            self.close()

    def close(self) -> None:
        """Stop reading, whether or not the other end is still open."""
        if self._fd is None:
            return
        fd, self._fd = self._fd, None
        self._loop.remove_reader(fd)
        os.close(fd)
        self._ended()

    def drain(self) -> None:
        """Take what the pipe holds right now without waiting for more, even if somebody keeps filling it."""
        for _ in range(_HELD // _READ_SIZE):
            if self._fd is None:
                return
            try:
                data = os.read(self._fd, _READ_SIZE)
            except OSError:
                return
            if not data:
                return
            self._feed(data)

    def is_closing(self) -> bool:
        return self._fd is None

    def pause_reading(self) -> None:
        if self._fd is not None:
            self._loop.remove_reader(self._fd)

    def resume_reading(self) -> None:
        if self._fd is not None:
            self._loop.add_reader(self._fd, self._read)


class PipeWriter(ProcessInput):
    """Writes to a child's stdin, one `write` at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, fd: int) -> None:
        self._loop = loop
        self._fd: int | None = fd
        self._turn = asyncio.Lock()
        self._room: asyncio.Future[None] | None = None
        os.set_blocking(fd, False)

    async def write(self, data: bytes) -> None:
        async with self._turn:
            view = memoryview(data)
            while view:
                if self._fd is None:
                    raise BrokenPipeError("the input of the process is closed")
                try:
                    view = view[os.write(self._fd, view) :]
                except (BlockingIOError, InterruptedError):
                    await self._wait_for_room(self._fd)

    async def _wait_for_room(self, fd: int) -> None:
        room = self._room = self._loop.create_future()
        self._loop.add_writer(fd, lambda: None if room.done() else room.set_result(None))
        try:
            await room
        finally:
            self._room = None
            if self._fd is not None:
                self._loop.remove_writer(fd)

    def close(self) -> None:
        if self._fd is None:
            return
        fd, self._fd = self._fd, None
        self._loop.remove_writer(fd)
        with contextlib.suppress(OSError):
            os.close(fd)
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
