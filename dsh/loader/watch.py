"""Notices changes of single files and of source folders, whatever the editor or the file system does.

A file is watched through the folder that holds it (editors replace files by rename, and the file or even the folder
may not exist yet), by its real path, with its link target watched too. System notifications only make it quick: at
every wake-up, and at least every two seconds, the files are compared with what was last seen, so that a share
without notifications works as well. Where notifications cannot be had at all, the files are looked at in turn.

`changed` is told *possible* changes; whoever cares compares contents.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

from dsh.cordis.records import record

if TYPE_CHECKING:
    from watchfiles._rust_notify import RustNotify

DEBOUNCE = 0.1
"""Seconds without a further change before a change is reported."""
HEARTBEAT = 2.0
"""Seconds between two looks at the files while notifications work."""
POLL = 0.5
"""Seconds between two looks at the files when notifications do not work."""

_MOST_DEBOUNCES = 4
_MISSES = 5
_MOST_FOLDERS = 4096
"""Folders of one tree that are worth a watch each; a larger tree is probably somebody's whole home."""

Signature = tuple[int, int, int, int] | None


@record
class _Plan:
    """What to listen to: folders with their identity, and which watched file each path stands for."""

    folders: dict[str, tuple[int, int]]
    points: dict[str, set[Path]]
    tree_folders: frozenset[str]


class Watch:
    """Watches files and folder trees for one owner.

        watch = Watch(on_change, say=ctx.logger.warning)
        watch.add_file(path)             # baseline: what the file is now; read it afterwards
        ctx.spawn(watch.run)
        ctx.defer(watch.stop)

    `changed(paths)` runs on the event loop with the paths as they were given (or found in a tree). `say(message)`
    receives what a person should know; `begin()` is called when watching begins. Times are in seconds.
    """

    def __init__(
        self,
        changed: Callable[[frozenset[Path]], None],
        *,
        say: Callable[[str], object],
        debounce: float = DEBOUNCE,
        heartbeat: float = HEARTBEAT,
        poll: float = POLL,
        begin: Callable[[], object] | None = None,
    ) -> None:
        self._changed = changed
        self._say = say
        self._debounce_ms = max(1, round(debounce * 1000))
        self._heartbeat_ms = max(self._debounce_ms, round(heartbeat * 1000))
        self._poll = poll
        self._begin = begin
        self._files: dict[Path, Signature] = {}
        self._holders: dict[Path, int] = {}
        self._trees: dict[Path, Callable[[Path], bool]] = {}
        self._tree_files: dict[str, dict[Path, Signature]] = {}
        self._added: set[Path] = set()
        self._pending: set[Path] = set()
        self._too_large: list[Path] = []
        self._armed = anyio.Event()
        self._stopped = False
        self._replan = False
        self._polling = False

    def add_file(self, path: Path) -> Callable[[], None]:
        """Watch one file, present or not. Returns the undo.

        It is reported once when the watch is armed for it, so that what was read of it before can be compared.
        """
        path = Path(os.path.abspath(path))
        if path not in self._files:
            self._files[path] = _signature(path)
            self._added.add(path)
            self._replan = True
        self._holders[path] = self._holders.get(path, 0) + 1
        done = False

        def undo() -> None:
            nonlocal done
            if done:
                return
            done = True
            self._holders[path] -= 1
            if not self._holders[path]:
                del self._holders[path], self._files[path]
                self._added.discard(path)
                self._pending.discard(path)
                self._replan = True

        return undo

    def add_tree(self, root: Path, skip: Callable[[Path], bool]) -> None:
        """Watch the ``*.py`` files below `root`; `skip(folder)` leaves a folder out with all it holds."""
        self._trees[Path(os.path.realpath(root))] = skip
        self._replan = True

    async def wait_armed(self) -> None:
        """Return once a change of any added file can no longer be missed."""
        await self._armed.wait()

    def stop(self) -> None:
        """Make `run` return within about one debounce time."""
        self._stopped = True

    async def run(self) -> None:
        """Watch until `stop`, from one debounce time after the call on: a program that starts has more urgent work."""
        await anyio.sleep(self._debounce_ms / 1000)
        if self._begin is not None:
            self._begin()
        misses = 0
        limiter = anyio.CapacityLimiter(1)  # a waiting watcher must not use up the threads of everybody else
        known_folders: frozenset[str] | None = None
        while not self._stopped:
            self._replan = False
            plan = await anyio.to_thread.run_sync(self._make_plan, None, limiter=limiter)
            self._give_up_trees()
            native = None if self._polling else self._listen(plan)
            if native is None and not self._polling:
                misses += 1
                if misses < _MISSES:  # a folder went away between the look and the listening
                    await anyio.sleep(self._debounce_ms / 1000)
                    continue
                self._fall_back("the folders keep changing")
            misses = 0
            try:
                # From here on a change is noticed; what changed before is found by comparing.
                fresh = frozenset() if known_folders is None else plan.tree_folders - known_folders
                known_folders = plan.tree_folders
                await self._note(plan, frozenset(), fresh, limiter)
                self._pending |= self._added
                self._added.clear()
                self._armed.set()
                while not self._stopped and not self._replan:
                    events = await self._next_events(native, limiter)
                    if events is None:
                        break
                    look = plan.tree_folders if self._polling else frozenset()
                    moved = await self._note(plan, events, look, limiter)
                    if events or not moved:  # notifications come when it is quiet again
                        self._report()
                    if not plan.folders.keys().isdisjoint(events):
                        break  # a folder left or was replaced; its number alone would not tell, numbers are reused
                    trees_moved = self._polling or any(os.path.isdir(path) for path in events)
                    kept = None if trees_moved else plan.tree_folders
                    if await anyio.to_thread.run_sync(self._make_plan, kept, limiter=limiter) != plan:
                        break
            finally:
                if native is not None:
                    native.close()

    def _listen(self, plan: _Plan) -> RustNotify | None:
        """Start notifications; None when a folder has just gone. Falls back to polling when there are none to have."""
        from watchfiles._rust_notify import RustNotify

        try:
            return RustNotify(list(plan.folders), False, False, 0, False, True)
        except FileNotFoundError:
            return None
        except (OSError, RuntimeError, UnicodeError) as error:  # the last: a folder whose name is not UTF-8
            self._fall_back(str(error) or type(error).__name__)
            return None

    def _fall_back(self, reason: str) -> None:
        self._polling = True
        self._say(
            f"file notifications are not available ({reason}); looking at the files every {self._poll:g} s instead"
        )

    def _give_up_trees(self) -> None:
        while self._too_large:
            root = self._too_large.pop()
            if self._trees.pop(root, None) is not None:
                self._say(f"{root} holds more than {_MOST_FOLDERS} folders; only loaded files in it are followed")

    async def _next_events(self, native: RustNotify | None, limiter: anyio.CapacityLimiter) -> frozenset[str] | None:
        """The paths of the next notifications (empty: time for a look), None to plan anew."""
        wait = self._debounce_ms
        if native is None:
            await anyio.sleep(wait / 1000 if self._pending else self._poll)
            return frozenset()
        limit = wait if self._pending else self._heartbeat_ms
        come_back = SimpleNamespace(is_set=lambda: self._stopped or self._replan)  # what the thread asks
        try:
            answer: Any = await anyio.to_thread.run_sync(
                native.watch, wait * _MOST_DEBOUNCES, wait, limit, come_back, limiter=limiter
            )
        except (OSError, RuntimeError) as error:
            self._fall_back(str(error) or type(error).__name__)
            return None
        if answer == "stop":
            return None
        return frozenset() if isinstance(answer, str) else frozenset(path for _kind, path in answer)

    async def _note(
        self, plan: _Plan, events: frozenset[str], look: frozenset[str], limiter: anyio.CapacityLimiter
    ) -> bool:
        """Look at the files; what may have changed waits for a quiet moment. Whether there was anything."""
        found, seen = await anyio.to_thread.run_sync(self._scan, plan, events, look, limiter=limiter)
        self._files.update((path, signature) for path, signature in seen.items() if path in self._files)
        self._pending |= found
        return bool(found)

    def _report(self) -> None:
        paths, self._pending = frozenset(self._pending), set()
        if paths and not self._stopped:
            self._changed(paths)

    def _make_plan(self, tree_folders: frozenset[str] | None) -> _Plan:
        """The plan for what is on disk now; `tree_folders` are the folders of the trees if they are known."""
        points: dict[str, set[Path]] = {}
        folders: set[str] = set()
        for path in list(self._files):
            for point in _points(path):
                points.setdefault(point, set()).add(path)
                folders.add(_existing_parent(point))
        for root in list(self._trees):
            if not root.is_dir():
                folders.add(_existing_parent(os.fspath(root)))
        if tree_folders is None:
            tree_folders = frozenset(
                folder for root, skip in list(self._trees.items()) for folder in self._tree(root, skip)
            )
        identified = {}
        for folder in sorted(folders | tree_folders):
            try:
                info = os.stat(folder)
            except OSError:
                continue
            identified[folder] = (info.st_dev, info.st_ino)
        return _Plan(identified, points, tree_folders)

    def _tree(self, root: Path, skip: Callable[[Path], bool]) -> list[str]:
        """The folders of a tree; none of one that is too large, which is watched no further."""
        if not root.is_dir():
            return []
        folders = [os.fspath(folder) for folder in islice(_walk(root, skip), _MOST_FOLDERS + 1)]
        if len(folders) <= _MOST_FOLDERS:
            return folders
        self._too_large.append(root)
        return []

    def _scan(
        self, plan: _Plan, events: frozenset[str], look_into: frozenset[str]
    ) -> tuple[set[Path], dict[Path, Signature]]:
        """What may have changed: what `events` name, watched files that differ, and sources in `look_into`.

        Also what the files that differ look like now.
        """
        changed: set[Path] = set()
        seen: dict[Path, Signature] = {}
        for event in events:
            changed |= plan.points.get(event, set())
            if event.endswith(".py") and os.path.dirname(event) in plan.tree_folders:
                changed.add(Path(event))
        for path, before in list(self._files.items()):
            now = _signature(path)
            if now != before:
                changed.add(path)
                seen[path] = now
        for folder in look_into:
            changed |= self._look_into(folder)
        return changed, seen

    def _look_into(self, folder: str) -> set[Path]:
        """Sources of a tree folder that differ from the last look. The first look at the first plan only notes them."""
        try:
            with os.scandir(folder) as entries:
                found = [Path(entry.path) for entry in entries if entry.name.endswith(".py")]
        except OSError:
            found = []
        now = {path: _signature(path) for path in found}
        before = self._tree_files.get(folder)
        self._tree_files[folder] = now
        if before is None and (not self._armed.is_set() or self._polling):
            return set()
        before = before or {}
        return {path for path in before.keys() | now.keys() if before.get(path) != now.get(path)}


def _signature(path: Path) -> Signature:
    try:
        info = os.stat(path)
    except (OSError, ValueError):
        return None
    return info.st_mtime_ns, info.st_size, info.st_dev, info.st_ino


def _points(path: Path) -> Iterator[str]:
    """The places whose change is a change of `path`: its name in its real folder, and what a link leads to."""
    name = os.path.join(os.path.realpath(path.parent), path.name)
    yield name
    seen = set()
    while os.path.islink(name) and name not in seen:
        seen.add(name)
        target = os.path.join(os.path.dirname(name), os.readlink(name))
        name = os.path.join(os.path.realpath(os.path.dirname(target)), os.path.basename(target))
        yield name


def _existing_parent(path: str) -> str:
    folder = os.path.dirname(path)
    while not os.path.isdir(folder):
        above = os.path.dirname(folder)
        if above == folder:
            break
        folder = above
    return os.path.realpath(folder)


def _walk(root: Path, skip: Callable[[Path], bool]) -> Iterator[Path]:
    pending = [root]
    while pending:
        folder = pending.pop()
        yield folder
        try:
            with os.scandir(folder) as entries:
                inner = [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError:
            continue
        pending.extend(path for path in inner if not skip(path))
