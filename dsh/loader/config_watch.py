"""Config files that are refreshed when they change: one refresh at a time, none for a save that changes nothing."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import field
from pathlib import Path

import anyio.to_thread

from dsh.cordis import Context, Spawned
from dsh.cordis.records import identity_struct
from dsh.loader.graph import digest_of
from dsh.loader.watch import Watch

Refresh = Callable[[], Awaitable[object]]
Failed = Callable[[Path, Exception], Awaitable[None]]
Mended = Callable[[Path], None]

_UNREAD = "unread"


class ConfigFile:
    """The files of one config and the call that takes a change of them over.

    A refresh is a task of `owner`, which ends with it. `mended` hears of a refresh that works again after one that
    failed and does not say (by returning True) that it applied something.
    """

    def __init__(
        self,
        paths: Iterable[Path],
        refresh: Refresh,
        owner: Context,
        failed: Failed,
        mended: Mended,
        known: Mapping[Path, str | None] | None = None,
    ) -> None:
        self.paths = tuple(Path(os.path.abspath(path)) for path in paths)
        self.failing = False
        self._refresh = refresh
        self._owner = owner
        self._failed = failed
        self._mended = mended
        self._digests: dict[Path, str | None] = dict.fromkeys(self.paths, _UNREAD)
        for path, text in (known or {}).items():
            self._digests[path] = None if text is None else digest_of(text)
        self._said = ""
        self._forced = False
        self._again = False
        self._closed = False
        self._running: Spawned[None] | None = None

    def wake(self, *, force: bool = False) -> None:
        """Look at the files soon, and refresh if their content is another one (or anyway, with `force`).

        Calls while one is running make one more run after it.
        """
        if self._closed:
            return
        self._forced = self._forced or force
        self._again = True
        if self._running is None or self._running.done():
            self._running = self._owner.spawn(self._run, name=f"refresh {self.paths[0].name}")

    async def close(self) -> None:
        """Start no more refresh, and wait for the one that runs."""
        self._closed = True
        await self.idle()

    async def idle(self) -> None:
        """Wait for the refresh that runs, if one does."""
        while self._running is not None and not self._running.done():
            await self._running.ended()

    def abandon(self) -> None:
        """Start no more refresh; one that runs is left to itself."""
        self._closed = True

    async def _run(self) -> None:
        while self._again and not self._closed:
            self._again = False
            await self._look()

    async def _look(self) -> None:
        forced, self._forced = self._forced, False
        digests = await anyio.to_thread.run_sync(lambda: {path: _digest(path) for path in self.paths})
        first = _UNREAD in self._digests.values()
        changed = [path for path in self.paths if digests[path] != self._digests[path]]
        self._digests = digests
        absent = all(digest is None for digest in digests.values())
        if self._closed or not (changed or forced) or (first and absent and not forced):
            return
        try:
            applied = await self._refresh()
            mended, self.failing = self.failing, False
            if mended and applied is not True:  # else the refresh tells of it
                self._mended((changed or self.paths)[0])
        except Exception as error:
            self.failing = True
            said, self._said = self._said, str(error)
            if not changed and said == self._said:
                return  # tried again for nothing; it has been said
            # A layer that is not there did not fail; name a file that is.
            blamed = next((path for path in changed if digests[path] is not None), (changed or self.paths)[0])
            await self._failed(blamed, error)


@identity_struct
class ConfigWatches:
    """All watched configs of one `Watch`."""

    _watch: Watch
    _failed: Failed
    _mended: Mended
    _configs: dict[ConfigFile, list[Callable[[], None]]] = field(default_factory=dict)

    def add(
        self,
        paths: Iterable[Path],
        refresh: Refresh,
        owner: Context,
        known: Mapping[Path, str | None] | None = None,
    ) -> ConfigFile:
        """Watch a config and refresh it once now if it exists, unless the texts are those of `known`."""
        config = ConfigFile(paths, refresh, owner, self._failed, self._mended, known)
        self._configs[config] = [self._watch.add_file(path) for path in config.paths]
        config.wake()
        return config

    def remove(self, config: ConfigFile) -> None:
        """Watch a config no longer."""
        for undo in self._configs.pop(config, ()):
            undo()

    def changed(self, paths: Iterable[Path]) -> set[Path]:
        """Wake the configs that these files belong to; the paths that belong to none are returned."""
        changed = set(paths)
        for config in list(self._configs):
            if not changed.isdisjoint(config.paths):
                config.wake()
        return changed.difference(*(config.paths for config in self._configs))

    def retry_failing(self) -> None:
        """Refresh what could not be applied before: what stood in its way may have been mended elsewhere."""
        for config in list(self._configs):
            if config.failing:
                config.wake(force=True)

    def wake_all(self) -> None:
        """Look at every config (after the watch was armed)."""
        for config in list(self._configs):
            config.wake()

    async def idle(self) -> None:
        """Wait until no refresh runs."""
        for config in list(self._configs):
            await config.idle()

    def abandon(self) -> None:
        """Let go of all configs without waiting for a refresh."""
        for config in list(self._configs):
            config.abandon()
            self.remove(config)


def _digest(path: Path) -> str | None:
    try:
        return digest_of(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"unreadable: {error.errno}"
