"""Commands that plugins have registered, for consoles in other processes: which there are, and running one."""

from __future__ import annotations

import asyncio
import inspect
import io
from collections import deque
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from dsh.cordis import describe_error
from dsh.core.seams import Commands

from ..commands import Command, ConsoleCommands
from ..terminal_text import Style, visible
from .frames import STILL_HERE, frame_of
from .messages import ApiError, EventStream, Request, Response, only_fields

if TYPE_CHECKING:
    from .routes import Api

WIDEST = 1000
BEAT_SECONDS = 15.0


async def listing(api: Api, request: Request) -> Response:
    """What plugins have added to the console: `{commands: [{name, argument, help}]}`."""
    found = [{"name": each.name, "argument": each.argument, "help": each.help} for each in _registered(api)]
    return Response(body={"commands": found})


async def run(api: Api, request: Request, name: str) -> EventStream:
    """Run a command `{argument?, width?}` and stream what it prints: `command/output {text}`, in the end `command/end
    {error}`, null for success. It is cancelled when the client leaves."""
    body = request.json()
    only_fields(body, "argument", "width")
    argument, width = body.get("argument", ""), body.get("width", 80)
    if not isinstance(argument, str) or not isinstance(width, int) or not 1 <= width <= WIDEST:
        raise ApiError(400, "BAD_REQUEST", f"argument must be a text, and width a whole number from 1 to {WIDEST}")
    command = next((each for each in _registered(api) if each.name == name), None)
    if command is None:
        raise ApiError(404, "NO_COMMAND", f'there is no command "/{name}" of a plugin (any more)')
    running = _Running(command, argument, width)
    return EventStream(running.chunks(), running.leave)


def _registered(api: Api) -> list[Command]:
    found = api.ctx.get(Commands)
    return found.registered() if isinstance(found, ConsoleCommands) else []


class _Running:
    """A command under way, and the screen on which it prints."""

    live = False

    def __init__(self, command: Command, argument: str, width: int) -> None:
        self.style = Style(io.StringIO())
        self.width = width
        self._command = command
        self._argument = argument
        self._line = ""
        self._frames: deque[bytes] = deque()
        self._news = asyncio.Event()
        self._over = False

    def print(self, text: str) -> None:
        """See `Screen`."""
        line, self._line = self._line, ""
        self._put({"type": "command/output", "text": visible(f"{line}\n{text}" if line else text)})

    def write(self, text: str) -> None:
        """See `Screen`: whole lines are sent."""
        *lines, self._line = (self._line + text).split("\n")
        if lines:
            self._put({"type": "command/output", "text": visible("\n".join(lines))})

    def changed(self) -> None:
        """See `Screen`."""

    def leave(self) -> None:
        """The client is gone."""
        self._over = True
        self._news.set()

    async def chunks(self) -> AsyncIterator[bytes]:
        """What it prints, until it ends or the client leaves."""
        task = asyncio.create_task(self._run(), name=f"control: /{self._command.name}")
        try:
            while not self._over or self._frames:
                self._news.clear()
                if not self._frames:
                    try:
                        async with asyncio.timeout(BEAT_SECONDS):
                            await self._news.wait()
                    except TimeoutError:
                        yield STILL_HERE
                        continue
                while self._frames:
                    yield self._frames.popleft()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        error: str | None = None
        try:
            work: Any = self._command.run(self._argument, self)
            if inspect.isawaitable(work):
                await work
        except Exception as raised:
            error = describe_error(raised)
        if self._line:
            self.print("")
        self._put({"type": "command/end", "error": error})
        self.leave()

    def _put(self, frame: dict[str, Any]) -> None:
        self._frames.append(frame_of(frame))
        self._news.set()
