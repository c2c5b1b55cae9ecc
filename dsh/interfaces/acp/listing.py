"""The stored sessions an editor may open again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from dsh.cordis import Context
from dsh.core.seams import SessionPersistence
from dsh.core.session_header import SessionHeader

from .checks import invalid_params, text_in

PAGE = 50
"""Sessions in one answer."""


async def list_sessions(ctx: Context, params: Mapping[str, Any]) -> dict[str, Any]:
    """A page of sessions, the latest activity first; ``cwd`` narrows to one workspace, ``cursor`` goes on."""
    persistence = ctx.get(SessionPersistence)
    if persistence is None:
        return {"sessions": []}
    cwd = text_in(params, "cwd") if params.get("cwd") is not None else None
    start = _start(params.get("cursor"))
    headers = [one for one in await persistence.list() if _is_offered(one, cwd)]
    page = headers[start : start + PAGE]
    result: dict[str, Any] = {"sessions": [_info(persistence, header) for header in page]}
    if start + PAGE < len(headers):
        result["nextCursor"] = str(start + PAGE)
    return result


def _is_offered(header: SessionHeader, cwd: str | None) -> bool:
    """Whether a person would open it: it has a workspace, and no agent made it for itself."""
    return header.cwd is not None and header.origin is None and cwd in (None, header.cwd)


def _start(cursor: Any) -> int:
    if cursor is None:
        return 0
    if not (isinstance(cursor, str) and cursor.isascii() and cursor.isdigit()):
        raise invalid_params("cursor is not one of this list's")
    return int(cursor)


def _info(persistence: SessionPersistence, header: SessionHeader) -> dict[str, Any]:
    """id, workspace and time of one session."""
    place = persistence.locate(header)
    try:
        seconds = header.created_at / 1000 if place is None else os.stat(place.path).st_mtime
    except OSError:  # stored under another name than a new one would get
        seconds = header.created_at / 1000
    updated = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return {"sessionId": header.id, "cwd": header.cwd, "updatedAt": updated}
