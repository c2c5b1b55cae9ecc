"""Starting a composition: root context, launcher services, loader, rows, audit."""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from dsh.cordis import Context, HarnessError
from dsh.cordis.errors import error_chain
from dsh.cordis.inspection import walk
from dsh.cordis.records import struct

from .audit import audit, masked, report, secrets_of
from .environment import LaunchEnvironment, inherited_environment
from .failures import failures_of, plugin_traceback
from .home import Home, resolve_home
from .patches import Layer
from .problems import LoadError, Problem
from .sources import Source, UsageError, absolute
from .tree import Loader, LoaderOptions

START_PATIENCE = 5.0
"""Seconds that a start may take before it says which rows it waits for; it says so again when others are left."""


class BootError(HarnessError):
    """A start that failed: the whole report, secrets masked. `problems` lists the rows, if it was theirs."""

    code = "BOOT_FAILED"

    def __init__(self, message: str, problems: Sequence[Problem] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems)


class BootUsageError(BootError):
    """A start that failed for a `--set` argument: a usage error of the command line."""

    code = "USAGE"


class CommandLineArguments:
    """Service `cmdlineArgs`: the arguments that the launcher left to the app."""

    def __init__(self, args: Sequence[str]) -> None:
        self._args = tuple(args)

    def get(self) -> tuple[str, ...]:
        """The arguments, never changing."""
        return self._args


class AppExit:
    """Service `appExit`: call it with an exit code to end the run. The first code counts."""

    def __init__(self) -> None:
        self._code: int | None = None
        self._asked = asyncio.Event()

    def __call__(self, code: int = 0) -> None:
        """Ask the launcher to dispose everything and exit."""
        if self._code is None:
            self._code = code
            self._asked.set()

    @property
    def code(self) -> int | None:
        """The code asked for, `None` as long as nobody has."""
        return self._code

    async def wait(self) -> int:
        """Wait until somebody asks; the code."""
        await self._asked.wait()
        return self._code or 0


@struct
class App:
    """A running composition."""

    root: Context
    loader: Loader
    exit: AppExit
    started: asyncio.Event

    @property
    def is_over(self) -> bool:
        """Whether a row asked to exit, or shut the root down."""
        return self.exit.code is not None or self.root.fiber.is_retired


def make_source(
    path: str | os.PathLike[str],
    *,
    overlays: Sequence[str | os.PathLike[str]] = (),
    sets: Sequence[str] = (),
    inline: Sequence[Layer] = (),
    sibling: bool = True,
) -> Source:
    """The root source of a run: the file, the patch beside it, `--patch` overlays in order, the launcher's own
    layers, `--set` values."""
    layers = [absolute(each) for each in overlays]
    return Source(absolute(path), sibling=sibling, overlays=layers, inline=list(inline), sets=list(sets))


@asynccontextmanager
async def boot(
    source: str | os.PathLike[str] | Source,
    *,
    args: Sequence[str] = (),
    environment: LaunchEnvironment | None = None,
    home: Home | None = None,
    cwd: str | os.PathLike[str] | None = None,
    prepare: Callable[[Context], Any] | None = None,
    bin: str = "dsh",
    settle_limit: float = 30.0,
    dispose_timeout: float = 10.0,
) -> AsyncIterator[App]:
    """Start a composition and keep it running inside the `async with` block; leaving the block disposes everything.

    `source` is what `make_source` gives, or its file alone. `prepare(root)` (sync or async) runs before
    any row exists. A row that is not active once everything settled fails the start: `BootError` reports every such
    row (`<bin>: plugin tree failed to load: …`), after the partial root was disposed; a `--set` that fits no row raises
    `BootUsageError`. If a row shuts the root down or asks to exit meanwhile, the block is entered quietly; see
    `App.is_over`. Times are in seconds.
    """
    environment = environment or inherited_environment()
    home = home or resolve_home(environ=environment.values)
    if not isinstance(source, Source):
        source = make_source(source)
    root = Context(base_dir=source.base_dir, dispose_timeout=dispose_timeout)
    async with root:
        app_exit, started = AppExit(), asyncio.Event()
        root.provide("bootAudited", started)
        root.provide("cmdlineArgs", CommandLineArguments(args))
        root.provide("appExit", app_exit)
        root.provide("launchEnvironment", environment)
        root.provide("dshHomePath", home.path)
        options = LoaderOptions(
            env=environment.values,
            cwd=os.path.abspath(cwd or os.getcwd()),
            home=lambda *parts: str(home.join(*parts)),
            argv=(sys.executable, *sys.argv),
            settle_limit=settle_limit,
        )
        fiber = await root.plugin(Loader, options)
        if prepare is not None:
            await _prepare(root, prepare, environment.values, bin)
        app = App(root, fiber.instance, app_exit, started)
        await _load(app, source, environment.values, bin)
        app.started.set()
        yield app


async def when_started(ctx: Context) -> None:
    """Return once every row runs and the start was found good: only then front ends give work to agents."""
    started: asyncio.Event | None = ctx.get("bootAudited")
    if started is not None:
        await started.wait()
    loader: Loader | None = ctx.get("loader")
    if loader is not None:
        await loader.settle()


async def _prepare(root: Context, prepare: Callable[[Context], Any], env: Mapping[str, str], bin: str) -> None:
    try:
        result = prepare(root)
        if inspect.isawaitable(result):
            await result
    except Exception as error:
        await root.close()
        text = f"{bin}: host preparation failed: {error_chain(error)}\n{plugin_traceback(error)}"
        raise BootError(masked(text, secrets_of(None, env))) from error


async def _come_to_rest(app: App, env: Mapping[str, str]) -> None:
    """Wait, however long it takes, until no plugin starts any more; whoever watches hears what that waits for, and
    what failed meanwhile."""

    async def rest() -> None:
        while await app.loader.settle_fibers(()):
            pass
        await app.root.settle()

    patience = min(START_PATIENCE, app.loader.options.settle_limit)
    waited, said = 0.0, ""
    resting = asyncio.ensure_future(rest())
    try:
        while not (await asyncio.wait({resting}, timeout=patience))[0]:
            waited += patience
            names = ", ".join(_unsettled(app.root)) or "an event listener that does not return"
            if names != said:
                app.root.logger.warning("still starting after %g s: %s", waited, names)
                _tell_failures(app, env)
            said = names
    finally:
        resting.cancel()
    await resting


def _unsettled(root: Context) -> list[str]:
    """The rows that have not settled; for a plugin that a row mounted, the row and that plugin."""
    found = []
    for fiber in walk(root.fiber):
        if not fiber.is_settled and not any(not child.is_settled for child in fiber.children()):
            row = next((each for each in fiber.lineage() if each.entry_id is not None), None)
            if row is not None:
                found.append(f"{row.entry_id}" if row is fiber else f"{row.entry_id} (its plugin {fiber.display_name})")
    return found


def _tell_failures(app: App, env: Mapping[str, str]) -> None:
    """Log which rows failed, where the report that says so comes late or not at all."""
    secrets = secrets_of(app.loader, env)
    for problem in dict.fromkeys(problem for entry in app.loader.entries() for problem in failures_of(entry)):
        app.root.logger.error("%s", masked(str(problem), secrets))


async def _load(app: App, source: Source, env: Mapping[str, str], bin: str) -> None:
    problems: Sequence[Problem]
    try:
        # Read once before mounting: a file that cannot be used is reported for itself, not as a row's failure.
        app.loader.start(source, source.read())
        await _come_to_rest(app, env)
        if app.is_over:
            _tell_failures(app, env)
            return
        problems = audit(app.loader)
    except UsageError as error:
        await app.root.close()
        raise BootUsageError(f"{bin}: {error}", error.problems) from None
    except LoadError as error:
        problems = error.problems
    if not problems or app.is_over:
        return
    secrets = secrets_of(app.loader, env)
    await app.root.close()
    text = masked(report(problems), secrets)
    first = f"\n{text}" if "\n" in text else f" {text}"
    kind = BootUsageError if all(problem.is_argument for problem in problems) else BootError
    raise kind(f"{bin}: plugin tree failed to load:{first}", problems)
