"""The `/` commands of a console: one registry for its own and for those that plugins add."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from dsh.cordis import Context, HarnessError, owned
from dsh.cordis.records import record
from dsh.core.seams import Commands

if TYPE_CHECKING:
    from dsh.cordis import Disposer

    from .screen import Screen

NAME: Final = re.compile(r"[a-z][a-z0-9_-]*")


@record
class Suggestion:
    """One way to complete a word; ``note`` says what it means."""

    text: str
    note: str = ""


Run = Callable[[str, "Screen"], "Awaitable[None] | None"]
Complete = Callable[[str], "Iterable[str | Suggestion]"]


@record
class Command:
    """A command: ``/name argument``. run: given the text behind the name, and where to print.

    ``argument`` names what may follow, for the help; ``complete``: given that text up to the cursor, the words that may
    stand in the place of its last one.
    """

    name: str
    run: Run
    help: str
    argument: str = ""
    complete: Complete | None = None


class CommandTable:
    """Commands by name."""

    def __init__(self) -> None:
        self._commands: dict[str, Command] = {}

    def add(self, command: Command) -> Callable[[], None]:
        """Enter a command; returns its undo. Raises HarnessError for a name that is malformed or taken."""
        if not NAME.fullmatch(command.name):
            text = f'command "{command.name}": a name begins with a letter and holds a-z, 0-9, _ and -'
            raise HarnessError(text, code="INVALID_COMMAND")
        if command.name in self._commands:
            raise HarnessError(f'command "/{command.name}" is registered already', code="DUPLICATE_COMMAND")
        self._commands[command.name] = command

        def remove() -> None:
            if self._commands.get(command.name) is command:
                del self._commands[command.name]

        return remove

    def get(self, name: str) -> Command | None:
        """The command of that name, without the slash."""
        return self._commands.get(name)

    def all(self) -> list[Command]:
        """Every command, in the order of registration."""
        return list(self._commands.values())


class ConsoleCommands(Commands):
    """The service `commands` of a composition with a console."""

    def __init__(self, ctx: Context, table: CommandTable) -> None:
        self._table = table
        self._own = set(table.all())

    def registered(self) -> list[Command]:
        """Every command that was registered here; not those that a console brings along."""
        return [each for each in self._table.all() if each not in self._own]

    @owned
    def register(  # type: ignore[override]
        self,
        caller: Context,
        name: str,
        run: Callable[[str, Any], Any],
        help: str,
        complete: Callable[[str], Iterable[Any]] | None = None,
        *,
        argument: str = "",
    ) -> Disposer:
        """See `Commands.register`."""
        command = Command(name, run, help, argument, complete)
        return caller.effect(lambda: self._table.add(command), f"commands.register(/{name})")
