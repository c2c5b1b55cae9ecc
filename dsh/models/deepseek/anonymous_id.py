"""The random id under which the service may know a home folder."""

from __future__ import annotations

import os
import re
import uuid
from pathlib import Path

from dsh.loader.fileio import atomic_write
from dsh.loader.home import Home

ANONYMOUS_ID_FILE = ".anonymous-user-id"

_UUID4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def anonymous_id(home: Home) -> str:
    """The random UUIDv4 that stands for this home folder in telemetry; made on first use.

    Racing processes agree on one id, a corrupt file is replaced, and an unwritable home gives an id that lasts
    as long as the caller keeps it. Raises nothing.
    """
    path = home.join(ANONYMOUS_ID_FILE)
    known = _read_id(path)
    if known is not None:
        return known
    fresh = str(uuid.uuid4())
    try:
        home.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            # A link publishes the finished file under its name or fails because another process was first.
            _publish_exclusive(path, fresh)
        except FileExistsError:
            winner = _read_id(path)
            if winner is not None:
                return winner
            atomic_write(path, (fresh + "\n").encode(), mode=0o600)
        # Two processes may both have replaced one corrupt file; the one on disk is the one to use.
        return _read_id(path) or fresh
    except OSError:
        return fresh


def _read_id(path: Path) -> str | None:
    try:
        text = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return text if _UUID4.fullmatch(text) else None


def _publish_exclusive(path: Path, text: str) -> None:
    draft = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text + "\n")
        os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)
