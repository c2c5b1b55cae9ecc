"""What is wrong with a composition, said so that a person can fix it: file, line, row, key, and what would be right."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

from dsh.cordis.errors import HarnessError, error_chain
from dsh.cordis.records import record

from .yamlio import Mark, YamlError

COMMAND_LINE = "--set"
"""The place of values that were given on the command line."""

Stage = Literal["read", "parse", "validate", "patch", "import", "config", "apply", "dispose", "rollback"]


@record
class Problem:
    """One thing that is wrong. `str()` of it is the whole message."""

    message: str
    stage: Stage = "validate"
    file: str | None = None
    line: int | None = None
    column: int | None = None
    row: str | None = None
    """Address of the row: its id, with those of the includes around it (`outer:inner`)."""
    key: str | None = None
    """Key path inside the row, e.g. `config.agents[0].label`."""
    plugin: str | None = None
    """The row's `name`."""
    allowed: tuple[str, ...] = ()
    """What would be accepted, if that is a short list."""
    nearest: str | None = None
    """The valid word that is most like the one given."""
    error: BaseException | None = None
    """The exception behind it, if any."""

    @property
    def is_argument(self) -> bool:
        """Whether it was given on the command line: a mistake in its use."""
        return self.file is not None and self.file.startswith(COMMAND_LINE)

    @property
    def place(self) -> str:
        """`cordis.yml:12`, or as much of it as is known."""
        return ":".join(str(part) for part in (self.file, self.line) if part)

    def __str__(self) -> str:
        where = []
        if self.row is not None:
            where.append(f'row "{self.row}"')
        if self.key:
            where.append(f"key {self.key}")
        elif self.plugin is not None and self.stage in ("import", "config", "apply", "dispose", "rollback"):
            where.append(f"{self.stage} of {self.plugin}")
        return ": ".join(part for part in (self.place, ", ".join(where), self.message) if part)

    def at(self, mark: Mark | None) -> Problem:
        """The same problem with a place."""
        return self if mark is None else replace(self, file=mark.file, line=mark.line, column=mark.column)


class LoadError(HarnessError):
    """A composition, or an edit of one, that cannot be used. Nothing was changed (unless `rollback` problems say so).

    `problems` lists everything found; the attributes `file`, `line`, `row`, `key`, `stage`, `allowed` and `nearest`
    are those of the first one.
    """

    code = "LOAD_FAILED"

    def __init__(self, problems: Iterable[Problem], warnings: Iterable[Problem] = ()) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        self.warnings: tuple[Problem, ...] = tuple(warnings)
        super().__init__("\n".join(map(str, self.problems)))
        causes = [problem.error for problem in self.problems if problem.error is not None]
        if len(causes) == 1:
            self.__cause__ = causes[0]
        elif causes:
            self.__cause__ = BaseExceptionGroup("several rows failed", causes)
        first = self.problems[0] if self.problems else Problem("nothing is known about it")
        self.file, self.line, self.row, self.key = first.file, first.line, first.row, first.key
        self.stage, self.allowed, self.nearest = first.stage, first.allowed, first.nearest


def unreadable(error: OSError, shown: str) -> Problem:
    """A file that cannot be read."""
    if isinstance(error, FileNotFoundError):
        message = "the file does not exist"
    elif isinstance(error, IsADirectoryError):
        message = "is a folder; name the file in it"
    else:
        message = f"cannot be read: {error.strerror or error_chain(error)}"
    return Problem(message, "read", file=shown, error=error)


def unparsable(error: YamlError) -> Problem:
    """A file that is not in our YAML dialect."""
    return Problem(
        error.reason,
        "parse",
        file=error.file or None,
        line=error.line or None,
        column=error.column or None,
        error=error,
    )
