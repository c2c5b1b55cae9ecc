"""A folder with a composition, plugins that note what they do, and an app that runs it."""

from __future__ import annotations

import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from dsh.cordis import Context, Fiber
from dsh.loader.boot import App, boot, make_source
from dsh.loader.entries import Entry
from dsh.loader.environment import EnvLayer, LaunchEnvironment
from dsh.loader.home import Home
from dsh.loader.problems import LoadError

NOTE = '''
"""Notes its life in the list service `notes`, provided by the test."""
from dsh.cordis import ConfigModel, field

inject = ["notes"]

class Config(ConfigModel):
    text: str = "-"
    fail: bool = False
    size: int = field(1, min=1)
    live: int = field(0, live=True)

def apply(ctx, config):
    notes = ctx["notes"]
    if config.fail:
        raise RuntimeError(f"{ctx.fiber.entry_id} cannot start")
    notes.append(f"+{ctx.fiber.entry_id} {config.text}")
    ctx.defer(lambda: notes.append(f"-{ctx.fiber.entry_id}"))
'''

PROVIDER = '''
"""Provides the service `thing` with the configured value."""
from types import SimpleNamespace
from dsh.cordis import ConfigModel

provides = ["thing"]

class Config(ConfigModel):
    value: str = "one"
    parts: list[str]
    fail: bool = False

def apply(ctx, config):
    if config.fail:
        raise RuntimeError("the provider cannot start")
    ctx.provide("thing", SimpleNamespace(value=config.value, parts=config.parts))
'''

CONSUMER = '''
"""Needs `thing` and notes what it saw of it."""
from dsh.cordis import ConfigModel

inject = ["thing", "notes"]

class Config(ConfigModel):
    seen: str = ""

def apply(ctx, config):
    notes = ctx["notes"]
    notes.append(f"+{ctx.fiber.entry_id} {ctx['thing'].value} {config.seen}".rstrip())
    ctx.defer(lambda: notes.append(f"-{ctx.fiber.entry_id}"))
'''

PLUGINS = {"note.py": NOTE, "provider.py": PROVIDER, "consumer.py": CONSUMER}


class Composition:
    """A running composition and the files it came from."""

    def __init__(self, folder: Path, notes: list[str]) -> None:
        self.folder = folder
        self.notes = notes
        self.app: App

    @property
    def root(self) -> Context:
        return self.app.root

    @property
    def loader(self) -> Any:
        return self.app.loader

    def write(self, text: str, name: str = "cordis.yml") -> None:
        (self.folder / name).write_text(textwrap.dedent(text))

    async def edit(self, text: str, name: str = "cordis.yml") -> bool:
        """Save a file and let the loader read it."""
        self.write(text, name)
        changed: bool = await self.app.loader.refresh(self.folder / name)
        return changed

    async def refused(self, text: str, name: str = "cordis.yml") -> LoadError:
        """Save a file that the loader must refuse."""
        try:
            await self.edit(text, name)
        except LoadError as error:
            return error
        raise AssertionError("the edit was taken over")

    def entry(self, address: str) -> Entry:
        return self.app.loader.resolve(address)

    def fiber(self, address: str) -> Fiber:
        fiber = self.entry(address).fiber
        assert fiber is not None
        return fiber

    def states(self) -> dict[str, str]:
        """The state of each row of the file and below."""
        return {entry.address: entry.state for entry in self.app.loader.entries() if entry.address != "include"}

    def fibers(self) -> dict[str, Fiber | None]:
        return {entry.address: entry.fiber for entry in self.app.loader.entries()}

    def take(self) -> list[str]:
        """What was noted since the last call."""
        taken, self.notes[:] = list(self.notes), []
        return taken


def write_plugins(folder: Path, **more: str) -> None:
    """The plugins of this kit, and more by name."""
    files = {**PLUGINS, **{f"{name}.py": text for name, text in more.items()}}
    for name, text in files.items():
        (folder / name).write_text(textwrap.dedent(text))


@asynccontextmanager
async def running(folder: Path, text: str | None = None, **options: Any) -> AsyncIterator[Composition]:
    """Boot `text` (or the cordis.yml that stands in the folder) and run it inside the block."""
    notes: list[str] = []
    composition = Composition(folder, notes)
    if text is not None:
        composition.write(text)
    outer = options.pop("prepare", None)

    def prepare(root: Context) -> None:
        root.provide("notes", notes)
        if outer is not None:
            outer(root)

    options.setdefault("environment", LaunchEnvironment([EnvLayer("process", {"FROM_ENV": "env"})]))
    options.setdefault("home", Home(folder / "home", "~/.dsh"))
    layers = {name: options.pop(name) for name in ("overlays", "sets", "inline", "sibling") if name in options}
    async with boot(make_source(folder / "cordis.yml", **layers), prepare=prepare, **options) as app:
        composition.app = app
        yield composition
