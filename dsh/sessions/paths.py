"""Where a session's files stand below the root: a directory per workspace, one per session in it.

    <root>/--<project key>--/<encoded id>/session.jsonl[.zstd]
    <root>/_no-cwd/<encoded id>/session.jsonl[.zstd]

Both names keep `[A-Za-z0-9._-]` and escape every other UTF-16 unit as `~XXXX`, so that any id is one legal file name
and two ids never share one. Names shared with other builds of this log format.
"""

from __future__ import annotations

import os
import re
from typing import Final

RAW_NAME: Final = "session.jsonl"
ZSTD_NAME: Final = "session.jsonl.zstd"
NO_CWD: Final = "_no-cwd"

_MAX_KEY: Final = 251
"""With the four dashes around it a key fills the 255 bytes that a file name may have."""

_SEPARATORS: Final = re.compile(r"[/\\:]+")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]")
_ESCAPE: Final = re.compile(r"~([0-9A-F]{4})")


def _escape(match: re.Match[str]) -> str:
    units = match.group().encode("utf-16-be", "surrogatepass")
    return "".join(f"~{units[i] << 8 | units[i + 1]:04X}" for i in range(0, len(units), 2))


def project_key(cwd: str) -> str:
    """The directory key of a workspace path; several paths may share one, the header tells them apart."""
    key = _UNSAFE.sub(_escape, _SEPARATORS.sub("-", cwd)).lstrip("-")
    return (key or "root")[:_MAX_KEY]


def project_dir(cwd: str | None) -> str:
    """The name of the directory that holds the sessions of one workspace."""
    return NO_CWD if cwd is None else f"--{project_key(cwd)}--"


def encode_id(session_id: str) -> str:
    """The directory name of a session id; different ids give different names. Raises ValueError for an empty id."""
    if not session_id:
        raise ValueError("a session id must not be empty")
    if session_id in (".", ".."):
        return "~002E" * len(session_id)
    return _UNSAFE.sub(_escape, session_id)


def decode_id(name: str) -> str | None:
    """The id behind a directory name; None if no id has that name."""
    if "~" not in name:
        return name if name and not _UNSAFE.search(name) and name not in (".", "..") else None
    units = b"".join(
        bytes.fromhex(part) if index % 2 else part.encode("utf-16-be")
        for index, part in enumerate(_ESCAPE.split(name))
        if part
    )
    session_id = units.decode("utf-16-be", "surrogatepass")
    return session_id if session_id and encode_id(session_id) == name else None


def session_dir(root: str, cwd: str | None, session_id: str) -> str:
    """The directory of a session's artifact and lease."""
    return os.path.join(root, project_dir(cwd), encode_id(session_id))


def is_project_dir(name: str) -> bool:
    """True for the name of a directory that holds sessions."""
    return name == NO_CWD or (len(name) > 4 and name.startswith("--") and name.endswith("--"))
