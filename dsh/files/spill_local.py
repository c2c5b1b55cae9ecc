"""`spill-local`: long output kept in private files, a folder for each session."""

from __future__ import annotations

import hashlib
import os
import re
import secrets

import anyio.to_thread

from dsh.cordis import ConfigModel, Context, field
from dsh.loader.environment import home_of

from .spill_store import Spilled, SpillSource, SpillStore
from .text import valid_text

HINT = "Use read with offset/limit, or grep this path to search within it."
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")
_LONGEST_NAME = 100


class Config(ConfigModel):
    """Where the files go."""

    root: str | None = field(
        None, min=1, description="Folder of the files, absolute or relative to the config; spill in the home by default"
    )


class LocalSpillStore(SpillStore):
    """Files below one folder. They stay: a model may have been told their paths, also in a session resumed later."""

    def __init__(self, ctx: Context, config: Config) -> None:
        root = config.root
        if root is None:
            self._root = str(home_of(ctx).join("spill"))
        else:
            self._root = os.path.abspath(os.path.join(ctx.base_dir or os.getcwd(), os.path.expanduser(root)))

    async def save_text(self, source: SpillSource, suggested_name: str, content: str) -> Spilled:
        data = valid_text(content).encode()
        folder = os.path.join(self._root, f"session-{hashlib.sha256(source.session_id.encode()).hexdigest()[:12]}")
        path = os.path.join(folder, f"{secrets.token_hex(6)}-{safe_name(suggested_name)}")
        await anyio.to_thread.run_sync(_write, folder, path, data)
        return Spilled(path, len(data), HINT)


def safe_name(name: str) -> str:
    """`name` as one harmless path segment: other characters become ``~XXXX``, their UTF-16 units in hex."""
    return _UNSAFE.sub(_escaped, name)[:_LONGEST_NAME]


def _escaped(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass").hex().upper()
    return "".join(f"~{units[at : at + 4]}" for at in range(0, len(units), 4))


def _write(folder: str, path: str, data: bytes) -> None:
    os.makedirs(folder, mode=0o700, exist_ok=True)
    fd = os.open(path, _CREATE, 0o600)
    try:
        with open(fd, "wb") as file:
            file.write(data)
    except OSError:
        os.unlink(path)  # half a text is worth nothing
        raise
