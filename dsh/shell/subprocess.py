"""`subprocess-local`: child processes of this machine, none of which outlives the row."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil

from dsh.cordis import ConfigModel, Context, field

from .child import LocalChild
from .child_env import merge, scrub
from .collector import SpillDirectory
from .death_watch import DeathWatch
from .exit_guard import exit_guard
from .process_tree import MARKER, new_marker
from .service import MAX_GRACE_MS, SpawnError, SpawnSpec, Subprocess

name = "subprocess-local"


class Config(ConfigModel):
    """Config of a row `subprocess-local`."""

    scrub_env: list[str] = field(
        default_factory=list,
        live=True,
        description="Further patterns (regular expressions, anywhere in the name) of variables that no child inherits",
    )


class LocalSubprocess(Subprocess):
    """Starts children from the event loop's thread and keeps each one until nothing of its tree is left."""

    def __init__(self, ctx: Context, config: Config) -> None:
        self._config = config
        self._patterns = _compile(config.scrub_env)
        self._children: set[LocalChild] = set()
        self._directory = SpillDirectory()
        self._watch = DeathWatch()
        ctx.defer(config.watch(self._reconfigure))
        ctx.enter(exit_guard(self._kill_all))

    def _reconfigure(self) -> None:
        self._patterns = _compile(self._config.scrub_env)

    async def stop(self) -> None:
        """Terminate all children and wait for them."""
        children = list(self._children)
        for child in children:
            child.terminate()
        await asyncio.gather(*(child.wait_for_exit() for child in children))
        self._watch.close()

    def spawn(self, spec: SpawnSpec) -> LocalChild:
        if not spec.argv or not spec.argv[0]:
            raise ValueError("argv must name a program")
        if not 0 < spec.grace_ms <= MAX_GRACE_MS:
            raise ValueError(f"graceMs must be between 1 and {MAX_GRACE_MS}, got {spec.grace_ms}")
        for known in list(self._children):
            known.recheck()  # left-over processes that have ended by themselves need no watch any more
        marker = new_marker()
        environment = merge(merge(scrub(os.environb, self._patterns), spec.env), {MARKER: marker})

        def gone(child: LocalChild) -> None:
            self._children.discard(child)
            self._watch.remove(child.pid, marker)

        child = LocalChild(spec, self._directory, gone)
        self._children.add(child)
        self._watch.expect(marker)
        child.start(environment, marker)
        if child.pid is not None:
            self._watch.add(child.pid, marker)
        return child

    def resolve_executable(self, name: str) -> str:
        if os.path.isabs(name):
            if os.path.isfile(name) and os.access(name, os.X_OK):
                return name
            raise SpawnError(f'"{name}" is not an executable file')
        if not name or "/" in name or "\0" in name:
            raise SpawnError(f'an executable is an absolute path or a bare name, got "{name}"')
        path = scrub(os.environb, self._patterns).get(b"PATH", os.defpath.encode())
        found = shutil.which(name, path=os.fsdecode(path))
        if found is None:
            raise SpawnError(f'executable "{name}" was not found on PATH')
        return os.path.abspath(found)

    def _kill_all(self) -> None:
        for child in list(self._children):
            with contextlib.suppress(Exception):
                child.kill_now()


def _compile(patterns: list[str]) -> tuple[re.Pattern[bytes], ...]:
    return tuple(re.compile(pattern.encode()) for pattern in patterns)
