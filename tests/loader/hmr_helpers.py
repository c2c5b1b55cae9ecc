"""A small project on disk, booted, edited and followed."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any

import anyio

from dsh.cordis import Context, Fiber
from dsh.loader.boot import App, boot
from dsh.loader.entries import Entry
from dsh.loader.environment import LaunchEnvironment
from dsh.loader.hmr import Hmr, HmrChange, HmrConfigUpdateFailed, HmrReload, HmrRestartRequired
from dsh.loader.home import Home
from dsh.loader.resolve import LOCAL_PACKAGE

LIMIT = 15.0

HMR = """\
- id: hmr
  name: hmr
  config: {debounce: 20}
"""


class Project:
    """A folder with a config and plugins."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "cordis.yml"

    def write(self, name: str, text: str) -> Path:
        """Save a file in place."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
        return path

    def replace(self, name: str, text: str) -> Path:
        """Save a file by rename, as editors do."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(path.name + "~")
        draft.write_text(dedent(text))
        os.replace(draft, path)
        return path

    def rows(self, text: str, hmr: str = HMR) -> None:
        """Save the config: an hmr row and `text`."""
        self.replace("cordis.yml", hmr + dedent(text))

    def plugin(self, name: str, body: str = "", head: str = "") -> Path:
        """Save a plugin that logs its life in the service `log`."""
        text = f"{dedent(head)}\nname = {name!r}\n\n\ndef apply(ctx, config):\n"
        text += f"    log = ctx.root['log']\n    log.append('{name} up')\n"
        text += f"    ctx.defer(lambda: log.append('{name} down'))\n"
        text += "".join(f"    {line}\n" for line in dedent(body).splitlines())
        return self.replace(f"plugins/{name}.py", text)


def forget_local_modules() -> None:
    """Unload every plugin that was loaded by path, so that a test starts as a process does."""
    for name in [name for name in sys.modules if name.startswith(f"{LOCAL_PACKAGE}.")]:
        del sys.modules[name]


class Running:
    """A booted project and what happened in it."""

    def __init__(self, app: App, project: Project, log: list[Any]) -> None:
        self.app = app
        self.project = project
        self.log = log
        self.reloads: list[HmrReload] = []
        self.failures: list[HmrConfigUpdateFailed] = []
        self.changes: list[str] = []
        self.restarts: list[str] = []
        root = app.root
        root.on(HmrReload, self.reloads.append)
        root.on(HmrChange, lambda e: self.changes.append(e.path))
        root.on(HmrRestartRequired, lambda e: self.restarts.append(e.path))

        async def failed(event: HmrConfigUpdateFailed) -> None:
            self.failures.append(event)

        root.on(HmrConfigUpdateFailed, failed)

    @property
    def root(self) -> Context:
        return self.app.root

    def entry(self, row: str) -> Entry:
        return self.app.loader.resolve(f"{row}")

    def fiber(self, row: str) -> Fiber:
        fiber = self.entry(row).fiber
        assert fiber is not None
        return fiber

    def has(self, row: str) -> bool:
        return self.app.loader.find(f"{row}") is not None

    async def until(self, condition: Callable[[], Any]) -> None:
        """Wait for something that follows from a save; the limit only guards against a hang."""
        with anyio.fail_after(LIMIT):
            while not condition():
                await anyio.sleep(0.005)
        await self.app.loader.settle()

    async def reloaded(self, count: int) -> HmrReload:
        """Wait until there were `count` reloads; the last one."""
        await self.until(lambda: len(self.reloads) >= count)
        return self.reloads[-1]

    async def quiet_census(self) -> Any:
        """The census once it stays the same for a moment: a refresh may still be looking at files."""
        last: Any = None
        with anyio.fail_after(LIMIT):
            while (now := (self.census(), open_files(), len(sys.modules))) != last or "(hmr reload)" in str(now):
                last = now
                await anyio.sleep(0.03)
                await self.root.settle()
        return now

    def census(self) -> dict[str, Any]:
        """What must not grow: fibers, effects, services, listeners, tasks, threads, open files, modules."""
        picture = self.root.inspect()
        return {
            "fibers": str([_shape(fiber) for fiber in picture["fibers"]["children"]])
            if isinstance(picture["fibers"], dict)
            else str(picture["fibers"]),
            "services": sorted(service["name"] for service in picture["services"]),
            "events": sorted((event["name"], event["listeners"]) for event in picture["events"]),
            "tasks": len([task for task in asyncio.all_tasks() if not task.done()]),
            "threads": threading.active_count(),
        }


def _shape(fiber: dict[str, Any]) -> Any:
    return [fiber["name"], fiber["phase"], fiber["effects"], [_shape(child) for child in fiber["children"]]]


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@asynccontextmanager
async def running(project: Project) -> AsyncIterator[Running]:
    """Boot the project; the watcher is armed when the block is entered."""
    log: list[Any] = []
    async with boot(
        project.config,
        environment=LaunchEnvironment([]),
        home=Home(project.folder / "home", "$DSH_HOME"),
        cwd=project.folder,
        prepare=lambda root: root.provide("log", log),
    ) as app:
        run = Running(app, project, log)
        hmr = app.root.get(Hmr)
        if hmr is not None:
            with anyio.fail_after(LIMIT):
                await hmr.wait_armed()
        yield run
