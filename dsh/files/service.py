"""The file seam: what tools and policies may ask of a file system, its errors and its events.

A provider (`fs-local`, a confining one) subclasses `Fs`; everything else imports only this module.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Literal

from dsh.cordis import Emit, HarnessError, Service, Waterfall
from dsh.cordis.records import record

from .text import valid_text

if TYPE_CHECKING:
    from dsh.cordis import AbortSignal
    from dsh.core.tool_run import ToolRun

FileType = Literal["file", "directory", "other"]
EntryType = Literal["file", "directory", "symlink", "other"]
Operation = Literal["create", "update"]


class FsError(HarnessError):
    """A file operation that did not happen; the message names the operation and the path.

    Codes: FS_NOT_FOUND, FS_NOT_DIRECTORY, FS_NOT_TEXT, FS_NOT_REGULAR_FILE, FS_TOO_LARGE, FS_PERMISSION_DENIED,
    FS_SANDBOX_DENIED, FS_IO_ERROR, FS_STALE_VERSION, FS_NOT_OBSERVED, FS_AMBIGUOUS_EDIT, FS_EDIT_NOT_FOUND, FS_ABORTED.
    """

    code = "FS_IO_ERROR"

    def __init__(self, code: str, message: str) -> None:
        super().__init__(valid_text(message), code)


@record
class FsTarget:
    """One place in the file system.

    `target_key` is opaque and equal for all names of one file, links included; it stays the same when the file is
    created. `display_path` is the absolute path as it was asked for, for people and messages; it may hold surrogate
    escapes where a name is not UTF-8.
    """

    target_key: str
    display_path: str


@record
class FileStat:
    """`version` changes with every change of the file; `size` is in bytes, None where it says nothing."""

    version: str
    type: FileType
    size: int | None


@record
class LinkStat:
    """A stat that does not follow a final link."""

    version: str
    type: EntryType
    size: int | None


@record
class DirEntry:
    """One name in a directory; links are not followed."""

    name: str
    type: EntryType


@record
class CreateIfAbsent:
    """Write only where nothing is yet; whatever appears meanwhile survives."""


@record
class ReplaceIfVersion:
    """Change only the version that was seen."""

    version: str


WriteExpectation = CreateIfAbsent | ReplaceIfVersion | None


@record
class Written:
    """A write that happened. `before` is None for a new file and where the old content is not shown (binary, large,
    unreadable); both texts have LF line ends."""

    operation: Operation
    version: str
    before: str | None
    after: str


@record
class Edited:
    """An edit that happened; both texts have LF line ends and no byte order mark."""

    version: str
    before: str
    after: str


class Fs(Service, name="fs"):
    """A file system with guarded changes. A second provider in one realm fails to load.

    Every method raises `FsError`; `signal` stops an operation between system calls with code FS_ABORTED.
    """

    @property
    def sandbox_mode(self) -> str | None:
        """The mode this provider confines changes to; None = it does not confine."""
        return None

    @abstractmethod
    async def resolve(self, path: str, cwd: str | None = None, signal: AbortSignal | None = None) -> FsTarget:
        """Where `path` leads, relative to `cwd` (default: the provider's own). The file need not exist.

        Raises `ValueError` for a blank path. Nothing is expanded: no `~`, no variables.
        """

    @abstractmethod
    def process_path(self, target: FsTarget) -> str:
        """The path under which a child process finds the target."""

    @abstractmethod
    def file_url(self, target: FsTarget) -> str:
        """The `file:` URL of the target."""

    @abstractmethod
    def contains(self, parent: FsTarget, child: FsTarget) -> bool:
        """Whether `child` is `parent` or lies below it."""

    @abstractmethod
    async def stat(self, target: FsTarget, signal: AbortSignal | None = None) -> FileStat | None:
        """What the target is; None when there is nothing."""

    @abstractmethod
    async def lstat(self, path: str, signal: AbortSignal | None = None) -> LinkStat | None:
        """What the absolute `path` itself is, a link being a link; None when there is nothing."""

    @abstractmethod
    async def read_text(self, target: FsTarget, signal: AbortSignal | None = None) -> str:
        """The whole text (UTF-8, without byte order mark). Raises FS_NOT_TEXT for anything else."""

    @abstractmethod
    def stream_text(self, target: FsTarget, signal: AbortSignal | None = None) -> AsyncIterator[str]:
        """The text in pieces; same rules as `read_text`. Close the iterator when leaving it early."""

    @abstractmethod
    async def read_bytes(self, target: FsTarget, signal: AbortSignal | None = None, *, max_bytes: int) -> bytes:
        """The content, FS_TOO_LARGE above `max_bytes`."""

    @abstractmethod
    async def list_dir(self, target: FsTarget, signal: AbortSignal | None = None) -> list[DirEntry]:
        """The entries in order of their names; no file is opened."""

    @abstractmethod
    async def write_text(
        self,
        target: FsTarget,
        content: str,
        expected: WriteExpectation = None,
        signal: AbortSignal | None = None,
        sandbox_policy: Any = None,
    ) -> Written:
        """Replace the whole content in one step that no reader can see half of; missing parents are made.

        Raises FS_NOT_OBSERVED or FS_STALE_VERSION when `expected` does not hold.
        """

    @abstractmethod
    async def edit_text(
        self,
        target: FsTarget,
        old_string: str,
        new_string: str,
        replace_all: bool = False,
        expected: ReplaceIfVersion | None = None,
        signal: AbortSignal | None = None,
        sandbox_policy: Any = None,
    ) -> Edited:
        """Replace `old_string`, which must occur once unless `replace_all`; all other bytes stay.

        The version is checked before anything is matched. Raises FS_STALE_VERSION (also for a missing file),
        FS_EDIT_NOT_FOUND, FS_AMBIGUOUS_EDIT.
        """


@record
class Present:
    """The actor saw this version."""

    version: str


@record
class Absent:
    """The actor saw that nothing is there."""


Observation = Present | Absent


def _agent_of(event: Any) -> Any:
    return None if event.actor is None else event.actor.agent


class FsWriteIntent(Waterfall[WriteExpectation], name="fs/write-intent", scoped_by=_agent_of):
    """A tool is about to write `target`. The first listener that answers decides; the default is unconditional."""

    target: FsTarget
    actor: ToolRun | None


class FsEditIntent(Waterfall[ReplaceIfVersion | None], name="fs/edit-intent", scoped_by=_agent_of):
    """A tool is about to edit `target`. A listener answers what must hold, or raises `FsError` to refuse."""

    target: FsTarget
    actor: ToolRun | None


class FsObserved(Emit, name="fs/observed", veto=True, scoped_by=_agent_of):
    """The actor has learned what is at `target`. A raising listener fails the call."""

    target: FsTarget
    observation: Observation
    actor: ToolRun | None
