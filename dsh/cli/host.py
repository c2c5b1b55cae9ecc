"""From a command to a running composition and back: environment, signals, boot, shutdown, exit code."""

from __future__ import annotations

import asyncio
import atexit
import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from dsh.cli.output import fail, tell

if TYPE_CHECKING:
    from dsh.cli.last_line import LastLine
    from dsh.cordis import Context
    from dsh.interfaces.stdin import ByteInput
    from dsh.interfaces.stdout import LineOutput
    from dsh.loader.boot import App, AppExit

GRACE_SECONDS = 5.0
"""How long a graceful shutdown may take before the process leaves anyway."""

STRAY_SECONDS = 1.0
"""How long tasks that no plugin owns may take to end after that."""


@dataclass(slots=True)
class Launch:
    """What a command wants to run: a file, the user's layers over it, and a layer of the command's own.

    ``rows`` are added by the command (``{id, name, config}``), ``defaults`` too, unless the file has such a row of its
    own; ``changes`` are patch items it needs; ``values`` are root values that plugins may read; ``follow`` says whether
    edits of files are taken over; ``task`` that there is something to finish, so that every signal which ends it
    earlier is a failure; ``stdout`` is given when standard output carries lines for programs, ``last_line`` when they
    end with one that says what came of the run, ``stdin`` when a client on the other side of it is served: its end is
    the end of the run.
    """

    config: Path
    patches: Sequence[Path] = ()
    sets: Sequence[str] = ()
    rows: Sequence[Mapping[str, Any]] = ()
    defaults: Sequence[Mapping[str, Any]] = ()
    changes: Sequence[Mapping[str, Any]] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    follow: bool = True
    task: bool = False
    stdout: LineOutput | None = None
    last_line: LastLine | None = None
    stdin: ByteInput | None = None


def default_config() -> Path:
    """The composition that runs when no file is named: ``./cordis.yml``, else the packaged starter."""
    from dsh.cli.starter import starter_folder

    here = Path("cordis.yml")
    # Whatever is called so is meant: a folder or a dangling link is said to be one, not passed over.
    return here if os.path.lexists(here) else starter_folder() / "cordis.yml"


def run(launch: Launch) -> int:
    """Boot, run until something asks to exit, shut down; the process's exit code."""
    from dsh.loader.environment import DotenvRefusedError, load_launch_environment
    from dsh.loader.home import resolve_home

    home = resolve_home()
    try:
        environment = load_launch_environment(home)
    except DotenvRefusedError as error:
        fail(str(error))
    for warning in environment.warnings:
        tell(warning)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            code = runner.run(_to_the_end(_main(launch, environment, home), launch.last_line))
        if launch.last_line is not None:
            launch.last_line.conclude(code)
    finally:
        if launch.stdout is not None:
            launch.stdout.close()
    if launch.stdout is not None and launch.stdout.failure is not None:
        fail(f"standard output cannot be written: {launch.stdout.failure.strerror}")
    if launch.stdin is not None:
        _exit_now(code)  # a client counts the seconds; only memory is left, and freeing a long log takes one
    return code


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _to_the_end(main: Coroutine[Any, Any, int], line: LastLine | None) -> int:
    """The exit code of `main`, once every task that no plugin owns has had its chance to end too.

    The loop's own end would wait for them without limit.
    """
    code = await main
    strays = asyncio.all_tasks() - {asyncio.current_task()}
    for task in strays:
        task.cancel()
    if strays:
        _, deaf = await asyncio.wait(strays, timeout=STRAY_SECONDS)
        if deaf:
            _give_up(", ".join(sorted(task.get_name() for task in deaf)), code, line, STRAY_SECONDS)
    return code


async def _main(launch: Launch, environment: Any, home: Any) -> int:
    from dsh.interfaces.plugin_offers import PluginOffers
    from dsh.loader.boot import BootError, BootUsageError, boot, make_source
    from dsh.loader.patches import Layer

    # asyncio's own number, six on two processors, would let a few files on a share that hangs stop everything.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(40, "dsh"))
    signals = Signals(task=launch.task, server=launch.stdin is not None, line=launch.last_line)
    items = [*launch.changes, *([{"insert": list(launch.rows)}] if launch.rows else [])]
    layers = [Layer("the command line", items)] if items else []
    if launch.defaults:
        layers.append(Layer("the command line", [{"insert": list(launch.defaults)}], gives_way=True))

    def prepare(root: Context) -> None:
        root.provide("pluginOffers", PluginOffers())
        app_exit: AppExit = root["appExit"]
        signals.exit = app_exit
        root.provide("runStartedAt", time.time_ns() // 1_000_000)
        root.provide("configuredAgentSessions", {})
        root.provide("prompted", {})
        root.provide("followFiles", launch.follow)
        root.provide("takeInterrupts", signals.take_interrupts)
        for name, value in launch.values.items():
            root.provide(name, value)
        if launch.stdout is not None:
            root.provide("stdout", launch.stdout)
        if launch.stdin is not None:
            root.provide("stdin", launch.stdin)
            asked = asyncio.ensure_future(app_exit.wait())
            asked.add_done_callback(lambda _: signals.stop_starting())  # clients may have enough before it stands

    starting = boot(
        make_source(launch.config, overlays=launch.patches, sets=launch.sets, inline=layers),
        environment=environment,
        home=home,
        prepare=prepare,
    )
    if launch.stdin is not None:
        launch.stdin.start(on_end=partial(_client_left, launch.stdin, signals))
    try:
        app = await _interruptible(starting.__aenter__(), signals)
    except BootError as error:
        message = str(error).removeprefix("dsh: ")
        tell(message, failed=True)
        if launch.last_line is not None:
            launch.last_line.failed(error.code, message)
        return 2 if isinstance(error, BootUsageError) else 1
    if app is None:
        return signals.code or 0
    _collect_garbage_again()
    try:
        if launch.follow:
            from dsh.loader.hmr import keep_following

            keep_following(app.root, app.loader)
        return await app.exit.wait()
    finally:
        signals.leaving(app.exit.code or 0)
        await _leave(app, starting, launch.last_line)


def _client_left(stdin: ByteInput, signals: Signals) -> None:
    """The input is over. Whoever serves it will notice; a start that nobody waits for any more is given up.

    Requests that came before are answered if the start does not take too long.
    """
    wait = 0.0 if stdin.is_empty else GRACE_SECONDS
    asyncio.get_running_loop().call_later(wait, signals.stop_starting)


def _collect_garbage_again() -> None:
    """The collector was turned off when the command was found."""
    gc.freeze()
    gc.unfreeze()  # both together count everything there is as old, without looking at it
    # Each streamed chunk leaves three objects in its log for good. Looked through at every 700, as by default, they
    # cost a fifth of a chunk's time and, from 100,000 chunks on, pauses of 75 ms.
    gc.set_threshold(5000)
    gc.enable()


async def _interruptible(starting: Any, signals: Signals) -> App | None:
    """Boot, unless a signal comes first."""
    task = asyncio.ensure_future(starting)
    stopped = asyncio.ensure_future(signals.stopped.wait())
    await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=GRACE_SECONDS)
        if not task.done():
            _give_up("the start", signals.code or 0, signals.line)
        if task.cancelled() or task.exception() is not None:
            return None
    app: App = task.result()
    return app


async def _leave(app: App, starting: Any, line: LastLine | None) -> None:
    """Dispose everything within the grace time; what misses it is named and left behind."""
    leaving = asyncio.ensure_future(starting.__aexit__(None, None, None))
    done, _ = await asyncio.wait({leaving}, timeout=GRACE_SECONDS)
    if done:
        try:
            leaving.result()
        except Exception as error:
            from dsh.cordis.errors import error_chain

            tell(f"shutdown: {error_chain(error)}")
        return
    late = ", ".join(_unloading(app.root.inspect()["fibers"]))
    _give_up(late or "the end of the run", app.exit.code or 0, line)


def _give_up(what: str, code: int, line: LastLine | None, seconds: float = GRACE_SECONDS) -> NoReturn:
    tell(f"shutdown took longer than {seconds:g} s, left behind: {what}")
    _exit_now(code, line)


def _exit_now(code: int, line: LastLine | None = None) -> NoReturn:
    """Exit without unloading; the exit hooks still end child processes, which must not outlive us."""
    if line is not None:
        line.conclude(code)
    atexit._run_exitfuncs()
    sys.stderr.flush()
    os._exit(code)


def _unloading(fiber: Mapping[str, Any]) -> list[str]:
    """Row ids, or plugin names, of the innermost fibers that are still being undone."""
    inside = [name for child in fiber["children"] for name in _unloading(child)]
    return inside or ([str(fiber["entryId"] or fiber["name"])] if fiber["phase"] == "unloading" else [])


class Signals:
    """The first signal asks for a graceful end, the second leaves at once, as does any once the run is ending.

    Of a server, one signal after it began to end is not the second: clients ask it to shut down, close its input and
    signal it in one go.
    """

    def __init__(self, *, task: bool = False, server: bool = False, line: LastLine | None = None) -> None:
        self.line = line
        self.exit: Callable[[int], None] | None = None
        self.code: int | None = None
        self._forgiving = server
        self.stopped = asyncio.Event()
        self._interrupt: Callable[[], None] | None = None
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            if number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                continue  # nohup: the run is meant to outlive its terminal
            code = 128 + number if task or number == signal.SIGINT else 0
            loop.add_signal_handler(number, self._received, number, code)

    def leaving(self, code: int) -> None:
        """The run is ending with this exit code, whoever asked for it."""
        if self.code is None:
            self.code = code

    def stop_starting(self) -> None:
        """Give up a start that is still under way, with code 0."""
        self.stopped.set()

    def take_interrupts(self, handle: Callable[[], None]) -> Callable[[], None]:
        """Let a front end answer SIGINT while the run goes on; returns how to give it back."""
        self._interrupt = handle

        def give_back() -> None:
            self._interrupt = None

        return give_back

    def _received(self, number: signal.Signals, code: int) -> None:
        if number == signal.SIGINT and self._interrupt is not None and self.code is None:
            self._interrupt()
            return
        forgiving, self._forgiving = self._forgiving, False
        if self.code is not None:
            if forgiving:
                return
            _exit_now(128 + number, self.line)
        self.code = code
        self.stopped.set()
        if self.exit is not None:
            self.exit(code)
