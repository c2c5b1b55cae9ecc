"""Blocking file work on the local disk: each function is one job for a worker thread.

Paths are bytes here, so that nothing depends on the locale; `check` is called between system calls and raises to stop.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable

from .atomic_write import HardLinksUnsupportedError, Publication, publish
from .service import (
    CreateIfAbsent,
    DirEntry,
    Edited,
    EntryType,
    FileStat,
    FsError,
    FsTarget,
    LinkStat,
    ReplaceIfVersion,
    WriteExpectation,
    Written,
)
from .text import BINARY_PROBE, count_matches, splice, to_lf, valid_text, without_bom

Check = Callable[[], None]

READ_PIECE = 256 * 1024
_OPEN = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


def to_bytes(path: str) -> bytes:
    """The bytes of a path: UTF-8, with the surrogate escapes of foreign names turned back."""
    try:
        return path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return valid_text(path).encode()


def to_text(path: bytes) -> str:
    """The path as text; bytes that are not UTF-8 become surrogate escapes."""
    return path.decode("utf-8", "surrogateescape")


def version_of(status: os.stat_result) -> str:
    """What identifies one state of one file."""
    return f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}"


def failure(verb: str, display: str, error: OSError) -> FsError:
    """The `FsError` that tells why `verb` failed."""
    match error.errno:
        case errno.ENOENT:
            code, reason = "FS_NOT_FOUND", "not found"
        case errno.ENOTDIR:
            code, reason = "FS_NOT_DIRECTORY", "a parent path segment is not a directory"
        case errno.EACCES | errno.EPERM:
            code, reason = "FS_PERMISSION_DENIED", "permission denied"
        case errno.EISDIR:
            code, reason = "FS_NOT_REGULAR_FILE", "not a regular file"
        case errno.ELOOP:
            code, reason = "FS_IO_ERROR", "too many levels of symbolic links"
        case errno.ENAMETOOLONG:
            code, reason = "FS_IO_ERROR", "a name in the path is too long"
        case number:
            code, reason = "FS_IO_ERROR", os.strerror(number) if number else str(error)
    return FsError(code, f'cannot {verb} "{display}": {reason}')


def resolve(path: str, cwd: str) -> FsTarget:
    """See `Fs.resolve`; `cwd` is absolute."""
    if not path.strip():
        raise ValueError("file_path must be a non-empty string")
    if "\0" in path or "\0" in cwd:
        raise FsError("FS_IO_ERROR", f'cannot resolve "{path}": the path holds a NUL character'.replace("\0", "\ufffd"))
    raw, base = to_bytes(path), to_bytes(cwd)
    try:
        if b".." in raw.split(b"/") or b".." in base.split(b"/"):
            # A child process started in cwd would see its real path, so `..` starts from there.
            base = os.path.realpath(base)
        display = os.path.normpath(os.path.join(base, raw))
        if display.startswith(b"//"):
            display = display[1:]
        try:
            key = os.path.realpath(display, strict=True)
        except FileNotFoundError:
            key = os.path.realpath(display)
    except OSError as error:
        raise failure("resolve", path, error) from error
    return FsTarget(to_text(key), to_text(display))


def file_stat(target: FsTarget) -> FileStat | None:
    """See `Fs.stat`."""
    try:
        status = os.stat(to_bytes(target.target_key))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise failure("stat", target.display_path, error) from error
    if stat.S_ISREG(status.st_mode):
        return FileStat(version_of(status), "file", status.st_size)
    return FileStat(version_of(status), "directory" if stat.S_ISDIR(status.st_mode) else "other", None)


def link_stat(path: str) -> LinkStat | None:
    """See `Fs.lstat`."""
    try:
        status = os.lstat(to_bytes(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise failure("stat", path, error) from error
    kind: EntryType = "other"
    if stat.S_ISREG(status.st_mode):
        kind = "file"
    elif stat.S_ISDIR(status.st_mode):
        kind = "directory"
    elif stat.S_ISLNK(status.st_mode):
        kind = "symlink"
    return LinkStat(version_of(status), kind, status.st_size if kind == "file" else None)


def list_dir(target: FsTarget) -> list[DirEntry]:
    """See `Fs.list_dir`."""
    try:
        with os.scandir(to_bytes(target.target_key)) as entries:
            found = [DirEntry(to_text(entry.name), _entry_type(entry)) for entry in entries]
    except NotADirectoryError as error:
        raise FsError("FS_NOT_DIRECTORY", f'cannot list "{target.display_path}": not a directory') from error
    except OSError as error:
        raise failure("list", target.display_path, error) from error
    return sorted(found, key=lambda entry: entry.name)


def _entry_type(entry: os.DirEntry[bytes]) -> EntryType:
    if entry.is_symlink():
        return "symlink"
    if entry.is_dir(follow_symlinks=False):
        return "directory"
    return "file" if entry.is_file(follow_symlinks=False) else "other"


def open_file(target: FsTarget, verb: str) -> tuple[int, os.stat_result]:
    """A descriptor of the regular file, and its stat. Nothing that could block or act on being opened is waited for."""
    try:
        fd = os.open(to_bytes(target.target_key), _OPEN)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket
            raise _not_regular(verb, target) from error
        raise failure(verb, target.display_path, error) from error
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        os.close(fd)
        raise _not_regular(verb, target)
    return fd, status


def read_text(target: FsTarget, check: Check) -> str:
    """See `Fs.read_text`."""
    fd, _ = open_file(target, "read")
    try:
        content = _read_all(fd, check, lambda head: refuse_binary(head, "read", target))
    except OSError as error:
        raise failure("read", target.display_path, error) from error
    finally:
        os.close(fd)
    return without_bom(_decode(content, "read", target))


def read_bytes(target: FsTarget, max_bytes: int, check: Check) -> bytes:
    """See `Fs.read_bytes`. The size is checked before reading, and again while reading: a file may grow."""
    fd, status = open_file(target, "read")
    try:
        size = status.st_size
        content = b"" if size > max_bytes else _read_all(fd, check, limit=max_bytes + 1)
        if len(content) > max_bytes:
            size = max(os.fstat(fd).st_size, len(content))
    except OSError as error:
        raise failure("read", target.display_path, error) from error
    finally:
        os.close(fd)
    if max(size, len(content)) > max_bytes:
        message = f'cannot read "{target.display_path}": {size} bytes exceeds the {max_bytes}-byte limit'
        raise FsError("FS_TOO_LARGE", message)
    return content


def write_text(
    target: FsTarget, content: str, expected: WriteExpectation, basis_max: int, new_mode: int, check: Check
) -> Written:
    """See `Fs.write_text`. A diff basis (`before`) is read only below `basis_max` bytes."""
    content = valid_text(content)
    data = content.encode()
    check()
    path, display = to_bytes(target.target_key), target.display_path
    old = _stat_for_write(path, target)
    _require(old, expected, display)
    before = _diff_basis(target, old, check) if old is not None and max(old.st_size, len(data)) < basis_max else None

    def last_check() -> None:
        check()
        if isinstance(expected, ReplaceIfVersion):
            _require(_stat_for_write(path, target), expected, display)

    how = _publication(old, new_mode, exclusive=isinstance(expected, CreateIfAbsent))
    try:
        new = publish(path, data, how, last_check)
    except HardLinksUnsupportedError as error:
        reason = "the file system has no hard links, so creating a file could replace another one unseen"
        raise FsError("FS_IO_ERROR", f'cannot write "{display}": {reason}') from error
    except FileExistsError as error:
        raise _occupied(path, target) from error
    except OSError as error:
        raise failure("write", display, error) from error
    return Written("create" if old is None else "update", version_of(new), before, to_lf(content))


def edit_text(
    target: FsTarget, old: str, new: str, replace_all: bool, expected: ReplaceIfVersion | None, check: Check
) -> Edited:
    """See `Fs.edit_text`."""
    check()
    path, display = to_bytes(target.target_key), target.display_path
    try:
        fd, status = open_file(target, "edit")
    except FsError as error:
        if error.code == "FS_NOT_FOUND":
            raise _changed("edit", display) from error
        raise
    try:
        seen = version_of(status)
        if expected is not None and expected.version != seen:
            raise _changed("edit", display)
        content = _read_all(fd, check)
    except OSError as error:
        raise failure("edit", display, error) from error
    finally:
        os.close(fd)
    if b"\0" in content:
        raise FsError("FS_NOT_TEXT", f'cannot edit "{display}": binary file')
    text = _decode(content, "edit", target)
    found = count_matches(text, old)
    if found == 0:
        raise FsError("FS_EDIT_NOT_FOUND", f'old_string was not found in "{display}"')
    if found > 1 and not replace_all:
        advice = "provide a more specific old_string or set replace_all to true"
        raise FsError("FS_AMBIGUOUS_EDIT", f'old_string matched {found} times in "{display}"; {advice}')
    spliced = splice(text, old, valid_text(new), every=replace_all)

    def last_check() -> None:
        check()
        if _version_now(path) != seen:
            raise _changed("edit", display)

    try:
        published = publish(path, spliced.text.encode(), _publication(status, 0o600), last_check)
    except OSError as error:
        raise failure("edit", display, error) from error
    return Edited(version_of(published), spliced.before, spliced.after)


def decode_error(verb: str, target: FsTarget) -> FsError:
    """The bytes are not UTF-8."""
    return FsError("FS_NOT_TEXT", f'cannot {verb} "{target.display_path}": invalid UTF-8 text')


def _decode(content: bytes, verb: str, target: FsTarget) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise decode_error(verb, target) from error


def refuse_binary(head: bytes, verb: str, target: FsTarget) -> None:
    """Raise FS_NOT_TEXT when the first bytes of a file hold a NUL."""
    if b"\0" in head[:BINARY_PROBE]:
        raise FsError("FS_NOT_TEXT", f'cannot {verb} "{target.display_path}": binary file')


def _read_all(
    fd: int, check: Check, judge_head: Callable[[bytes], None] | None = None, limit: int | None = None
) -> bytes:
    pieces: list[bytes] = []
    left = limit
    while left is None or left > 0:
        check()
        piece = os.read(fd, READ_PIECE if left is None else min(READ_PIECE, left))
        if not piece:
            break
        if not pieces and judge_head is not None:
            judge_head(piece)
        pieces.append(piece)
        left = None if left is None else left - len(piece)
    return b"".join(pieces)


def _diff_basis(target: FsTarget, old: os.stat_result, check: Check) -> str | None:
    """The old text with LF line ends; None when it is no text, cannot be read, or changes meanwhile."""
    try:
        fd, _ = open_file(target, "read")
        try:
            content = _read_all(fd, check, lambda head: refuse_binary(head, "read", target), old.st_size + 1)
        finally:
            os.close(fd)
        return to_lf(without_bom(content.decode())) if len(content) == old.st_size else None
    except (OSError, UnicodeDecodeError):
        return None
    except FsError as error:
        if error.code == "FS_ABORTED":
            raise
        return None


def _publication(old: os.stat_result | None, new_mode: int, *, exclusive: bool = False) -> Publication:
    if old is None:
        return Publication(new_mode, exclusive=exclusive)
    owner = (old.st_uid, old.st_gid)
    foreign = os.geteuid() == 0 and owner != (0, os.getegid())
    return Publication(old.st_mode & 0o777, owner if foreign else None, exclusive)


def _stat_for_write(path: bytes, target: FsTarget) -> os.stat_result | None:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise failure("write", target.display_path, error) from error
    if not stat.S_ISREG(status.st_mode):
        raise _not_regular("write", target)
    return status


def _version_now(path: bytes) -> str | None:
    try:
        return version_of(os.stat(path))
    except OSError:
        return None


def _require(old: os.stat_result | None, expected: WriteExpectation, display: str) -> None:
    if isinstance(expected, CreateIfAbsent) and old is not None:
        raise _unobserved(display)
    if isinstance(expected, ReplaceIfVersion):
        if old is None:
            raise FsError("FS_STALE_VERSION", f'cannot write "{display}": file no longer exists')
        if version_of(old) != expected.version:
            raise _changed("write", display)


def _occupied(path: bytes, target: FsTarget) -> FsError:
    """Something appeared under the name of a file that was to be created."""
    try:
        regular = stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        regular = False
    return _unobserved(target.display_path) if regular else _not_regular("write", target)


def _unobserved(display: str) -> FsError:
    return FsError("FS_NOT_OBSERVED", f'cannot overwrite existing "{display}" without reading it first')


def _changed(verb: str, display: str) -> FsError:
    return FsError("FS_STALE_VERSION", f'cannot {verb} "{display}": file changed since it was read')


def _not_regular(verb: str, target: FsTarget) -> FsError:
    return FsError("FS_NOT_REGULAR_FILE", f'cannot {verb} "{target.display_path}": not a regular file')
