"""What can stand where the cursor is: commands, their arguments, and files behind an `@`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

from .commands import CommandTable, Suggestion
from .file_names import FileNames

_FILE: Final = re.compile(r"(?:^|(?<=\s))@(\S*)$")
_COMMAND: Final = re.compile(r"/(\S*)$")
_ARGUMENT: Final = re.compile(r"/(\S+)[ \t]+((?:.*[ \t])?)(\S*)$")


class Completion:
    """Completes one console's input. folder: where `@` paths begin, asked at each use."""

    def __init__(self, table: CommandTable, folder: Callable[[], str]) -> None:
        self._table = table
        self._folder = folder
        self._files = FileNames()

    def applies(self, before: str) -> bool:
        """Whether there is something to offer without being asked for it; cheap, called at each key."""
        return (before.startswith("/") and "\n" not in before) or _FILE.search(before) is not None

    def is_file(self, before: str) -> bool:
        """Whether a file is named: then `suggestions` looks at the disk."""
        return _FILE.search(before) is not None

    def suggestions(self, before: str) -> tuple[int, list[Suggestion]]:
        """How many characters before the cursor a suggestion replaces, and the suggestions."""
        if match := _FILE.search(before):
            names = self._files.matching(self._folder(), match[1])
            return len(match[1]), [Suggestion(name) for name in names]
        if match := _COMMAND.fullmatch(before):
            commands = self._table.all()
            found = [Suggestion(each.name, each.help) for each in commands if each.name.startswith(match[1])]
            return len(match[1]), found
        if match := _ARGUMENT.fullmatch(before):
            command = self._table.get(match[1])
            if command is not None and command.complete is not None:
                return len(match[3]), matching(command.complete(match[2] + match[3]), match[3])
        return 0, []


def matching(candidates: Iterable[str | Suggestion], word: str) -> list[Suggestion]:
    """The candidates that begin with a word, then those that hold it."""
    known = [Suggestion(each) if isinstance(each, str) else each for each in candidates]
    wanted = word.casefold()
    first = [each for each in known if each.text.casefold().startswith(wanted)]
    return first + [each for each in known if wanted in each.text.casefold() and each not in first]
