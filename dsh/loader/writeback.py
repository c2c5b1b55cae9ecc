"""Writing a config file back: only what changed, only over the text that was read, never half a file.

Values that a patch layer or a program put over a file are not written into it: the changes given here apply to the
rows of the file itself.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dsh.cordis import HarnessError
from dsh.cordis.nearest import did_you_mean
from dsh.loader.fileio import atomic_write, file_mode, retry_transient
from dsh.loader.raw_rows import walk_rows
from dsh.loader.resolve import show_path
from dsh.loader.textedit import rewrite
from dsh.loader.yamlio import JSON_EXPR_KEY, Expr, detach, parse_text, same_value

Change = Callable[[list[Any]], list[Any]]
"""Takes the rows of the file (a private copy) and returns them as they shall be; raises to leave the file alone."""

_ATTEMPTS = 5
_NEW_FILE_MODE = 0o644


class WriteBackError(HarnessError):
    """A config file that was not written; the text names the file and the reason."""

    code = "WRITE_BACK_FAILED"


class _ChangedMeanwhileError(Exception):
    """Somebody saved the file between our reading and our replacing it."""


def edit_rows(path: str | os.PathLike[str], change: Change) -> list[str]:
    """Change the rows of a config file on disk; returns warnings. Blocking: for the command line and for threads.

    Comments, order and quoting of what does not change survive. A link is followed, the permissions are kept. A save
    by somebody else in between is not lost: `change` then runs again on the new rows. Raises WriteBackError, YamlError,
    and what `change` raises.
    """
    shown = show_path(path)
    real = Path(os.path.realpath(path))
    try:
        for _ in range(_ATTEMPTS):
            try:
                return retry_transient(lambda: _edit_once(real, shown, change))
            except _ChangedMeanwhileError:
                continue
    except OSError as error:
        raise WriteBackError(f"{shown}: cannot be written ({error.strerror or type(error).__name__})") from error
    raise WriteBackError(f"{shown}: it keeps changing while it is being written")


def _edit_once(path: Path, shown: str, change: Change) -> list[str]:
    data = path.read_bytes() if path.exists() else b""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise WriteBackError(f"{shown}: not UTF-8 text") from None
    rows = parse_text(text, path, file=shown) if text.strip() else []
    if rows is None:
        rows = []
    if not isinstance(rows, list):
        raise WriteBackError(f"{shown}: the file is not a list of rows")
    wanted = change(detach(rows))
    if same_value(rows, wanted) and data:
        return []
    warnings = []
    if path.suffix == ".json":
        edited = json.dumps(_json_value(wanted), indent=2, ensure_ascii=False) + "\n"
    else:
        result = rewrite(text, wanted, rows=True)
        edited = result.text
        if result.dumped:
            warnings.append(
                f"{shown}: was written anew, without its inner comments; its text could not be edited in place"
            )

    def check_unchanged() -> None:
        if (path.read_bytes() if path.exists() else b"") != data:
            raise _ChangedMeanwhileError

    mode = file_mode(path, _NEW_FILE_MODE)
    atomic_write(path, edited.encode("utf-8"), mode=mode, before_replace=check_unchanged)
    return warnings


def set_row_value(path: str | os.PathLike[str], row: str, keys: Sequence[str], value: Any) -> list[str]:
    """Set one key of a row of the file, e.g. `set_row_value("cordis.yml", "llm", ["config", "model"], "m")`.

    Raises as `edit_rows`, and WriteBackError when the file has no such row or the key lies inside a plain value.
    """

    def change(rows: list[Any]) -> list[Any]:
        place = _find(rows, row, path)
        for key in keys[:-1]:
            inner = place.get(key)
            if inner is None:
                inner = place[key] = {}
            if not isinstance(inner, dict):
                raise WriteBackError(
                    f'{show_path(path)}: row "{row}": {key} is no mapping, {keys[-1]} cannot be set in it'
                )
            place = inner
        place[keys[-1]] = value
        return rows

    return edit_rows(path, change)


def unset_row_value(path: str | os.PathLike[str], row: str, keys: Sequence[str]) -> list[str]:
    """Remove one key of a row of the file; a key that is not there is no error. Raises as `set_row_value`."""

    def change(rows: list[Any]) -> list[Any]:
        place: Any = _find(rows, row, path)
        for key in keys[:-1]:
            place = place.get(key) if isinstance(place, dict) else None
        if isinstance(place, dict):
            place.pop(keys[-1], None)
        return rows

    return edit_rows(path, change)


def _find(rows: list[Any], row: str, path: str | os.PathLike[str]) -> dict[str, Any]:
    found: dict[str, dict[str, Any]] = {}
    for _, _, each in walk_rows(rows):
        name = each.get("id", each.get("name"))
        if isinstance(name, str):
            found.setdefault(name, each)
    if row not in found:
        raise WriteBackError(f'{show_path(path)}: no row has the id "{row}"{did_you_mean(row, found)}')
    return found[row]


def _json_value(value: Any) -> Any:
    if isinstance(value, Expr):
        return {JSON_EXPR_KEY: value.source}
    if isinstance(value, dict):
        return {key: _json_value(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_json_value(item) for item in value]
    return value
