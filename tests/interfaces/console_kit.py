"""What tests of consoles share: an agent that is none, an opened console of either kind, leaving it."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from dsh.interfaces.commands import CommandTable
from dsh.interfaces.dialogue import Dialogue
from dsh.interfaces.front import Waiting
from dsh.interfaces.screen import PlainScreen
from tests.cli.kit import Place
from tests.interfaces.control_kit import Controlled, controlled
from tests.interfaces.terminal import CTRL_D, Terminal, console

SETTINGS = "- {id: settings, name: dsh-settings-file, config: {debounceMs: 20}}\n"
HMR = "- {id: hmr, name: '@deepseek-ai/cordis-plugin-hmr', config: {debounce: 30}}\n"
BOTH = ("run", "attach")
"""The commands that open a console: on an agent of its own process, and on one of a daemon."""

GREETER = '''
"""Commands of a plugin, for whoever has a console."""

import asyncio
from pathlib import Path

from dsh.cordis import Context
from dsh.core.seams import Commands


def apply(ctx: Context) -> None:
    ctx.inject([Commands], add_commands)


def add_commands(ctx: Context) -> None:
    async def slowly(argument, screen):
        screen.print("it starts")
        try:
            await asyncio.Event().wait()
        finally:
            Path("ended").touch()

    async def late(argument, screen):
        screen.print("it waits")
        while not Path("go").exists():
            await asyncio.sleep(0.02)
        screen.print("it is done")

    def fails(argument, screen):
        raise ValueError("it went wrong")

    commands = ctx[Commands]
    commands.register("greet", lambda who, screen: screen.print(f"hello {who}"), "greet somebody",
                      lambda argument: ["alice", "bob"], argument="NAME")
    commands.register("slow", slowly, "takes for ever")
    commands.register("late", late, "waits for a file")
    commands.register("fail", fails, "fails")
'''
"""A plugin with commands that end in every way."""


@asynccontextmanager
async def opened(place: Place, command: str = "run", **size: Any) -> AsyncIterator[Terminal]:
    """A console at its prompt; ``attach``: on a daemon of its own."""
    async with AsyncExitStack() as stack:
        if command == "attach":
            await stack.enter_async_context(controlled(place))
        agent = ("main",) if command == "attach" else ()
        terminal = await stack.enter_async_context(console(place, *agent, command=command, **size))
        await terminal.stands("\n>")
        yield terminal


@asynccontextmanager
async def attached(place: Place) -> AsyncIterator[tuple[Controlled, Terminal]]:
    """A daemon, and a console on it at its prompt."""
    async with controlled(place) as control, console(place, "main", command="attach") as terminal:
        await terminal.stands("\n>")
        yield control, terminal


async def leaves(terminal: Terminal, by: str = CTRL_D) -> None:
    """Leave a console in good order."""
    terminal.type(by)
    assert await terminal.ends() == 0


class StillFront:
    """The front of an agent that does nothing; ``waiting``: its queue."""

    def __init__(self) -> None:
        self.waiting: list[Waiting] = []
        self.taking = asyncio.Event()
        """Set to let `take_back` end."""
        self.running = False
        self.folder = "/"

    def queue(self) -> Sequence[Waiting]:
        return self.waiting

    def rates(self) -> Any:
        return {}

    async def take_back(self, message_id: str) -> bool:
        await self.taking.wait()
        self.waiting = [each for each in self.waiting if each.id != message_id]
        return True


class Talk:
    """A dialogue without a terminal, with a `StillFront`. ``text``: what was printed."""

    def __init__(self, home: Path | None = None) -> None:
        self.front = StillFront()
        self.table = CommandTable()
        self.left: list[bool] = []
        front: Any = self.front
        self.dialogue = Dialogue(front, self.table, home, self.left.append)
        self._out = io.StringIO()
        self.dialogue.use(PlainScreen(self._out))
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()

    @property
    def text(self) -> str:
        return self._out.getvalue()

    def type(self, *lines: str | None) -> None:
        """Send lines; None is the end of the input."""
        for line in lines:
            self._lines.put_nowait(line)

    async def typed(self) -> AsyncIterator[str]:
        """What was typed, for `Dialogue.run`."""
        while (line := await self._lines.get()) is not None:
            yield line
