"""The sessions below a root, read without opening a store: listing, finding by id, unique beginning or age.

Works on directory names, headers and file times alone, so that ten thousand sessions list in a moment; what needs
the log itself (`turn_count`, `title_of`) is asked for one session at a time. One bad artifact never hides the others.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any, Final

from dsh.cordis.errors import describe_error
from dsh.cordis.records import record, struct
from dsh.core.session_header import SessionHeader
from dsh.sessions.errors import (
    AmbiguousSessionError,
    SessionNotFoundError,
    SessionPersistenceCorruptionError,
    SessionPersistenceError,
)
from dsh.sessions.frames import FrameCodec
from dsh.sessions.lease import LeaseState, probe
from dsh.sessions.log_file import is_compressed, read_header, revision_of
from dsh.sessions.log_tail import last_in_log
from dsh.sessions.paths import (
    RAW_NAME,
    ZSTD_NAME,
    decode_id,
    encode_id,
    is_project_dir,
    project_dir,
    session_dir,
)

_NAMES: Final = (ZSTD_NAME, RAW_NAME)


@record
class StoredSession:
    """One readable session on disk. size: bytes; modified_ns: last write, ns since the epoch."""

    id: str
    header: SessionHeader
    path: str
    size: int
    modified_ns: int
    revision: str

    @property
    def directory(self) -> str:
        """The session's directory, which also holds its lease."""
        return os.path.dirname(self.path)

    @property
    def last_activity(self) -> int:
        """Last write in ms since the epoch."""
        return self.modified_ns // 1_000_000

    @property
    def compressed(self) -> bool:
        """Whether the log is stored as zstd frames."""
        return is_compressed(self.path)


@record
class UnreadableSession:
    """An artifact that cannot be listed. id: as far as its place tells; reason: a sentence for a person."""

    id: str | None
    path: str
    reason: str
    error: Exception | None = None


@struct
class Listing:
    """What stands below a root: `sessions` with the latest activity first, and what could not be read."""

    sessions: list[StoredSession] = field(default_factory=list)
    unreadable: list[UnreadableSession] = field(default_factory=list)


HeaderCache = dict[str, tuple[str, SessionHeader]]
"""path -> (revision, header); give the same one to later listings to read only what changed."""


def list_stored(root: str, *, cache: HeaderCache | None = None) -> Listing:
    """Every session below `root`; a root that does not exist holds none.

    cache: headers known from an earlier listing; brought up to date.
    """
    listing = Listing()
    known = {} if cache is None else cache
    seen: HeaderCache = {}
    by_id: dict[str, StoredSession] = {}
    twice: set[str] = set()
    codec: FrameCodec | None = None
    for found in _scan(root):
        if isinstance(found, UnreadableSession):
            listing.unreadable.append(found)
            continue
        session_id, path, st = found
        revision = revision_of(st)
        cached = known.get(path)
        try:
            if cached is not None and cached[0] == revision:
                header = cached[1]
            else:
                if codec is None and is_compressed(path):
                    codec = FrameCodec()
                header, st = read_header(path, session_id, codec)
                revision = revision_of(st)
                check_place(path, header)
        except (OSError, SessionPersistenceError) as error:
            listing.unreadable.append(UnreadableSession(session_id, path, reason_of(error), error))
            continue
        seen[path] = revision, header
        entry = StoredSession(header.id, header, path, st.st_size, st.st_mtime_ns, revision)
        if by_id.setdefault(entry.id, entry) is not entry:
            twice.add(entry.id)
            _refuse_double(listing, entry)
    known.clear()
    known.update(seen)
    for session_id in twice:
        _refuse_double(listing, by_id.pop(session_id))
    listing.sessions = sorted(by_id.values(), key=lambda entry: (-entry.modified_ns, entry.id))
    return listing


def find_artifact(root: str, session_id: str) -> str | None:
    """The path of a session's log, whatever workspace it belongs to; None if there is none.

    Raises SessionPersistenceCorruptionError if the id has more than one, or one in a place no longer used.
    """
    name = encode_id(session_id)
    found: list[str] = []
    for project in _project_dirs(root):
        directory = os.path.join(project, name)
        for file_name in _NAMES:
            path = os.path.join(directory, file_name)
            if os.path.lexists(path) and not _is_empty(path):
                found.append(path)
        for suffix in (".jsonl", ".jsonl.zstd"):
            if os.path.isfile(directory + suffix):
                raise SessionPersistenceCorruptionError(session_id, _flat(directory + suffix))
    if len(found) > 1:
        raise SessionPersistenceCorruptionError(session_id, f"more than one log: {', '.join(sorted(found))}")
    return found[0] if found else None


def first_artifact(root: str) -> str | None:
    """The path of some session's log below `root`; None if there is none."""
    return next((path for _, path in _ids(root)), None)


def resolve_stored(
    root: str, reference: str | None = None, *, last: bool = False, cwd: str | None = None
) -> StoredSession:
    """The session with that id, or the only one whose id begins with `reference`, or the only one that has it in its
    title (whatever the case), or (`last`) the latest.

    last: of top-level sessions, and of workspace `cwd` if given. Raises SessionNotFoundError, AmbiguousSessionError
    (with `candidates`), or what is wrong with the one artifact that was meant.
    """
    if last:
        for entry in list_stored(root).sessions:
            if entry.header.origin is None and (cwd is None or entry.header.cwd == cwd):
                return entry
        raise SessionNotFoundError("--last")
    if not reference:
        raise SessionNotFoundError("")
    path = find_artifact(root, reference)
    if path is not None:
        return read_entry(path, reference)
    candidates = {session_id: path for session_id, path in _ids(root) if session_id.startswith(reference)}
    if not candidates:
        return _by_title(root, reference)
    if len(candidates) > 1:
        raise AmbiguousSessionError(reference, sorted(candidates))
    session_id, path = candidates.popitem()
    found = find_artifact(root, session_id)
    return read_entry(found or path, session_id)


def _by_title(root: str, part: str) -> StoredSession:
    wanted = part.casefold()
    found = [entry for entry in list_stored(root).sessions if wanted in _known_title(entry).casefold()]
    if not found:
        raise SessionNotFoundError(part)
    if len(found) > 1:
        raise AmbiguousSessionError(part, [entry.id for entry in found], in_titles=True)
    return found[0]


def _known_title(entry: StoredSession) -> str:
    try:
        return title_of(entry) or ""
    except (OSError, SessionPersistenceError):
        return ""


def read_entry(path: str, session_id: str) -> StoredSession:
    """The entry of one artifact. Raises SessionPersistenceError."""
    try:
        header, st = read_header(path, session_id)
    except OSError as error:
        raise SessionPersistenceCorruptionError(session_id, reason_of(error)) from error
    check_place(path, header)
    return StoredSession(header.id, header, path, st.st_size, st.st_mtime_ns, revision_of(st))


def lease_state(entry: StoredSession) -> LeaseState:
    """Who holds a session now, or held it last."""
    return probe(entry.directory)


def turn_count(entry: StoredSession) -> int:
    """How many turns a log has, read from its end. Raises OSError, SessionPersistenceError."""
    turn = last_in_log(entry.path, entry.id, (b'"turn/start"', b'"turn/end"'), _turn_of)
    return turn or 0


def title_of(entry: StoredSession) -> str | None:
    """What a session is called, read from the end of its log. Raises OSError, SessionPersistenceError."""
    return last_in_log(entry.path, entry.id, (b'"session/title"',), _title_of)


def check_place(path: str, header: SessionHeader) -> None:
    """Raise SessionPersistenceCorruptionError unless the header belongs where its file stands."""
    directory = os.path.dirname(path)
    project = os.path.dirname(directory)
    if os.path.basename(directory) == encode_id(header.id) and os.path.basename(project) == project_dir(header.cwd):
        return
    derived = session_dir(os.path.dirname(project), header.cwd, header.id)
    if os.path.realpath(derived) != os.path.realpath(directory):
        raise SessionPersistenceCorruptionError(
            header.id, f"the header belongs to {derived}, but the log stands in {directory}"
        )


def _turn_of(row: Mapping[str, Any]) -> int | None:
    if row.get("type") not in ("turn/start", "turn/end"):
        return None
    turn = _data(row).get("turn")
    return turn if type(turn) is int else None


def _title_of(row: Mapping[str, Any]) -> str | None:
    title = _data(row).get("title") if row.get("type") == "session/title" else None
    return title if isinstance(title, str) else None


def _data(row: Mapping[str, Any]) -> Mapping[str, Any]:
    data = row.get("data")
    return data if isinstance(data, dict) else {}


def reason_of(error: Exception) -> str:
    """Why an artifact is unreadable, for a person."""
    if isinstance(error, SessionPersistenceCorruptionError):
        return error.why
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return describe_error(error)


# -- the directory tree -----------------------------------------------------------------------------------------------


def _scan(root: str) -> Iterator[tuple[str, str, os.stat_result] | UnreadableSession]:
    for project in _project_dirs(root):
        try:
            entries = list(os.scandir(project))
        except OSError as error:
            yield UnreadableSession(None, project, reason_of(error), error)
            continue
        for entry in entries:
            name = entry.name
            if name.endswith((".jsonl", ".jsonl.zstd")) and not _is_folder(entry):
                yield UnreadableSession(decode_id(name[: name.rindex(".jsonl")]), entry.path, _flat(entry.path))
                continue
            if not _is_folder(entry):
                continue
            found = _artifact_in(entry.path, decode_id(name))
            if found is not None:
                yield found


def _artifact_in(directory: str, session_id: str | None) -> tuple[str, str, os.stat_result] | UnreadableSession | None:
    zstd_path, raw_path = f"{directory}/{ZSTD_NAME}", f"{directory}/{RAW_NAME}"
    try:
        zstd, raw = _stat(zstd_path), _stat(raw_path)
    except OSError as error:
        return UnreadableSession(session_id, directory, reason_of(error), error)
    if zstd is None and raw is None:
        return None
    if zstd is not None and raw is not None:
        return UnreadableSession(session_id, directory, f"holds both {ZSTD_NAME} and {RAW_NAME}")
    path, st = (zstd_path, zstd) if zstd is not None else (raw_path, raw)
    assert st is not None
    if not stat.S_ISREG(st.st_mode):
        what = "is a directory" if stat.S_ISDIR(st.st_mode) else "is not a regular file"
        return UnreadableSession(session_id, path, what)
    if session_id is None:
        return UnreadableSession(None, path, f"{os.path.basename(directory)!r} is no encoded session id")
    if not st.st_size:
        return UnreadableSession(session_id, path, "the file is empty")
    return session_id, path, st


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _is_empty(path: str) -> bool:
    try:
        st = os.stat(path)
    except OSError:
        return False
    return stat.S_ISREG(st.st_mode) and not st.st_size


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # links that lead in a circle, a file server that does not answer
        return False


def _project_dirs(root: str) -> list[str]:
    try:
        with os.scandir(root) as entries:
            return sorted(entry.path for entry in entries if is_project_dir(entry.name) and _is_folder(entry))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise SessionPersistenceError(f"the session folder {root} cannot be read: {reason_of(error)}") from error


def _ids(root: str) -> Iterator[tuple[str, str]]:
    """(id, log path) of every session directory, without reading any log."""
    for project in _project_dirs(root):
        try:
            entries = list(os.scandir(project))
        except OSError:
            continue  # a listing names it
        for entry in entries:
            session_id = decode_id(entry.name)
            if session_id is None or not _is_folder(entry):
                continue
            for name in _NAMES:
                path = os.path.join(entry.path, name)
                if os.path.lexists(path):
                    yield session_id, path
                    break


def _flat(path: str) -> str:
    return f"{path} stands in the flat layout that is no longer read"


def _refuse_double(listing: Listing, entry: StoredSession) -> None:
    listing.unreadable.append(
        UnreadableSession(entry.id, entry.path, f"the id {entry.id!r} has logs in more than one project")
    )
