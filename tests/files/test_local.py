"""The local provider on a real disk."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsh.cordis import AbortController, Context
from dsh.files import atomic_write
from dsh.files.local import Config, LocalFs
from dsh.files.service import CreateIfAbsent, Fs, FsError, FsTarget, ReplaceIfVersion


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "ä 目录 'q' 😀"
    folder.mkdir()
    yield folder
    assert not [name for _, folders, files in os.walk(folder) for name in folders + files if name.startswith(".dsh-")]


@pytest.fixture
def fs(workspace: Path) -> Fs:
    return LocalFs(Context(), Config.validate({"cwd": str(workspace)}))


async def fails(code: str, text: str, operation: object) -> None:
    with pytest.raises(FsError) as caught:
        await operation  # type: ignore[misc]
    assert (caught.value.code, str(caught.value)) == (code, text)


async def version(fs: Fs, target: FsTarget) -> str:
    found = await fs.stat(target)
    assert found is not None
    return found.version


# -- 1: creation, staleness ---------------------------------------------------------------------------------------


async def test_b01a_a_racing_creator_survives(fs: Fs, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = await fs.resolve("new.txt")
    real_link = os.link

    def late(*args: object, **kwargs: object) -> None:
        (workspace / "new.txt").write_text("theirs")
        real_link(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(atomic_write.os, "link", late)
    await fails(
        "FS_NOT_OBSERVED",
        f'cannot overwrite existing "{target.display_path}" without reading it first',
        fs.write_text(target, "ours", CreateIfAbsent()),
    )
    assert (workspace / "new.txt").read_text() == "theirs"


async def test_b01b_a_dangling_link_that_appears_survives(
    fs: Fs, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = await fs.resolve("new.txt")
    real_link = os.link

    def late(*args: object, **kwargs: object) -> None:
        (workspace / "new.txt").symlink_to(workspace / "nowhere")
        real_link(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(atomic_write.os, "link", late)
    await fails(
        "FS_NOT_REGULAR_FILE",
        f'cannot write "{target.display_path}": not a regular file',
        fs.write_text(target, "ours", CreateIfAbsent()),
    )
    assert (workspace / "new.txt").is_symlink()
    assert not (workspace / "nowhere").exists()


async def test_b01c_an_existing_file_is_not_created_again(fs: Fs, workspace: Path) -> None:
    (workspace / "a").write_text("old")
    target = await fs.resolve("a")
    await fails(
        "FS_NOT_OBSERVED",
        f'cannot overwrite existing "{target.display_path}" without reading it first',
        fs.write_text(target, "new", CreateIfAbsent()),
    )
    assert (workspace / "a").read_text() == "old"


async def test_b01d_stale_beats_match_errors(fs: Fs, workspace: Path) -> None:
    (workspace / "a").write_text("one")
    target = await fs.resolve("a")
    stale = f'cannot edit "{target.display_path}": file changed since it was read'
    await fails("FS_STALE_VERSION", stale, fs.edit_text(target, "absent", "x", expected=ReplaceIfVersion("1:2:3:4:5")))
    (workspace / "a").unlink()
    await fails("FS_STALE_VERSION", stale, fs.edit_text(target, "one", "x"))


async def test_b01e_of_two_concurrent_guarded_edits_one_wins(fs: Fs, workspace: Path) -> None:
    (workspace / "a").write_text("one two")
    target = await fs.resolve("a")
    seen = ReplaceIfVersion(await version(fs, target))
    results = await asyncio.gather(
        fs.edit_text(target, "one", "1", expected=seen),
        fs.edit_text(target, "two", "2", expected=seen),
        return_exceptions=True,
    )
    assert not isinstance(results[0], BaseException)  # first come, first served
    assert isinstance(results[1], FsError) and results[1].code == "FS_STALE_VERSION"
    assert (workspace / "a").read_text() == "1 two"


async def test_b01i_unguarded_changes_of_one_file_take_turns(fs: Fs, workspace: Path) -> None:
    (workspace / "a").write_text("".join(f"<{number}>" for number in range(20)))
    (workspace / "link").symlink_to("a")
    targets = [await fs.resolve(name) for name in ("a", "link")]
    await asyncio.gather(*(fs.edit_text(targets[n % 2], f"<{n}>", f"[{n}]") for n in range(20)))
    assert (workspace / "a").read_text() == "".join(f"[{number}]" for number in range(20))


async def test_b01f_an_edit_answers_the_new_version(fs: Fs, workspace: Path) -> None:
    (workspace / "a").write_text("one two")
    target = await fs.resolve("a")
    first = await fs.edit_text(target, "one", "1", expected=ReplaceIfVersion(await version(fs, target)))
    assert first.version == await version(fs, target)
    second = await fs.edit_text(target, "two", "2", expected=ReplaceIfVersion(first.version))
    assert (second.before, second.after) == ("1 two", "1 2")


async def test_b01g_a_change_between_matching_and_publishing_is_noticed(
    fs: Fs, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "a").write_text("one")
    target = await fs.resolve("a")
    real_fsync = os.fsync

    def late(fd: int) -> None:
        real_fsync(fd)
        (workspace / "a").write_text("theirs")

    monkeypatch.setattr(atomic_write.os, "fsync", late)
    with pytest.raises(FsError, match="file changed since it was read"):
        await fs.edit_text(target, "one", "1")
    assert (workspace / "a").read_text() == "theirs"


async def test_b01h_a_write_of_a_vanished_or_changed_version_is_stale(fs: Fs, workspace: Path) -> None:
    (workspace / "a").write_text("one")
    target = await fs.resolve("a")
    seen = ReplaceIfVersion(await version(fs, target))
    (workspace / "a").write_text("other")
    path = target.display_path
    await fails(
        "FS_STALE_VERSION", f'cannot write "{path}": file changed since it was read', fs.write_text(target, "x", seen)
    )
    (workspace / "a").unlink()
    await fails("FS_STALE_VERSION", f'cannot write "{path}": file no longer exists', fs.write_text(target, "x", seen))


# -- 2: names ------------------------------------------------------------------------------------------------------


async def test_b02a_aliases_share_a_key_and_keep_their_names(fs: Fs, workspace: Path) -> None:
    (workspace / "real").mkdir()
    (workspace / "real" / "f").write_text("x")
    (workspace / "dir").symlink_to("real")
    (workspace / "link").symlink_to("real/f")
    targets = [await fs.resolve(path) for path in ("real/f", "dir/f", "link", str(workspace / "real" / "." / "f"))]
    assert len({target.target_key for target in targets}) == 1
    assert [Path(target.display_path).relative_to(workspace).as_posix() for target in targets] == [
        "real/f",
        "dir/f",
        "link",
        "real/f",
    ]


async def test_b02b_the_key_survives_creation(fs: Fs, workspace: Path) -> None:
    (workspace / "real").mkdir()
    (workspace / "dir").symlink_to("real")
    (workspace / "dangling").symlink_to("real/later")
    before = [await fs.resolve(path) for path in ("dir/sub/new", "real/sub/new", "dangling")]
    await fs.write_text(before[0], "x")
    await fs.write_text(before[2], "y", CreateIfAbsent())
    assert [await fs.resolve(path) for path in ("dir/sub/new", "real/sub/new", "dangling")] == before
    assert before[0].target_key == before[1].target_key
    assert (workspace / "dangling").is_symlink() and (workspace / "real" / "later").read_text() == "y"


async def test_b02c_a_write_goes_through_the_link(fs: Fs, workspace: Path) -> None:
    (workspace / "f").write_text("old")
    (workspace / "link").symlink_to("f")
    await fs.write_text(await fs.resolve("link"), "new")
    assert (workspace / "link").is_symlink()
    assert (workspace / "f").read_text() == "new"


async def test_b02d_dots_start_where_a_child_process_would_stand(fs: Fs, workspace: Path) -> None:
    (workspace / "deep" / "er").mkdir(parents=True)
    (workspace / "short").symlink_to("deep/er")
    target = await fs.resolve("../f", str(workspace / "short"))
    assert target.display_path == str(workspace / "deep" / "f")


async def test_b02e_paths_that_lead_nowhere(fs: Fs, workspace: Path) -> None:
    (workspace / "file").write_text("x")
    (workspace / "loop").symlink_to("loop")
    await fails(
        "FS_NOT_DIRECTORY",
        'cannot resolve "file/x": a parent path segment is not a directory',
        fs.resolve("file/x"),
    )
    await fails("FS_IO_ERROR", 'cannot resolve "loop/x": too many levels of symbolic links', fs.resolve("loop/x"))
    long_name = "n" * 300
    await fails("FS_IO_ERROR", f'cannot resolve "{long_name}": a name in the path is too long', fs.resolve(long_name))
    with pytest.raises(ValueError, match=r"^file_path must be a non-empty string$"):
        await fs.resolve("  \n")
    assert (await fs.resolve("~/x")).display_path == str(workspace / "~/x")  # nothing is expanded


async def test_b02f_containment_goes_by_components(fs: Fs, workspace: Path) -> None:
    inside, sibling = await fs.resolve("a/b"), await fs.resolve("ab")
    parent = await fs.resolve("a")
    assert fs.contains(parent, inside) and fs.contains(parent, parent)
    assert not fs.contains(parent, sibling) and not fs.contains(inside, parent)
    assert fs.contains(await fs.resolve("/"), inside)
    assert fs.file_url(await fs.resolve("a b")).startswith("file:///")
    assert fs.file_url(await fs.resolve("a b")).endswith("/a%20b")


# -- 3: bytes ------------------------------------------------------------------------------------------------------


async def test_b03f_crlf_and_bom_round_trip_through_the_disk(fs: Fs, workspace: Path) -> None:
    (workspace / "a").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    target = await fs.resolve("a")
    assert await fs.read_text(target) == "one\r\ntwo\r\n"
    edited = await fs.edit_text(target, "one\ntwo", "one\nand\ntwo")
    assert (workspace / "a").read_bytes() == b"\xef\xbb\xbfone\r\nand\r\ntwo\r\n"
    assert (edited.before, edited.after) == ("one\ntwo\n", "one\nand\ntwo\n")


async def test_b03g_an_overwritten_binary_has_no_before(fs: Fs, workspace: Path) -> None:
    target = await fs.resolve("a")
    for old in (b"bin\0ary", b"\xff\xfe"):
        (workspace / "a").write_bytes(old)
        written = await fs.write_text(target, "text\r\n")
        assert (written.operation, written.before, written.after) == ("update", None, "text\n")
        assert (workspace / "a").read_bytes() == b"text\r\n"
    written = await fs.write_text(target, "more")
    assert written.before == "text\n"


async def test_b03h_a_diff_basis_has_a_limit(workspace: Path) -> None:
    small = LocalFs(Context(), Config.validate({"cwd": str(workspace), "diffBasisMaxBytes": 10}))
    target = await small.resolve("a")
    await small.write_text(target, "x" * 9)
    assert (await small.write_text(target, "y" * 9)).before == "x" * 9
    assert (await small.write_text(target, "z" * 10)).before is None
    assert (await small.write_text(target, "z")).before is None


async def test_b03i_modes_are_kept_and_new_files_are_private(fs: Fs, workspace: Path) -> None:
    target = await fs.resolve("script")
    await fs.write_text(target, "a")
    assert stat.S_IMODE((workspace / "script").stat().st_mode) == 0o600
    os.chmod(workspace / "script", 0o755)
    await fs.edit_text(target, "a", "b")
    assert stat.S_IMODE((workspace / "script").stat().st_mode) == 0o755
    await fs.write_text(target, "c")
    assert stat.S_IMODE((workspace / "script").stat().st_mode) == 0o755
    shared = LocalFs(Context(), Config.validate({"cwd": str(workspace), "newFileMode": "644"}))
    await shared.write_text(await shared.resolve("open"), "x", CreateIfAbsent())
    assert stat.S_IMODE((workspace / "open").stat().st_mode) == 0o644


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
async def test_b03j_root_keeps_the_owner(fs: Fs, workspace: Path) -> None:
    (workspace / "theirs").write_text("a")
    os.chown(workspace / "theirs", 1234, 2345)
    await fs.edit_text(await fs.resolve("theirs"), "a", "b")
    found = (workspace / "theirs").stat()
    assert (found.st_uid, found.st_gid) == (1234, 2345)


async def test_b03k_a_failed_publish_leaves_the_old_file_and_nothing_else(
    fs: Fs, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "a").write_text("old")
    target = await fs.resolve("a")

    def broken(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    for call in ("replace", "fsync", "write"):
        with monkeypatch.context() as patch:
            patch.setattr(atomic_write.os, call, broken)
            await fails(
                "FS_IO_ERROR",
                f'cannot write "{target.display_path}": No space left on device',
                fs.write_text(target, "new"),
            )
        assert os.listdir(workspace) == ["a"]
        assert (workspace / "a").read_text() == "old"


async def test_b03l_a_file_system_without_links_says_so(
    fs: Fs, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(atomic_write.os, "link", refused)
    with pytest.raises(FsError, match="the file system has no hard links") as caught:
        await fs.write_text(await fs.resolve("new"), "x", CreateIfAbsent())
    assert caught.value.code == "FS_IO_ERROR"
    assert os.listdir(workspace) == []


async def test_b03m_an_abort_before_publishing_changes_nothing(
    fs: Fs, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "a").write_text("old")
    target = await fs.resolve("a")
    controller = AbortController()
    loop = asyncio.get_running_loop()
    real_fsync = os.fsync

    def late(fd: int) -> None:
        real_fsync(fd)
        fired = threading.Event()
        loop.call_soon_threadsafe(lambda: (controller.abort(), fired.set()))
        fired.wait(10)

    monkeypatch.setattr(atomic_write.os, "fsync", late)
    await fails("FS_ABORTED", "write aborted", fs.write_text(target, "new", None, controller.signal))
    assert (workspace / "a").read_text() == "old"
    aborted = AbortController()
    aborted.abort()
    await fails("FS_ABORTED", "edit aborted", fs.edit_text(target, "old", "new", signal=aborted.signal))
    await fails("FS_ABORTED", "read aborted", fs.read_text(target, aborted.signal))
    assert (workspace / "a").read_text() == "old"


async def test_b03n_the_longest_name_still_has_room_for_the_staging(fs: Fs, workspace: Path) -> None:
    name = "n" * 255
    await fs.write_text(await fs.resolve(name), "x", CreateIfAbsent())
    assert (workspace / name).read_text() == "x"


async def test_b03o_only_regular_files_are_written(fs: Fs, workspace: Path) -> None:
    (workspace / "d").mkdir()
    os.mkfifo(workspace / "pipe")
    for name in ("d", "pipe"):
        target = await fs.resolve(name)
        text = f'cannot write "{target.display_path}": not a regular file'
        await fails("FS_NOT_REGULAR_FILE", text, fs.write_text(target, "x"))
        await fails("FS_NOT_REGULAR_FILE", text.replace("write", "read"), fs.read_text(target))
        await fails("FS_NOT_REGULAR_FILE", text.replace("write", "edit"), fs.edit_text(target, "a", "b"))


# -- reading -------------------------------------------------------------------------------------------------------


async def test_b04g_what_is_no_text_is_refused(fs: Fs, workspace: Path) -> None:
    cases = {
        b"a\0b": "binary file",
        b"\xff\xfea": "invalid UTF-8 text",
        "ümlaut".encode("latin-1"): "invalid UTF-8 text",
    }
    for content, reason in cases.items():
        (workspace / "a").write_bytes(content)
        target = await fs.resolve("a")
        text = f'cannot read "{target.display_path}": {reason}'
        await fails("FS_NOT_TEXT", text, fs.read_text(target))
        await fails("FS_NOT_TEXT", text, collect(fs, target))
        await fails("FS_NOT_TEXT", text.replace("read", "edit"), fs.edit_text(target, "a", "b"))
        assert (workspace / "a").read_bytes() == content


async def test_b04h_a_nul_late_in_a_file_can_be_read_but_not_edited(fs: Fs, workspace: Path) -> None:
    (workspace / "a").write_bytes(b"x" * 8192 + b"\0 end")
    target = await fs.resolve("a")
    assert (await fs.read_text(target)).endswith("\0 end")
    await fails("FS_NOT_TEXT", f'cannot edit "{target.display_path}": binary file', fs.edit_text(target, "end", "e"))


async def test_b04i_a_stream_gives_the_same_text(fs: Fs, workspace: Path) -> None:
    text = "zeile ä 😀\n" * 60_000
    (workspace / "a").write_bytes(b"\xef\xbb\xbf" + text.encode())
    target = await fs.resolve("a")
    assert await collect(fs, target) == text == await fs.read_text(target)
    (workspace / "a").write_bytes(text.encode()[:-2] + b"\xf0\x9f")  # ends inside a character
    await fails("FS_NOT_TEXT", f'cannot read "{target.display_path}": invalid UTF-8 text', collect(fs, target))


async def collect(fs: Fs, target: FsTarget) -> str:
    return "".join([piece async for piece in fs.stream_text(target)])


async def test_b04j_bytes_have_a_limit_also_while_the_file_grows(
    fs: Fs, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "a").write_bytes(b"12345")
    target = await fs.resolve("a")
    assert await fs.read_bytes(target, max_bytes=5) == b"12345"
    text = f'cannot read "{target.display_path}": 5 bytes exceeds the 4-byte limit'
    await fails("FS_TOO_LARGE", text, fs.read_bytes(target, max_bytes=4))

    real_open = os.open

    def growing(path: object, flags: int, *rest: int) -> int:
        fd = real_open(path, flags, *rest)  # type: ignore[arg-type]
        return fd

    real_fstat = os.fstat

    def smaller(fd: int) -> os.stat_result:
        found = real_fstat(fd)
        with open(workspace / "a", "ab") as file:
            file.write(b"6")
        return found

    monkeypatch.setattr("dsh.files.disk.os.open", growing)
    monkeypatch.setattr("dsh.files.disk.os.fstat", smaller)
    with pytest.raises(FsError, match=r"exceeds the 5-byte limit"):
        await fs.read_bytes(target, max_bytes=5)


async def test_b04k_directories_are_listed_by_name_without_reading(fs: Fs, workspace: Path) -> None:
    (workspace / "b").mkdir()
    (workspace / "a").write_text("x")
    (workspace / "c").symlink_to("a")
    os.mkfifo(workspace / "d")
    entries = await fs.list_dir(await fs.resolve("."))
    assert [(entry.name, entry.type) for entry in entries] == [
        ("a", "file"),
        ("b", "directory"),
        ("c", "symlink"),
        ("d", "other"),
    ]
    target = await fs.resolve("a")
    await fails("FS_NOT_DIRECTORY", f'cannot list "{target.display_path}": not a directory', fs.list_dir(target))
    link = await fs.lstat(str(workspace / "c"))
    assert link is not None and link.type == "symlink"
    assert await fs.lstat(str(workspace / "nothing")) is None
    assert await fs.stat(await fs.resolve("nothing")) is None


# -- 14: names that are no text --------------------------------------------------------------------------------------


async def test_b14b_a_nul_or_a_lone_surrogate_in_a_path_is_an_ordinary_failure(fs: Fs, workspace: Path) -> None:
    with pytest.raises(FsError, match="NUL") as caught:
        await fs.resolve("a\0b")
    str(caught.value).encode()
    target = await fs.resolve("a\ud800b")
    assert target.display_path == str(workspace / "a\ufffdb")


async def test_b14c_names_that_are_not_utf8_can_be_read_and_written(fs: Fs, workspace: Path) -> None:
    raw = os.fsencode(str(workspace)) + b"/caf\xe9"
    Path(os.fsdecode(raw)).write_text("x")
    entry = (await fs.list_dir(await fs.resolve(".")))[0]
    target = await fs.resolve(entry.name)
    assert await fs.read_text(target) == "x"
    await fs.write_text(target, "y")
    with open(raw) as file:
        assert file.read() == "y"
    (await version(fs, target)).encode()
    await fs.edit_text(target, "y", "z")
    with pytest.raises(FsError) as caught:
        await fs.edit_text(target, "absent", "z")
    str(caught.value).encode()  # a message is always encodable


async def test_b14d_lone_surrogates_in_content_are_replaced(fs: Fs, workspace: Path) -> None:
    target = await fs.resolve("a")
    await fs.write_text(target, "x\ud800y")
    await fs.edit_text(target, "y", "\udfff")
    assert (workspace / "a").read_text() == "x\ufffd\ufffd"


async def test_waiting_changes_of_a_file_leave_no_lock_behind(fs: Fs) -> None:
    target = await fs.resolve("a")
    await asyncio.gather(*(fs.write_text(target, str(number)) for number in range(10)))
    assert await fs.read_text(target) == "9"
    assert fs._turns._locks == {}  # type: ignore[attr-defined]
