"""The stored sessions an editor may open again."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import anyio

from dsh.cordis import Context
from dsh.core.seams import SessionLocation, SessionPersistence
from dsh.core.session_header import SessionHeader
from dsh.interfaces.stored_log import stored_log, stored_title

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
    places = [persistence.locate(header) for header in page]
    infos = await anyio.to_thread.run_sync(lambda: [_info(*each) for each in zip(page, places, strict=True)])
    result: dict[str, Any] = {"sessions": infos}
    if start + PAGE < len(headers):
        result["nextCursor"] = str(start + PAGE)
    return result


def _is_offered(header: SessionHeader, cwd: str | None) -> bool:
    """Whether a person would open it: it has a workspace, and no agent made it for itself."""
    return header.cwd is not None and header.origin is None and cwd in (None, header.cwd)


def _start(cursor: Any) -> int:
    if cursor is None:
        return 0
    if not (isinstance(cursor, str) and cursor.isascii() and cursor.isdigit() and len(cursor) < 10):
        raise invalid_params("cursor is not one of this list's")
    return int(cursor)


def _info(header: SessionHeader, place: SessionLocation | None) -> dict[str, Any]:
    """Id, workspace, time and title of one session; one that cannot be read is listed all the same."""
    log = stored_log(header, place)
    title = None if log is None else stored_title(log)
    updated = header.created_at if log is None else log.last_activity
    return {
        "sessionId": header.id,
        "cwd": header.cwd,
        **({} if title is None else {"title": title}),
        "updatedAt": datetime.fromtimestamp(updated / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
    }
