"""`str_replace_editor` as a model meets it."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import dsh.files.local
import dsh.files.observation_policy
import dsh.files.str_replace_editor
from dsh.cordis import AbortController, Context
from dsh.core.tools import ToolResult, Tools
from dsh.files import editor_texts as texts
from dsh.files.service import FsObserved, FsWriteIntent

from .helpers import FakeAgent, call, code, root_with_tools, told
from .test_tools import without_descriptions


@asynccontextmanager
async def editing(*, policy: bool = False, **config: Any) -> AsyncIterator[Context]:
    rows: list[Any] = [(dsh.files.local, {}), (dsh.files.str_replace_editor, config)]
    if policy:
        rows.insert(1, (dsh.files.observation_policy, {}))
    async with root_with_tools(*rows) as root:
        yield root


async def edit(root: Context, command: str, path: Path | str, agent: Any = None, **more: Any) -> ToolResult:
    return await call(root, "str_replace_editor", {"command": command, "path": str(path), **more}, agent)


async def failed(root: Context, command: str, path: Path | str, **more: Any) -> str:
    result = await edit(root, command, path, **more)
    assert result.is_error
    assert told(result).startswith("Error: ")
    return told(result).removeprefix("Error: ")


async def test_the_tool_and_its_parameters() -> None:
    async with editing() as root:
        (schema,) = root[Tools].schemas()
        assert schema["name"] == "str_replace_editor"
        assert without_descriptions(schema["parameters"]) == {
            "type": "object",
            "properties": {
                "command": {"type": "string", "enum": ["view", "create", "str_replace", "insert"]},
                "path": {"type": "string"},
                "file_text": {"type": "string"},
                "insert_line": {"type": "integer"},
                "new_str": {"type": "string"},
                "old_str": {"type": "string"},
                "view_range": {"type": "array", "items": {"type": "integer"}},
            },
            "required": ["command", "path"],
        }
        tool = root[Tools].get("str_replace_editor")
        assert tool is not None and tool.is_concurrency_safe is None
    async with editing(description="Mine.") as root:
        assert root[Tools].schemas()[0]["description"] == "Mine."


async def test_a_file_is_viewed_with_numbers(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\n")
    async with editing() as root:
        assert told(await edit(root, "view", path)) == (
            f"Here's the content of {path} with line numbers (which has a total of 3 lines):\n"
            "     1  one\r\n     2  two\n     3  \n"
        )
        assert told(await edit(root, "view", path, view_range=[2, -1])) == (
            f"Here's the content of {path} with line numbers (which has a total of 3 lines) with view_range=[2, -1]:\n"
            "     2  two\n     3  \n"
        )
        assert told(await edit(root, "view", path, view_range=[1, 99])).endswith("     3  \n")
        for bad in ([0, 2], [4, 5]):
            assert await failed(root, "view", path, view_range=bad) == (
                f"Invalid `view_range`: {bad}. Its first element `{bad[0]}` should be within the range of lines of the "
                "file: [1, 3]"
            )
        assert "should be -1 or not smaller" in await failed(root, "view", path, view_range=[2, 1])
        for odd in ([1], [1, 2, 3]):
            assert await failed(root, "view", path, view_range=odd) == texts.BAD_RANGE


async def test_a_long_view_is_clipped(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("x" * 30 + "\n" + "y" * 600)
    async with editing(maxOutputChars=300) as root:
        shown = told(await edit(root, "view", path))
        assert shown.endswith(texts.CLIPPED)
        assert len(shown) == 300 + len(texts.CLIPPED)
        assert "xxx\n     2  yy" in shown
        path.write_text("short")
        whole = await edit(root, "view", path)
        assert told(whole).endswith("     1  short\n") and whole.meta is None


async def test_a_directory_is_listed_two_levels_deep(tmp_path: Path) -> None:
    for name in ("b/inner/deep", "b/.hidden", "node_modules/x", "b/__pycache__", ".git/x", "Z"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("a.txt", "b/é.txt", ".env", "b/inner/file"):
        (tmp_path / name).write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "b")
    os.mkfifo(tmp_path / "b" / "pipe")
    async with editing() as root:
        assert told(await edit(root, "view", tmp_path)) == (
            f"Here're the files and directories up to 2 levels deep in {tmp_path}, excluding hidden items, "
            "node_modules, and Python cache directories:\n"
            f"d\t{tmp_path}/Z\nf\t{tmp_path}/a.txt\nd\t{tmp_path}/b\nd\t{tmp_path}/b/inner\n?\t{tmp_path}/b/pipe\n"
            f"f\t{tmp_path}/b/é.txt\n?\t{tmp_path}/link\n"
        )
        assert "not allowed" in await failed(root, "view", tmp_path, view_range=[1, 2])
        for command, more in (("str_replace", {"old_str": "a"}), ("insert", {"insert_line": 0, "new_str": "a"})):
            assert await failed(root, command, tmp_path, **more) == texts.is_directory(str(tmp_path))
        assert await failed(root, "create", tmp_path, file_text="") == texts.occupied(str(tmp_path))


async def test_a_file_is_created_once(tmp_path: Path) -> None:
    path = tmp_path / "new" / "created.txt"
    async with editing() as root:
        result = await edit(root, "create", path, file_text="MINIMAL_EDITOR_OK\n")
        assert told(result) == f"New file created successfully at: {path}"
        assert path.read_bytes() == b"MINIMAL_EDITOR_OK\n"
        assert await failed(root, "create", path, file_text="other") == (
            f"File already exists at: {path}. Cannot overwrite files using command `create`."
        )
        assert path.read_bytes() == b"MINIMAL_EDITOR_OK\n"


async def test_a_file_that_appears_during_a_create_survives(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    async with editing() as root:

        @root.on(FsWriteIntent)
        async def somebody_is_quicker(event: FsWriteIntent, next: Any) -> Any:
            path.write_text("theirs")
            return await next()

        assert await failed(root, "create", path, file_text="ours") == texts.occupied(str(path))
        assert path.read_text() == "theirs"


async def test_a_text_that_occurs_once_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\nthree\n")
    path.chmod(0o640)
    async with editing() as root:
        result = await edit(root, "str_replace", path, old_str="two\n", new_str="2\r\n")
        assert told(result) == f"The file {path} has been edited successfully."
        assert result.meta == {"diffs": [{"path": str(path), "oldText": "one\ntwo\nthree", "newText": "one\n2\nthree"}]}
        assert path.read_bytes() == b"\xef\xbb\xbfone\r\n2\r\nthree\n"
        assert path.stat().st_mode & 0o777 == 0o640
        await edit(root, "str_replace", path, old_str="three")
        assert path.read_bytes() == b"\xef\xbb\xbfone\r\n2\r\n\n"


async def test_a_text_that_is_missing_or_not_unique_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("a\nx\nfoo foo\n\nbar\nfoo\r\n")
    before = path.read_bytes()
    async with editing() as root:
        assert await failed(root, "str_replace", path, old_str="Foo\n", new_str="x") == (
            f"No replacement was performed, old_str `Foo\n` did not appear verbatim in {path}."
        )
        assert await failed(root, "str_replace", path, old_str="foo", new_str="x") == (
            "No replacement was performed. Multiple occurrences of old_str `foo` in lines [3, 6]. "
            "Please ensure it is unique"
        )
        for more in ({}, {"old_str": ""}):
            assert await failed(root, "str_replace", path, **more) == (
                "Parameter `old_str` is required for command: str_replace"
            )
        assert code(await edit(root, "str_replace", path, old_str="none")) == ("FsError", "FS_EDIT_NOT_FOUND")
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("line", "expected"),
    [(0, "new\na\nb\n"), (1, "a\nnew\nb\n"), (2, "a\nb\nnew\n"), (3, "a\nb\n\nnew")],
)
async def test_text_is_inserted_behind_a_line(tmp_path: Path, line: int, expected: str) -> None:
    path = tmp_path / "a.txt"
    path.write_text("a\nb\n")
    async with editing() as root:
        assert told(await edit(root, "insert", path, insert_line=line, new_str="new")) == texts.EDITED.format(path)
    assert path.read_text() == expected


async def test_an_insert_outside_of_the_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("a\nb\n")
    async with editing() as root:
        for line in (-1, 4):
            assert await failed(root, "insert", path, insert_line=line, new_str="x") == (
                f"Invalid `insert_line` parameter: {line}. It should be within the range of lines of the file: [0, 3]"
            )
        for more, missing in (({"new_str": "x"}, "insert_line"), ({"insert_line": 1}, "new_str")):
            assert await failed(root, "insert", path, **more) == texts.missing_parameter(missing, "insert")
        assert await failed(root, "create", tmp_path / "b") == "Parameter `file_text` is required for command: create"
        assert "invalid arguments" in await failed(root, "insert", path, insert_line=True, new_str="x")
        assert "invalid arguments" in await failed(root, "undo_edit", path)


async def test_paths_are_absolute_and_exist(tmp_path: Path) -> None:
    async with editing() as root:
        assert await failed(root, "view", "a/b.txt") == (
            "The path a/b.txt is not an absolute path, it should start with `/`. Maybe you meant /a/b.txt?"
        )
        nowhere = tmp_path / "nowhere"
        for command, more in (
            ("view", {}),
            ("str_replace", {"old_str": "a"}),
            ("insert", {"insert_line": 0, "new_str": "a"}),
        ):
            assert await failed(root, command, nowhere, **more) == (
                f"The path {nowhere} does not exist. Please provide a valid path."
            )


async def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"a\0b")
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    os.mkfifo(tmp_path / "pipe")
    async with editing() as root:
        assert await failed(root, "view", tmp_path / "binary") == f'cannot read "{tmp_path}/binary": binary file'
        assert "invalid UTF-8 text" in await failed(root, "str_replace", tmp_path / "latin", old_str="caf")
        assert "not a regular file" in await failed(root, "view", tmp_path / "pipe")
        assert "NUL" in await failed(root, "view", f"{tmp_path}/a\0b")
        result = await edit(root, "create", tmp_path / "s", file_text="half \ud800")
        assert not result.is_error and (tmp_path / "s").read_text() == "half \ufffd"


async def test_with_the_observation_policy_only_what_was_viewed_is_changed(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one\n")
    agent = FakeAgent(tmp_path)
    async with editing(policy=True) as root:
        unseen = await edit(root, "str_replace", path, agent, old_str="one", new_str="two")
        assert told(unseen) == f'Error: edit requires reading "{path}" first — read the file, then retry'
        await edit(root, "view", path, agent)
        path.write_text("one changed\n")
        stale = await edit(root, "insert", path, agent, insert_line=0, new_str="x")
        assert told(stale) == (
            f'Error: cannot edit "{path}": file changed since it was read — re-read the file, then retry'
        )
        await edit(root, "view", path, agent)
        for old, new in (("one", "two"), ("two", "three")):  # an edit is an observation too
            assert not (await edit(root, "str_replace", path, agent, old_str=old, new_str=new)).is_error
        assert path.read_text() == "three changed\n"
        path.unlink()
        assert (await edit(root, "view", path, agent)).is_error
        assert not (await edit(root, "create", path, agent, file_text="again")).is_error


async def test_a_missing_file_is_an_observation(tmp_path: Path) -> None:
    seen: list[Any] = []
    async with editing() as root:
        root.on(FsObserved, lambda event: seen.append(type(event.observation).__name__))
        await edit(root, "view", tmp_path / "a")
        await edit(root, "create", tmp_path / "a", file_text="")
        await edit(root, "view", tmp_path / "a")
    assert seen == ["Absent", "Absent", "Present", "Present"]


async def test_an_aborted_call_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one")
    controller = AbortController()
    async with editing() as root:

        @root.on(FsObserved)
        def stop(event: FsObserved) -> None:
            controller.abort("enough")

        arguments = {"command": "create", "path": str(tmp_path / "b.txt"), "file_text": "x"}
        result = await call(root, "str_replace_editor", arguments, signal=controller.signal)
        assert result.is_error
    assert not (tmp_path / "b.txt").exists()


async def test_cards(tmp_path: Path) -> None:
    async with editing() as root:
        definition = root[Tools].get("str_replace_editor")
        assert definition is not None and definition.present_call is not None
        view = definition.present_call({"command": "view", "path": "/a"})
        assert view == {"card": "generic", "title": "/a", "kind": "read", "locations": [{"path": "/a"}]}
        change = definition.present_call({"command": "str_replace", "path": "/a", "old_str": "x", "new_str": "y"})
        assert change is not None and change["card"] == "diff"
        assert json.loads(json.dumps(change))["diffs"] == [{"path": "/a", "oldText": "x", "newText": "y"}]
