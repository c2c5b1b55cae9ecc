"""The stored sessions an editor may open again."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio

from dsh.cordis import Context, HarnessError
from dsh.core.seams import SessionPersistence
from dsh.core.session_header import SessionHeader
from dsh.sessions.log_tail import last_in_log

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
    logs = [_log_of(persistence, header) for header in page]
    infos = await anyio.to_thread.run_sync(lambda: [_info(*each) for each in zip(page, logs, strict=True)])
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


def _log_of(persistence: SessionPersistence, header: SessionHeader) -> Path | None:
    """Where a session's log would stand, if it is a file."""
    place = persistence.locate(header)
    return Path(place.path) if place is not None and place.kind == "jsonl" else None


def _info(header: SessionHeader, log: Path | None) -> dict[str, Any]:
    """Id, workspace, time and title of one session."""
    info = {"sessionId": header.id, "cwd": header.cwd}
    seconds = header.created_at / 1000
    try:
        # A log keeps the name it was given: a new one could be compressed and this one not, or the other way round.
        found = None if log is None else next(iter(sorted(log.parent.glob("session.jsonl*"))), None)
        if found is not None:
            seconds = found.stat().st_mtime
            title = last_in_log(str(found), header.id, (b'"session/title"',), _title_in)
            info |= {} if title is None else {"title": title}
    except (OSError, HarnessError):  # it is listed all the same; opening it says what is wrong
        pass
    updated = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return {**info, "updatedAt": updated}


def _title_in(row: Mapping[str, Any]) -> str | None:
    data = row.get("data")
    title = data.get("title") if row.get("type") == "session/title" and isinstance(data, Mapping) else None
    return title if isinstance(title, str) else None
