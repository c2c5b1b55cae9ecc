"""One YAML or JSON document of the home folder: reading, locking, minimal edits, atomic replacement.

No message holds text of the document: it may contain secrets. A message says which file, which line, and what kind
of thing is wrong.
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from dsh.cordis import HarnessError
from dsh.cordis.jsonio import thaw
from dsh.loader.fileio import (
    DEFAULT_LOCK_LIMIT,
    atomic_write,
    document_lock,
    document_lock_async,
    ensure_private_dir,
    is_read_only,
    lock_path,
    read_text,
    retry_transient,
)
from dsh.loader.home import Home, expand_user
from dsh.loader.yamlio import YamlError, parse_yaml

SUFFIXES = (".yaml", ".yml", ".json")
PRIVATE = 0o600


class DocumentError(HarnessError):
    """A document that cannot be read or written; the text names file and place, never content."""

    code = "DOCUMENT"


def document_path(home: Home, configured: str | None, default: str) -> Path:
    """Where a document stands: the configured path (relative to the home folder), else `default` in the home folder.

    Raises DocumentError when the file name does not say whether it is YAML or JSON.
    """
    path = home.join(default) if not configured else home.path / expand_user(configured)
    if path.suffix not in SUFFIXES:
        raise DocumentError(f"{home.show(path)}: the file name must end in .yaml, .yml or .json", "DOCUMENT_FORMAT")
    return path


class Document:
    """One document on disk. Its methods are synchronous and belong into a thread; `lock_async` is the exception."""

    def __init__(self, path: Path, home: Home, *, lock_limit: float = DEFAULT_LOCK_LIMIT) -> None:
        self.path = path
        self.shown = home.show(path)
        self._shown_lock = home.show(lock_path(path))
        self._lock_limit = lock_limit

    def read(self) -> str | None:
        """The text as it is on disk, None when there is no file. Raises DocumentError."""
        try:
            return read_text(self.path)
        except FileNotFoundError:
            return None
        except UnicodeDecodeError:
            raise DocumentError(f"{self.shown}: not UTF-8 text", "DOCUMENT_ENCODING") from None
        except OSError as error:
            raise DocumentError(f"{self.shown}: cannot be read ({_reason(error)})", "DOCUMENT_UNREADABLE") from None

    def parse(self, text: str | None) -> Any:
        """The data of the text; None for a document without content. Raises DocumentError."""
        if text is None or not text.strip("\ufeff \t\r\n"):
            return None
        if self.path.suffix == ".json":
            return self._parse_json(text)
        try:
            return parse_yaml(text)
        except YamlError as error:
            raise self._syntax_error(error) from None

    def _parse_json(self, text: str) -> Any:
        def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
            found = dict(pairs)
            if len(found) != len(pairs):
                raise DocumentError(f"{self.shown}: a key appears twice in one mapping", "DOCUMENT_SYNTAX")
            return found

        try:
            return json.loads(text.removeprefix("\ufeff"), object_pairs_hook=unique, parse_constant=_no_constant)
        except json.JSONDecodeError as error:
            raise DocumentError(
                f"{self.shown}:{error.lineno}:{error.colno}: not valid JSON ({error.msg})", "DOCUMENT_SYNTAX"
            ) from None
        except (ValueError, RecursionError):
            raise DocumentError(f"{self.shown}: not valid JSON", "DOCUMENT_SYNTAX") from None

    def _syntax_error(self, error: YamlError) -> DocumentError:
        place = "".join(f":{part}" for part in (error.line, error.column) if part)
        # Where the parser says what it found, that is document text; all else is in our own words.
        if "stands twice" in error.reason:
            detail = "a key stands twice"
        elif error.reason.startswith("the tag "):
            detail = "a value that begins with ! needs quotes"
        elif "found" not in error.reason:
            detail = error.reason
        else:
            detail = re.split(r"['\";]", error.reason, maxsplit=1)[0].strip(" (:") or "unexpected text"
        return DocumentError(f"{self.shown}{place}: not valid YAML ({detail})", "DOCUMENT_SYNTAX")

    def edited(self, text: str | None, intended: Any) -> str:
        """`text` changed as little as possible so that it says `intended`."""
        text = text or ""
        if self.path.suffix == ".json":
            return json.dumps(thaw(intended), indent=2, ensure_ascii=False) + "\n"
        from dsh.loader.textedit import rewrite

        return rewrite(text, thaw(intended)).text

    def write(self, text: str) -> None:
        """Replace the file (0600 below a 0700 folder). Raises DocumentError."""
        if is_read_only(self.path):
            text = f"{self.shown}: the file is read-only; `chmod u+w {self.shown}` ends that"
            raise DocumentError(text, "DOCUMENT_READ_ONLY")
        try:
            ensure_private_dir(self.path.parent)
            retry_transient(lambda: atomic_write(self.path, text.encode("utf-8"), mode=PRIVATE))
        except OSError as error:
            raise DocumentError(f"{self.shown}: cannot be written ({_reason(error)})", "DOCUMENT_WRITE") from None

    def create_empty(self) -> None:
        """Create the file empty and private; one that exists stays as it is. Raises DocumentError."""
        try:
            ensure_private_dir(self.path.parent)
            os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE))
        except FileExistsError:
            return
        except OSError as error:
            raise DocumentError(f"{self.shown}: cannot be created ({_reason(error)})", "DOCUMENT_WRITE") from None

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the writer lock. Raises LockTimeoutError, DocumentError."""
        self._make_folder()
        with document_lock(self.path, limit=self._lock_limit, shown=self._shown_lock):
            yield

    @asynccontextmanager
    async def lock_async(self) -> AsyncIterator[None]:
        """As `lock`, for coroutines."""
        self._make_folder()
        async with document_lock_async(self.path, limit=self._lock_limit, shown=self._shown_lock):
            yield

    def _make_folder(self) -> None:
        try:
            ensure_private_dir(self.path.parent)
        except OSError as error:
            raise DocumentError(f"{self.shown}: cannot be written ({_reason(error)})", "DOCUMENT_WRITE") from None


def _no_constant(_text: str) -> Any:
    raise ValueError("not a JSON number")


def _reason(error: OSError) -> str:
    name = errno.errorcode.get(error.errno or 0, type(error).__name__)
    return f"{name}: {error.strerror}" if error.strerror else name
