"""Nobody waits for a writer that is gone; a log is put in place whole or not at all."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from dsh.core.session_header import SessionHeader
from dsh.sessions.errors import SessionCollisionError, SessionPersistenceError
from dsh.sessions.log_file import LogWriter
from dsh.sessions.writer import Writer


async def test_a_job_that_waits_for_another_fails_when_the_writer_closes_meanwhile() -> None:
    writer = Writer("test-writer")
    first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    job = writer.submit_after(first, lambda: 1)
    await writer.close()
    first.set_result(None)
    with pytest.raises(SessionPersistenceError, match="is closed"):
        async with asyncio.timeout(10):
            await job


async def test_a_job_after_another_runs_whatever_came_of_that() -> None:
    writer = Writer("test-writer")
    first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    job = writer.submit_after(first, lambda: 1)
    first.cancel()
    async with asyncio.timeout(10):
        assert await job == 1
    await writer.close()


@pytest.mark.parametrize("fails_at", ["fsync", "link"])
def test_a_log_that_cannot_be_published_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: str
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, fails_at, full)
    path = str(tmp_path / "session.jsonl")
    with pytest.raises(OSError, match="No space left"):
        LogWriter().create(path, SessionHeader(id="s", created_at=1), [])
    assert list(tmp_path.iterdir()) == []


def test_a_published_log_is_private_and_is_never_overwritten_but_can_be_put_in_place_anew(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    writer = LogWriter()
    writer.create(str(path), SessionHeader(id="s", created_at=1), [])
    before, inode = path.read_bytes(), path.stat().st_ino
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(SessionCollisionError):
        writer.create(str(path), SessionHeader(id="s", created_at=2), [])
    writer.republish(str(path))
    assert path.read_bytes() == before and path.stat().st_ino != inode
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["session.jsonl"]
