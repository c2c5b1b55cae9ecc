"""Writing a config file back: only what changed, only over the text that was read, never half a file.

Values that a patch layer or a program put over a file are not written into it: the changes given here apply to the
rows of the file itself.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dsh
from dsh.cordis import HarnessError
from dsh.loader.fileio import atomic_write, file_mode, is_read_only, retry_transient
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


class FileChangedError(WriteBackError):
    """Somebody saved the file between our reading and our replacing it."""


def edit_rows(path: str | os.PathLike[str], change: Change) -> list[str]:
    """Change the rows of a config file on disk; returns warnings. Blocking: for the command line and for threads.

    Comments, order and quoting of what does not change survive. A link is followed, the permissions are kept. A save
    by somebody else in between is not lost: `change` then runs again on the new rows. Raises WriteBackError, YamlError,
    and what `change` raises.
    """
    path = Path(path)
    for _ in range(_ATTEMPTS):
        before = read_bytes(path)
        text, warnings = rewritten(path, decoded(path, before or b""), change)
        try:
            replace_file(path, before, text.encode())
        except FileChangedError:
            continue
        return warnings
    raise FileChangedError(f"{show_path(path)}: it keeps changing while it is being written")


def read_bytes(path: Path) -> bytes | None:
    """The content of a file, None if there is none. Raises WriteBackError."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise WriteBackError(f"{show_path(path)}: cannot be read ({_reason(error)})") from error


def decoded(path: Path, data: bytes) -> str:
    """The text of a file. Raises WriteBackError."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise WriteBackError(f"{show_path(path)}: not UTF-8 text") from None


def rewritten(path: Path, text: str, change: Change) -> tuple[str, list[str]]:
    """The text of a config file with changed rows, and warnings. The same text if they are what they were.

    Raises WriteBackError, YamlError, and what `change` raises.
    """
    shown = show_path(path)
    rows = parse_text(text, path, file=shown) if text.strip("\ufeff \t\r\n") else []
    if rows is None:
        rows = []
    if not isinstance(rows, list):
        raise WriteBackError(f"{shown}: the file is not a list of rows")
    wanted = change(detach(rows))
    if same_value(rows, wanted) and text:
        return text, []
    if path.suffix == ".json":
        return json.dumps(json_value(wanted), indent=2, ensure_ascii=False) + "\n", []
    result = rewrite(text, wanted, rows=True)
    dumped = f"{shown}: was written anew, without its inner comments; its text could not be edited in place"
    return result.text, [dumped] if result.dumped else []


def replace_file(path: Path, before: bytes | None, after: bytes | None) -> None:
    """Put `after` in the place of `before` (None: no file), in one step. A link is followed, permissions are kept.

    Raises FileChangedError if the file does not hold `before` any more, WriteBackError if it cannot be written.
    """
    real = Path(os.path.realpath(path))

    def check_unchanged() -> None:
        if read_bytes(real) != before:
            raise FileChangedError(f"{show_path(path)}: it was changed by somebody else meanwhile")

    def write() -> None:
        check_unchanged()
        if after != before and is_read_only(real):
            raise WriteBackError(f"{show_path(path)}: the file is read-only; `chmod u+w {show_path(path)}` ends that")
        if after is None:
            real.unlink(missing_ok=True)
        elif after != before:
            atomic_write(real, after, mode=file_mode(real, _NEW_FILE_MODE), before_replace=check_unchanged)

    try:
        retry_transient(write)
    except OSError as error:
        raise WriteBackError(f"{show_path(path)}: cannot be written ({_reason(error)})") from error


def is_packaged(path: str | os.PathLike[str]) -> bool:
    """Whether a composition came with dsh, so that nobody's edits belong into it.

    The starter of a checkout stands beside the package; who works in that folder means that very file.
    """
    real = Path(os.path.realpath(path))
    package = Path(dsh.__file__).resolve().parent
    try:
        here = os.path.realpath(os.getcwd())
    except OSError:  # the folder was removed
        here = ""
    return package in real.parents or (real == package.parent / "cordis.yml" and str(real.parent) != here)


def _reason(error: OSError) -> str:
    return error.strerror or type(error).__name__


def json_value(value: Any) -> Any:
    """A value as a JSON file says it: expressions are mappings."""
    if isinstance(value, Expr):
        return {JSON_EXPR_KEY: value.source}
    if isinstance(value, dict):
        return {key: json_value(item) for key, item in value.items()}
    if isinstance(value, list):
        return [json_value(item) for item in value]
    return value
