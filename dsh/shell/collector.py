"""Keeps the end of a stream in memory and, when it no longer fits, all of it in a file."""

from __future__ import annotations

import codecs
import contextlib
import os
import secrets
import tempfile
from collections import deque

from .service import Collect, CollectedStream, CollectedText

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class SpillDirectory:
    """A private directory for spilled output, made on first use. It stays: a model may have been told the paths."""

    def __init__(self) -> None:
        self._path: str | None = None

    def create(self) -> tuple[int, str]:
        """A new file that nobody else can have prepared: descriptor and path. Raises `OSError`."""
        if self._path is None or not os.path.isdir(self._path):
            self._path = tempfile.mkdtemp(prefix="dsh-output-")
        path = os.path.join(self._path, secrets.token_hex(8) + ".txt")
        return os.open(path, _CREATE, 0o600), path


class Collector(CollectedStream):
    """Takes the bytes of one stream as they come."""

    def __init__(self, limits: Collect, directory: SpillDirectory) -> None:
        self._max = limits.max_bytes
        self._spill_max = limits.spill_max_bytes
        self._directory = directory
        self._chunks: deque[bytes] = deque()
        self._kept = 0
        self._total = 0
        self._finished = False
        self._spill_fd: int | None = None
        self._spill_path: str | None = None

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        self._total += len(data)
        if self._spill_fd is not None:
            self._spill(data)
        elif self._spill_max is not None and self._total > self._max:
            self._open_spill(data)
        self._chunks.append(data)
        self._kept += len(data)
        while self._kept - len(self._chunks[0]) >= self._max:
            self._kept -= len(self._chunks.popleft())

    def finish(self) -> None:
        """The stream is over."""
        self._finished = True
        if self._spill_fd is not None:
            fd, self._spill_fd = self._spill_fd, None
            try:
                os.close(fd)
            except OSError:  # what was written may not have reached the disk
                self._spill_path = None

    def read_from(self, offset: int) -> CollectedText:
        start = max(offset, self._total - min(self._kept, self._max))
        wanted = self._total - start
        data = b"".join(self._chunks)[-wanted:] if wanted > 0 else b""
        lossy = offset < start
        skipped = _cut_character(data) if lossy else 0
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        text = decoder.decode(data[skipped:], final=self._finished).replace("\0", "\ufffd")
        next_offset = max(offset, self._total - len(decoder.getstate()[0]))
        return CollectedText(text, next_offset, lossy, self._spill_path)

    def _open_spill(self, data: bytes) -> None:
        """First overflow: what memory holds is still the whole stream before `data`."""
        try:
            self._spill_fd, self._spill_path = self._directory.create()
        except OSError:
            self._spill_max = None
            return
        for chunk in (*self._chunks, data):
            self._spill(chunk)

    def _spill(self, data: bytes) -> None:
        if self._spill_fd is None or self._spill_max is None:
            return
        if self._total > self._spill_max:
            self._give_up()
            return
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(self._spill_fd, view) :]
        except OSError:
            self._give_up()

    def _give_up(self) -> None:
        """Half a stream is worth nothing: no file then."""
        fd, path = self._spill_fd, self._spill_path
        self._spill_fd = self._spill_path = self._spill_max = None
        with contextlib.suppress(OSError):
            if fd is not None:
                os.close(fd)
        with contextlib.suppress(OSError):
            if path is not None:
                os.unlink(path)


def _cut_character(data: bytes) -> int:
    """How many leading bytes belong to a character whose beginning is gone."""
    count = 0
    while count < min(3, len(data)) and data[count] & 0xC0 == 0x80:
        count += 1
    return count
