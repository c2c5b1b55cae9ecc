"""What was typed, over all consoles of a home folder: a bounded private file, one JSON text a line."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Final

from dsh.loader.fileio import atomic_write, ensure_private_dir

ENTRIES: Final = 1000
"""How many entries are read; twice as many bring the file back to this number."""

ENTRY_BYTES: Final = 16 * 1024
"""A longer text, such as a pasted log, is not kept."""

_SECRET: Final = re.compile(r"/\S+\s+\S*(?:api[-_]?key|token|secret|password|passphrase)\s+\S", re.I)
"""A command that gives a value to something named like a secret."""


class InputHistory:
    """Reads and extends the file. One that cannot be read or written costs the history, nothing else."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last: str | None = None

    def load(self) -> list[str]:
        """The entries, oldest first."""
        try:
            lines = self._path.read_bytes().split(b"\n")
        except OSError:
            return []
        entries = [entry for line in lines if isinstance(entry := _parsed(line), str)]
        if len(entries) >= 2 * ENTRIES:
            self._write(entries[-ENTRIES:])
        self._last = entries[-1] if entries else None
        return entries[-ENTRIES:]

    def add(self, text: str) -> None:
        """Append an entry, unless it repeats the last one, holds a secret, or begins with a space, the sign for not
        keeping it."""
        line = json.dumps(text, ensure_ascii=True).encode() + b"\n"
        if text == self._last or text[:1].isspace() or not text or len(line) > ENTRY_BYTES or _SECRET.match(text):
            return
        self._last = text
        try:
            ensure_private_dir(self._path.parent)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.write(descriptor, line)
            finally:
                os.close(descriptor)
        except OSError:
            pass

    def _write(self, entries: list[str]) -> None:
        try:
            atomic_write(self._path, b"".join(json.dumps(each).encode() + b"\n" for each in entries), mode=0o600)
        except OSError:
            pass


def _parsed(line: bytes) -> object:
    try:
        return json.loads(line)
    except ValueError:  # cut or foreign
        return None
