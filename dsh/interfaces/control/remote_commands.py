"""Commands that plugins of a daemon have registered, in the table of a console elsewhere: run there, shown here."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote

from dsh.cordis import HarnessError

from ..commands import Command, CommandTable
from .client import ANSWER_SECONDS, REQUEST_SECONDS, ControlError

if TYPE_CHECKING:
    from ..screen import Screen
    from .link import Link

NO_LIMIT = (ANSWER_SECONDS, None, REQUEST_SECONDS, REQUEST_SECONDS)
"""A command may take as long as it likes; `Silence` tells when its daemon does not answer."""


class RemoteCommands:
    """Keeps the daemon's commands in a table. A name that the console itself has stays its own."""

    def __init__(self, link: Link, table: CommandTable) -> None:
        self._link = link
        self._table = table
        self._added: list[Callable[[], None]] = []

    async def learn(self) -> None:
        """Ask which there are now; a daemon of an earlier version knows of none."""
        try:
            found = (await self._link.request("GET", "/api/commands"))["commands"]
        except ControlError:
            return
        while self._added:
            self._added.pop()()
        for each in found:
            command = Command(each["name"], partial(self._run, each["name"]), each["help"], each["argument"])
            try:
                self._added.append(self._table.add(command))
            except HarnessError:
                continue

    async def _run(self, name: str, argument: str, screen: Screen) -> None:
        body = {"argument": argument, "width": screen.width}
        path = f"/api/commands/{quote(name)}"
        with self._link.silence.asking():
            async with aclosing(self._link.frames("POST", path, json=body, timeout=NO_LIMIT)) as frames:
                async for frame in frames:
                    if frame["type"] == "command/output":
                        screen.print(frame["text"])
                    elif frame["error"] is not None:
                        raise ControlError(frame["error"])
                    else:
                        return
        raise ControlError(f"the daemon broke off /{name}")
