"""Where the rows of one tree come from: a file, and the layers over it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from dsh.cordis.nearest import nearest
from dsh.cordis.records import struct

from .operations import PROGRAM, Operation
from .patches import Composition, Layer, compose
from .problems import COMMAND_LINE, LoadError, Problem, unparsable, unreadable
from .raw_rows import is_group_row, walk_rows
from .resolve import show_path
from .rows import ParsedRows, parse_rows
from .yamlio import Expr, Mark, YamlError, YamlList, YamlMap, parse_text, parse_value, read_text


class UsageError(LoadError):
    """A `--set` argument that cannot be applied."""

    code = "USAGE"


@struct
class Reading:
    """What one read of a source gave. `texts` holds the content of each file, `None` for an absent optional one."""

    texts: dict[Path, str | None]
    composition: Composition
    parsed: ParsedRows

    @property
    def warnings(self) -> list[Problem]:
        """Patch items that were skipped."""
        return list(self.composition.warnings)


@struct
class Source:
    """A config file and its layers, lowest first: the file's rows, the sibling `<stem>.patch.yml` if it exists,
    `overlays` (must exist), `inline` patch lists, `sets` (`ROW.KEY=VALUE`), and changes made by the program. Without
    `path` there are only the latter."""

    path: Path | None
    sibling: bool = False
    overlays: Sequence[Path] = ()
    inline: Sequence[Layer] = ()
    sets: Sequence[str] = ()
    initial: Any = None
    """Rows that stand in for the file while it does not exist."""
    prefix: str = ""
    """Address of the include, with a `:` at its end."""
    folder: Path = Path()
    """Where relative names start if there is no file."""
    program: list[Operation] = field(default_factory=list)
    parsed: dict[Path, tuple[str, Any]] = field(default_factory=dict)
    """The last text of each file with its value, so that equal text is not parsed again."""
    ready: Reading | None = None
    """A reading for whoever opens the source next."""

    @property
    def base_dir(self) -> Path:
        """The folder that relative names of the rows start at."""
        return self.path.parent if self.path is not None else self.folder

    @property
    def shown(self) -> str:
        """The file as messages print it."""
        return show_path(self.path) if self.path is not None else PROGRAM

    @property
    def sibling_path(self) -> Path | None:
        """The patch file beside the file, whether or not it exists."""
        return self.path.with_name(f"{self.path.stem}.patch.yml") if self.sibling and self.path is not None else None

    def files(self) -> tuple[Path, ...]:
        """All files that are read, existing or not: what to watch."""
        found = [self.path, self.sibling_path, *self.overlays]
        return tuple(dict.fromkeys(path for path in found if path is not None))

    def read(
        self, *, user_layers: bool = True, texts: Mapping[Path, str | None] | None = None, program: bool = True
    ) -> Reading:
        """Read, compose and check. Raises `LoadError` with every problem found.

        `user_layers=False` leaves out all layers but the file (they may be broken), `program=False` what calls
        changed. `texts` takes the place of the files: what an earlier reading found, or what shall be written.
        """
        reader = _Reader(texts or {}, self.parsed)
        rows = YamlList() if self.path is None else reader.read(self.path, default=self.initial)
        layers = list(self._layers(reader)) if user_layers else []
        if reader.problems:
            raise LoadError(reader.problems)
        composition = compose(rows, self.shown, layers)
        if isinstance(composition.rows, list):
            wrong = [_apply_set(composition, text) for text in self.sets] if user_layers else []
            if any(wrong):
                raise UsageError(filter(None, wrong))
            for operation in self.program if program else ():
                operation.apply(composition)
        parsed = parse_rows(composition.rows, file=self.shown, prefix=self.prefix)
        problems = [*composition.problems, *parsed.problems]
        if problems:
            raise LoadError(problems, composition.warnings)
        return Reading(reader.texts, composition, parsed)

    def _layers(self, reader: _Reader) -> Iterator[Layer]:
        if self.sibling_path is not None:
            yield Layer(show_path(self.sibling_path), reader.read(self.sibling_path, default=[]))
        for path in self.overlays:
            yield Layer(show_path(path), reader.read(path))
        yield from self.inline


def _apply_set(composition: Composition, text: str) -> Problem | None:
    """Set one key of one row's config from `ROW.KEY=VALUE`; what is wrong with it otherwise."""

    def wrong(message: str, near: str | None = None) -> Problem:
        return Problem(f"{text}: {message}", "patch", file=COMMAND_LINE, nearest=near)

    target, equals, source = text.partition("=")
    if not equals or "." not in target:
        return wrong("expected ROW.KEY=VALUE")
    rows = {row["id"]: row for row in walk_rows(composition.rows) if isinstance(row.get("id"), str)}
    # Ids may contain dots: the longest id that fits is meant.
    row_id = max((known for known in rows if target.startswith(known + ".")), key=len, default=None)
    if row_id is None:
        near = nearest(target.partition(".")[0], rows)
        return wrong(f"no row has that id{f'; did you mean {near}?' if near else ''}", near)
    try:
        value = parse_value(source, COMMAND_LINE)
    except YamlError as error:
        return wrong(error.reason)
    row = rows[row_id]
    if is_group_row(row):
        return wrong("the row is a group; name one of its rows")
    *path, last = target[len(row_id) + 1 :].split(".")
    place: Any = row.get("config")
    if place is None:
        place = row["config"] = YamlMap()
    for key in path:
        if isinstance(place, Expr) or not isinstance(place, YamlMap):
            break
        if place.get(key) is None:
            place[key] = YamlMap()
        place = place[key]
    if not isinstance(place, YamlMap):
        return wrong("the key lies inside a value that is no mapping")
    place[last] = value
    place.marks[last] = Mark(f"{COMMAND_LINE} {target}", 0, 0)  # what is wrong with the value is wrong there
    origin = composition.origin(row)
    if origin is not None:
        origin.touch(COMMAND_LINE)
    return None


@struct
class _Reader:
    """Reads files once each; what cannot be read becomes a problem. `known` takes the place of files."""

    known: Mapping[Path, str | None]
    parsed: dict[Path, tuple[str, Any]]
    texts: dict[Path, str | None] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def read(self, path: Path, default: Any = None) -> Any:
        """The value of a file; `default` if it does not exist."""
        shown = show_path(path)
        try:
            text = self.known[path] if path in self.known else read_text(path, shown)
            self.texts[path] = text
            if text is None:
                raise FileNotFoundError(path)
            if path not in self.parsed or self.parsed[path][0] != text:
                self.parsed[path] = text, parse_text(text, path, file=shown)
            return self.parsed[path][1]
        except FileNotFoundError as error:
            self.texts[path] = None
            if default is not None:
                return default
            self.problems.append(unreadable(error, shown))
        except OSError as error:
            self.problems.append(unreadable(error, shown))
        except YamlError as error:
            self.problems.append(unparsable(error))
        return None


def absolute(path: str | os.PathLike[str]) -> Path:
    """A path made absolute without resolving links: messages show it as it was given."""
    return Path(os.path.abspath(path))
