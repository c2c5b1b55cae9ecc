"""`fs-local`: the files of this machine, openly unconfined."""

from __future__ import annotations

import asyncio
import codecs
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import anyio.to_thread

from dsh.cordis import ConfigModel, Context, field

from . import disk
from .service import (
    DirEntry,
    Edited,
    FileStat,
    Fs,
    FsError,
    FsTarget,
    LinkStat,
    ReplaceIfVersion,
    WriteExpectation,
    Written,
)

if TYPE_CHECKING:
    from dsh.cordis import AbortSignal

name = "fs-local"

T = TypeVar("T")


class Config(ConfigModel):
    """Config of a row `fs-local`."""

    cwd: str | None = field(None, description="Where relative paths start when the caller names no directory")
    diff_basis_max_bytes: int = field(
        10 * 1024 * 1024, min=1, live=True, description="Files from this size on are overwritten without a diff"
    )
    new_file_mode: str = field(
        "600", pattern=r"^[0-7]{3}$", live=True, description="Permission bits of new files, as octal text"
    )


class LocalFs(Fs):
    """Runs each operation in a worker thread; changes of one file happen one after another, in the order they came."""

    def __init__(self, ctx: Context, config: Config) -> None:
        self._config = config
        self._turns = _Turns()

    async def resolve(self, path: str, cwd: str | None = None, signal: AbortSignal | None = None) -> FsTarget:
        base = self._absolute(cwd)
        return await _in_thread(lambda _: disk.resolve(path, base), signal, "resolve aborted")

    def _absolute(self, cwd: str | None) -> str:
        base = cwd or self._config.cwd or ""
        return base if base.startswith("/") else os.path.join(disk.to_text(os.getcwdb()), base)

    def process_path(self, target: FsTarget) -> str:
        return target.target_key

    def file_url(self, target: FsTarget) -> str:
        return "file://" + quote(disk.to_bytes(target.target_key))

    def contains(self, parent: FsTarget, child: FsTarget) -> bool:
        above, below = parent.target_key, child.target_key
        return below == above or below.startswith(above if above.endswith("/") else above + "/")

    async def stat(self, target: FsTarget, signal: AbortSignal | None = None) -> FileStat | None:
        return await _in_thread(lambda _: disk.file_stat(target), signal, "read aborted")

    async def lstat(self, path: str, signal: AbortSignal | None = None) -> LinkStat | None:
        return await _in_thread(lambda _: disk.link_stat(path), signal, "read aborted")

    async def read_text(self, target: FsTarget, signal: AbortSignal | None = None) -> str:
        return await _in_thread(lambda check: disk.read_text(target, check), signal, "read aborted")

    async def stream_text(self, target: FsTarget, signal: AbortSignal | None = None) -> AsyncIterator[str]:
        fd, _ = await _in_thread(lambda _: disk.open_file(target, "read"), signal, "read aborted")
        decoder = codecs.getincrementaldecoder("utf-8")()
        first = True
        try:
            while True:
                data = await _in_thread(lambda _: os.read(fd, disk.READ_PIECE), signal, "read aborted")
                if first:
                    disk.refuse_binary(data, "read", target)
                try:
                    text = decoder.decode(data, final=not data)
                except UnicodeDecodeError as error:
                    raise disk.decode_error("read", target) from error
                if first:
                    text = text.removeprefix("\ufeff")
                    first = False
                if text:
                    yield text
                if not data:
                    return
        except OSError as error:
            raise disk.failure("read", target.display_path, error) from error
        finally:
            os.close(fd)

    async def read_bytes(self, target: FsTarget, signal: AbortSignal | None = None, *, max_bytes: int) -> bytes:
        return await _in_thread(lambda check: disk.read_bytes(target, max_bytes, check), signal, "read aborted")

    async def list_dir(self, target: FsTarget, signal: AbortSignal | None = None) -> list[DirEntry]:
        return await _in_thread(lambda _: disk.list_dir(target), signal, "read aborted")

    async def write_text(
        self,
        target: FsTarget,
        content: str,
        expected: WriteExpectation = None,
        signal: AbortSignal | None = None,
        sandbox_policy: Any = None,
    ) -> Written:
        basis, mode = self._config.diff_basis_max_bytes, int(self._config.new_file_mode, 8)
        async with self._turns.hold(target.target_key):
            return await _in_thread(
                lambda check: disk.write_text(target, content, expected, basis, mode, check), signal, "write aborted"
            )

    async def edit_text(
        self,
        target: FsTarget,
        old_string: str,
        new_string: str,
        replace_all: bool = False,
        expected: ReplaceIfVersion | None = None,
        signal: AbortSignal | None = None,
        sandbox_policy: Any = None,
    ) -> Edited:
        async with self._turns.hold(target.target_key):
            return await _in_thread(
                lambda check: disk.edit_text(target, old_string, new_string, replace_all, expected, check),
                signal,
                "edit aborted",
            )


class _Turns:
    """One FIFO lock per file, kept only while somebody wants it."""

    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def hold(self, key: str) -> AsyncIterator[None]:
        lock, wanted = self._locks.get(key) or (asyncio.Lock(), 0)
        self._locks[key] = lock, wanted + 1
        try:
            async with lock:
                yield
        finally:
            lock, wanted = self._locks[key]
            if wanted == 1:
                del self._locks[key]
            else:
                self._locks[key] = lock, wanted - 1


async def _in_thread(work: Callable[[disk.Check], T], signal: AbortSignal | None, aborted: str) -> T:
    """Run `work(check)` in a worker thread; `check` raises FS_ABORTED with text `aborted` once `signal` has fired.

    The signal itself belongs to the loop's thread, so the thread looks at a flag.
    """
    stopped = False

    def stop() -> None:
        nonlocal stopped
        stopped = True

    def check() -> None:
        if stopped:
            raise FsError("FS_ABORTED", aborted)

    undo = signal.on_abort(stop) if signal is not None else None
    try:
        check()
        return await anyio.to_thread.run_sync(work, check)
    finally:
        if undo is not None:
            undo()
