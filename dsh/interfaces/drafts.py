"""Edits of a composition before they are written: where a value stands, and the files with another one in its place.

A draft holds the new texts in memory. Whoever made it looks whether the composition is still good with them, and then
writes them; a file that somebody saved meanwhile is not written over.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal

from dsh.cordis import ConfigModel
from dsh.cordis.fields import FieldInfo
from dsh.cordis.issues import MISSING, Keys, Walk, path_text, show
from dsh.cordis.nearest import meant, nearest
from dsh.cordis.records import record
from dsh.interfaces.config_keys import declared_config
from dsh.loader.include import walk_composition
from dsh.loader.patches import lay_over
from dsh.loader.problems import COMMAND_LINE, LoadError, Problem
from dsh.loader.resolve import show_path
from dsh.loader.row_checks import check_config
from dsh.loader.rows import ROW_KEYS, Row
from dsh.loader.sources import Source
from dsh.loader.writeback import FileChangedError, WriteBackError, decoded, read_bytes, replace_file, rewritten
from dsh.loader.yamlio import Mark, YamlMap, detach, find_mark, same_value

Layer = Literal["file", "user", "patch", "arguments", "program", "default"]
"""What says a value: the row's own file, the patch file beside it, another patch, `--set`, a call, the plugin."""

USER: Final = "user"

Change = Callable[[Any, Keys], Any]
"""Takes the value of a row's key and the keys inside it; returns the value that shall stand there."""

_INDEX = re.compile(r"\[(\d+)\]")


@record
class Place:
    """Where a value of a composition stands, or would stand.

    `keys` lead to it from its row on. `mark` is the place of the value, or of the nearest thing around it.
    """

    source: Source
    row: Row
    keys: tuple[str | int, ...]
    value: Any
    found: bool
    """Whether the composition says the value; `value` is the default otherwise, if one is known."""
    layer: Layer
    mark: Mark | None

    @property
    def address(self) -> str:
        """The row's address."""
        return self.source.prefix + self.row.id

    @property
    def key(self) -> str:
        """The keys as messages show them."""
        return path_text(self.keys)

    def problem(self, message: str, **extra: Any) -> LoadError:
        """An error about the value."""
        found = Problem(message, "config", file=self.source.shown, row=self.address, key=self.key or None, **extra)
        return LoadError([found.at(self.mark)])

    def nothing(self) -> LoadError:
        """The error that nothing stands here, with the nearest key that does."""
        try:
            _without(detach(self.row.source.get(str(self.keys[0]), _GONE)), self.keys[1:])
        except _NoPlaceError as error:
            return self.problem(str(error), nearest=error.nearest)
        return self.problem("there is no such value")


class Draft:
    """New texts for files of a composition.

        draft = Draft(source)
        draft.set("agent-loop.maxParallelToolCalls", 4)
        problems = check(source, draft.texts).problems
        draft.write()

    Targets are `ROW.KEY.KEY`: a row's address and keys of its config, numbers for items of lists. Keys of the row
    itself (`ROW.disabled`) are meant where the config has no such key; `ROW.config.KEY` says it all.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.texts: dict[Path, str] = {}
        """The new text of each edited file."""
        self.warnings: list[str] = []
        self.slips: list[Problem] = []
        """New values under keys that the row's plugin does not read: whoever edits by hand has mistyped them."""
        self._before: dict[Path, bytes | None] = {}
        self._written: list[Path] = []

    # --- looking

    def find(self, target: str, source: Source | None = None) -> Place:
        """The place of a value. Raises `LoadError` naming the nearest row."""
        rows = {
            tree.prefix + row.id: (tree, row) for tree, row in walk_composition(source or self.source, texts=self.texts)
        }
        fitting = [name for name in rows if target == name or target.startswith(name + ".")]
        if not fitting:
            near = nearest(target, rows) or nearest(target.partition(".")[0], rows)
            message = f'no row has the id "{target.partition(".")[0]}"{meant(near)}'
            raise LoadError([Problem(message, file=self.source.shown, nearest=near)])
        address = max(fitting, key=len)
        tree, row = rows[address]
        parts = _INDEX.sub(r".\1", target[len(address) + 1 :]).split(".") if len(target) > len(address) else []
        return _placed(self.source, tree, row, parts)

    # --- editing

    def set(self, target: str, value: Any, layer: Layer | None = None) -> Place:
        """Give a value another content, in the file that says it now; `layer` chooses the file instead.

        Returns the place as it is then, without the layers above the chosen one. Raises `LoadError`, `YamlError` and
        `WriteBackError`.
        """
        return self._edit(target, layer, lambda whole, keys: _with(whole, keys, detach(value)))

    def unset(self, target: str, layer: Layer | None = None) -> Place:
        """Take a value out; what a lower layer or the plugin says is in force again. Raises as `set`, and `LoadError`
        when there is no such value."""
        return self._edit(target, layer, _without)

    def _edit(self, target: str, layer: Layer | None, change: Change) -> Place:
        source = self.source
        if layer == "file":
            source = replace(source, sibling=False, overlays=(), inline=(), sets=())
        elif layer == USER:
            source = replace(source, overlays=(), inline=(), sets=())
        place = self.find(target, source)
        if not place.keys:
            raise place.problem("name a key of the row, as in ROW.KEY")
        if place.row.is_group and place.keys[0] == "config":
            raise place.problem("the row is a group; name one of its rows")
        if place.keys[0] == "id":
            raise place.problem("rows are found by their id; change it with `dsh config edit`")
        if place.layer in ("arguments", "program"):
            raise place.problem("the value is of the running program or of its command line, and stands in no file")
        try:
            if layer == USER and place.layer != USER:
                self._override(place, change)
            else:
                self._change(place, change)
        except _NoPlaceError as error:
            raise place.problem(str(error), nearest=error.nearest) from None
        now = self.find(target, source)
        if not place.found:
            self.slips += _slips(now)
        return now

    def _change(self, place: Place, change: Change) -> None:
        """Edit the mapping that the value stands in, in whichever file."""
        row, key = place.row.source, str(place.keys[0])
        mark = row.marks.get(key, row.mark)
        path = self._path_of(mark)
        if mark is None or path is None:
            raise place.problem("its place in the file is not known")

        def edited(items: Any) -> Any:
            holder = _holder(items, row, key)
            if holder is None:
                raise place.problem("its place in the file is not known")
            value = change(holder.get(key, _GONE), place.keys[1:])
            own = path == place.source.path
            if not own and change is _without and value is not _GONE:
                value = _uncovered(value, self._below(place), place.keys[1:])
            _put(holder, key, value)
            return items if own else [item for item in items if not _says_nothing(item)]

        self._rewrite(path, edited)

    def _below(self, place: Place) -> Any:
        """What the files under the patches say for the row's key."""
        lower = replace(self.source, sibling=False, overlays=(), inline=(), sets=())
        with suppress(LoadError):
            return detach(self.find(place.address, lower).row.source.get(str(place.keys[0]), _GONE))
        return _GONE

    def _override(self, place: Place, change: Any) -> None:
        """Lay a patch item over the row in the patch file beside the composition."""
        path = place.source.sibling_path
        if path is None:
            raise place.problem("a patch beside the composition does not reach into included files")
        if place.row.derived_id:
            raise place.problem("the row has no id, and a patch finds rows by their id")
        key, row = str(place.keys[0]), place.row
        whole = change(detach(row.source.get(key, _GONE)), place.keys[1:])
        if whole is _GONE:
            raise _NoPlaceError(f"{show_path(path)} does not say it; only what it says can be taken out of it")

        def edited(items: Any) -> Any:
            lay_over(items, row.id, {key: whole})
            return items

        self._rewrite(path, edited)
        if len(place.keys) > 1:
            text = f"{show_path(path)} now holds the whole {key} of row {place.address}, and hides what is below it"
            self.warnings.append(text)

    def _path_of(self, mark: Mark | None) -> Path | None:
        if mark is not None:
            trees = [self.source, *(tree for tree, _ in walk_composition(self.source, texts=self.texts))]
            for path in dict.fromkeys(path for tree in trees for path in tree.files()):
                if show_path(path) == mark.file:
                    return path
        return None

    def _rewrite(self, path: Path, change: Callable[[Any], Any]) -> None:
        if path not in self._before:
            self._before[path] = read_bytes(path)
        text = self.texts.get(path)
        if text is None:
            text = decoded(path, self._before[path] or b"")
        self.texts[path], warnings = rewritten(path, text, change)
        self.warnings += warnings

    # --- writing

    def write(self) -> None:
        """Put the new texts in place, all of them or none. Raises `FileChangedError` when somebody saved a file since
        it was read here, `WriteBackError` when it cannot be written."""
        for path, text in self.texts.items():
            try:
                replace_file(path, self._before[path], text.encode())
            except WriteBackError:
                self.take_back()
                raise
            self._written.append(path)

    def take_back(self) -> None:
        """Put back what stood in the files before `write`; a file that somebody saved since stays as it is."""
        while self._written:
            path = self._written.pop()
            with suppress(FileChangedError):
                replace_file(path, self.texts[path].encode(), self._before[path])


# --- places -----------------------------------------------------------------------------------------------------------


def _placed(root: Source, tree: Source, row: Row, parts: Sequence[str]) -> Place:
    keys: list[str | int] = list(parts)
    if keys and keys[0] != "config":
        config = row.source.get("config")
        in_config = isinstance(config, Mapping) and keys[0] in config
        if keys[0] not in ROW_KEYS or in_config or keys[0] in _fields(tree, row):
            keys.insert(0, "config")
    value: Any = row.source
    found = True
    for at, key in enumerate(keys):
        if isinstance(value, list) and str(key).isdigit():
            keys[at] = key = int(key)
            found = key < len(value)
        else:
            found = isinstance(value, Mapping) and key in value
        value = value[key] if found else None
        if not found:
            break
    mark = find_mark(row.source, keys) or row.mark
    layer = _layer_of(root, tree, mark)
    if not found and keys[:1] == ["config"] and len(keys) > 1:
        value = _default(tree, row, keys[1:])
        layer = layer if value is MISSING else "default"
    return Place(tree, row, tuple(keys), None if value is MISSING else value, found, layer, mark)


def _slips(place: Place) -> list[Problem]:
    declared = declared_config(place.source, place.row)
    if declared is None:
        return []
    _, odd = check_config(place.source, place.row, declared)
    return [each for each in odd if each.key == place.key]


def _layer_of(root: Source, tree: Source, mark: Mark | None) -> Layer:
    if mark is None:
        return "program"
    if mark.file.startswith(COMMAND_LINE):
        return "arguments"
    if tree.path is not None and mark.file == tree.shown:
        return "file"
    user = root.sibling_path
    return USER if user is not None and mark.file == show_path(user) else "patch"


def _fields(tree: Source, row: Row) -> dict[str, FieldInfo]:
    """The fields of the config that the row's plugin declares, by key."""
    declared = declared_config(tree, row)
    if not (isinstance(declared, type) and issubclass(declared, ConfigModel)):
        return {}
    return {info.key: info for info in declared.fields().values()}


def _default(tree: Source, row: Row, keys: Sequence[str | int]) -> Any:
    """What the plugin takes when nothing is said; `MISSING` if that is not known."""
    info = _fields(tree, row).get(str(keys[0]))
    value = MISSING if info is None else info.make_default(Walk(), ())
    if isinstance(value, ConfigModel):
        value = value.to_wire(redact=True)
    for key in keys[1:]:
        value = value.get(key, MISSING) if isinstance(value, Mapping) else MISSING
    return value


# --- values -----------------------------------------------------------------------------------------------------------


class _NoPlaceError(Exception):
    """Where the value should go, nothing can be put, or taken from."""

    def __init__(self, message: str, near: str | None = None) -> None:
        super().__init__(message)
        self.nearest = near


_GONE: Final = object()
"""The value of a key that is not there, or shall not be."""


def _holder(data: Any, row: YamlMap, key: str) -> YamlMap | None:
    """The mapping of a file that says `key` of a composed row: the row itself, or the item that patches it."""
    own, patched = row.mark, row.marks.get(key)
    if patched is None or (own is not None and own.file == patched.file):
        found = next((each for each in _mappings(data) if each.mark == own), None)
        if found is not None:
            return found
    return next((each for each in _mappings(data) if each.marks.get(key) == patched), None)


def _mappings(value: Any) -> Iterator[YamlMap]:
    if isinstance(value, YamlMap):
        yield value
    for item in value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ():
        yield from _mappings(item)


def _put(holder: Any, key: Any, value: Any) -> Any:
    if value is _GONE:
        del holder[key]
    elif isinstance(holder, list) and key == len(holder):
        holder.append(value)
    else:
        holder[key] = value
    return holder


def _with(whole: Any, keys: Keys, value: Any) -> Any:
    """`whole` with `value` under `keys`; mappings in between are made."""
    if not keys:
        return value
    if whole is None or whole is _GONE:
        whole = YamlMap()
    key = keys[0]
    if isinstance(whole, list):
        if not isinstance(key, int) or key > len(whole):
            raise _NoPlaceError(f"a list of {len(whole)} items has no item {key}")
        inner = whole[key] if key < len(whole) else _GONE
    elif isinstance(whole, dict):
        inner = whole.get(key, _GONE)
    else:
        raise _NoPlaceError(f"{key} cannot be set in it: it is {show(whole)}, and no mapping")
    return _put(whole, key, _with(inner, keys[1:], value))


def _without(whole: Any, keys: Keys) -> Any:
    """`whole` without what stands under `keys`."""
    if not keys and whole is not _GONE:
        return _GONE
    known = whole if isinstance(whole, Mapping) else {}
    inside = isinstance(whole, list) and isinstance(keys[0], int) and keys[0] < len(whole)
    if not keys or not (inside or keys[0] in known):
        near = nearest(str(keys[0]), known) if keys else None
        raise _NoPlaceError(f"there is no such value{meant(near)}", near)
    return _put(whole, keys[0], _without(whole[keys[0]], keys[1:]))


def _uncovered(value: Any, below: Any, keys: Keys) -> Any:
    """What stays of a patched value when that under `keys` was taken out: what is below is in force again, and a patch
    that says the same, or nothing, goes."""
    found = below
    for key in keys:
        inside = found if isinstance(found, Mapping) else dict(enumerate(found)) if isinstance(found, list) else {}
        found = inside.get(key, _GONE)
    with suppress(_NoPlaceError):
        value = value if found is _GONE or isinstance(keys[-1], int) else _with(value, keys, found)
    return _GONE if value == {} or (below is not _GONE and same_value(value, below)) else value


def _says_nothing(item: Any) -> bool:
    """Whether a patch item only names a row."""
    return isinstance(item, Mapping) and "id" in item and item.keys() <= {"id", "name"}
