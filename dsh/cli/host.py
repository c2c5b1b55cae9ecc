"""From a command to a running composition and back: environment, signals, boot, shutdown, exit code."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsh.cli.output import fail

if TYPE_CHECKING:
    from dsh.cordis import Context
    from dsh.interfaces.stdout import LineOutput

GRACE_SECONDS = 5.0


@dataclass(slots=True)
class Launch:
    """What a command wants to run.

    ``rows`` are added to the composition by the command itself; ``disabled`` names rows it switches off;
    ``values`` are root values that plugins may read; ``stdout`` claims standard output for protocol lines.
    """

    config: Path
    patches: Sequence[Path] = ()
    sets: Sequence[str] = ()
    rows: Sequence[Mapping[str, Any]] = ()
    disabled: Sequence[str] = ()
    watch: bool = True
    own_interrupts: bool = False
    values: Mapping[str, Any] = field(default_factory=dict)
    stdout: LineOutput | None = None


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
        print(f"dsh: {warning}", file=sys.stderr)
    exit_ = Exit()
    values = {
        "launchEnvironment": environment,
        "dshHomePath": lambda *parts: str(home.join(*parts)),
        "appExit": exit_.request,
        "cmdlineArgs": lambda: (),
        "configuredAgentSessions": {},
        **launch.values,
    }
    if launch.stdout is not None:
        values["stdout"] = launch.stdout
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        code = runner.run(_main(launch, values, exit_))
    if launch.stdout is not None:
        launch.stdout.close()
    return code


class Exit:
    """The one way out: whoever asks first decides the code; a second signal leaves at once."""

    def __init__(self) -> None:
        self.code: int | None = None
        self._asked: asyncio.Event | None = None

    def attach(self) -> None:
        """Bind to the running loop and take over the process's signals."""
        self._asked = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number, code in ((signal.SIGTERM, 0), (signal.SIGHUP, 0), (signal.SIGINT, 130)):
            loop.add_signal_handler(number, self._signal, number, code)

    def request(self, code: int = 0) -> None:
        """Ask for shutdown with this exit code."""
        if self.code is None:
            self.code = code
        if self._asked is not None:
            self._asked.set()

    async def wait(self) -> int:
        """Return the code once somebody asked."""
        assert self._asked is not None
        await self._asked.wait()
        assert self.code is not None
        return self.code

    def _signal(self, number: int, code: int) -> None:
        if self.code is not None:
            os._exit(128 + number)
        self.request(code)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop  # type: ignore[no-any-return]


async def _main(launch: Launch, values: Mapping[str, Any], exit_: Exit) -> int:
    raise NotImplementedError
