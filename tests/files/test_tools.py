"""`read`, `write` and `edit` as a model meets them."""

from __future__ import annotations

import gc
import json
import os
import weakref
from pathlib import Path
from typing import Any

import pytest

from dsh.cordis import AbortController, Context
from dsh.cordis.jsonio import encode, thaw
from dsh.core.system_prompt import AssembleContext, SystemPrompt, render_prompt
from dsh.core.tools import Tools
from dsh.files.local import LocalFs
from dsh.files.service import FsEditIntent, FsObserved, FsWriteIntent, Present

from .helpers import FakeAgent, call, code, root_with_files, told

PARAMETERS: dict[str, Any] = {
    "read": {
        "type": "object",
        "properties": {"file_path": {"type": "string"}, "offset": {"type": "number"}, "limit": {"type": "number"}},
        "required": ["file_path"],
    },
    "write": {
        "type": "object",
        "properties": {"file_path": {"type": "string"}, "content": {"type": "string"}},
        "required": ["file_path", "content"],
    },
    "edit": {
        "type": "object",
        "properties": {
            "file_path": {"type": "string"},
            "old_string": {"type": "string"},
            "new_string": {"type": "string"},
            "replace_all": {"type": "boolean"},
        },
        "required": ["file_path", "old_string", "new_string"],
    },
}


def without_descriptions(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {key: without_descriptions(value) for key, value in schema.items() if key != "description"}
    return [without_descriptions(item) for item in schema] if isinstance(schema, list) else schema


async def test_the_tools_and_their_guidance() -> None:
    async with root_with_files() as root:
        schemas = {schema["name"]: schema for schema in root[Tools].schemas()}
        assert {name: without_descriptions(schema["parameters"]) for name, schema in schemas.items()} == PARAMETERS
        assert [root[Tools].get(name).is_concurrency_safe is not None for name in ("read", "write", "edit")] == [
            True,
            False,
            False,
        ]
        assembly = await root[SystemPrompt].assemble(AssembleContext())
        assert [(s.name, s.order) for s in assembly.sections if s.name.startswith("tool:")] == [
            ("tool:read", 100),
            ("tool:write", 101),
            ("tool:edit", 102),
        ]
        assert "`edit`" in render_prompt(assembly)


# -- read ------------------------------------------------------------------------------------------------------------


async def test_b04l_a_file_is_shown_with_numbers(tmp_path: Path) -> None:
    (tmp_path / "greeting.txt").write_text("hello\n")
    agent = FakeAgent(tmp_path)
    async with root_with_files() as root:
        result = await call(root, "read", {"file_path": "greeting.txt"}, agent)
        path = f"{tmp_path}/greeting.txt"
        assert told(result) == (
            f"<path>{path}</path>\n<type>file</type>\n<content>\n1: hello\n\n(End of file - total 1 lines)\n</content>"
        )
        expected = {"path": path, "offset": 1, "lines": [{"number": 1, "text": "hello"}], "totalLines": 1}
        assert result.meta == expected == result.value


async def test_b04m_windows_say_how_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("".join(f"line {number}\n" for number in range(1, 11)))
    agent = FakeAgent(tmp_path)
    async with root_with_files(tools={"readLimit": 4, "readMaxBytes": 16}) as root:
        first = told(await call(root, "read", {"file_path": "a", "limit": 2}, agent))
        assert first.endswith(
            "1: line 1\n2: line 2\n\n(Showing lines 1-2 of 10. Use offset=3 to continue.)\n</content>"
        )
        capped = told(await call(root, "read", {"file_path": "a", "offset": 3}, agent))
        assert capped.endswith(
            "3: line 3\n4: line 4\n\n(Output capped. Showing lines 3-4. Use offset=5 to continue.)\n</content>"
        )
        last = told(await call(root, "read", {"file_path": "a", "offset": 10.0}, agent))
        assert last.endswith("10: line 10\n\n(End of file - total 10 lines)\n</content>")


async def test_b04n_an_empty_file_and_the_end_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    (tmp_path / "no-newline").write_text("a\nb")
    agent = FakeAgent(tmp_path)
    async with root_with_files() as root:
        empty = told(await call(root, "read", {"file_path": "empty"}, agent))
        assert empty.endswith("<content>\n(End of file - total 0 lines)\n</content>")
        assert "2: b\n\n(End of file - total 2 lines)" in told(
            await call(root, "read", {"file_path": "no-newline"}, agent)
        )
        for file, offset, total in (("empty", 2, 0), ("no-newline", 3, 2)):
            past = await call(root, "read", {"file_path": file, "offset": offset}, agent)
            assert told(past) == f'Error: offset {offset} is out of range for "{tmp_path}/{file}" ({total} lines)'


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"file_path": " "}, "file_path must be a non-empty string"),
        ({"file_path": "a", "offset": 0}, "offset must be a positive integer"),
        ({"file_path": "a", "offset": 1.5}, "offset must be a positive integer"),
        ({"file_path": "a", "limit": -1}, "limit must be a positive integer"),
        ({"file_path": "a", "limit": 2001}, "limit must be less than or equal to 2000"),
        ({"file_path": "a", "limit": True}, 'invalid arguments: "limit" must be a number'),
        ({}, 'invalid arguments: missing required property "file_path"'),
        ({"file_path": "gone"}, 'cannot read "{cwd}/gone": not found'),
        ({"file_path": "."}, 'cannot read "{cwd}": not a regular file'),
        ({"file_path": "fifo"}, 'cannot read "{cwd}/fifo": not a regular file'),
        ({"file_path": "binary"}, 'cannot read "{cwd}/binary": binary file'),
        ({"file_path": "latin1"}, 'cannot read "{cwd}/latin1": invalid UTF-8 text'),
        ({"file_path": "gbk"}, 'cannot read "{cwd}/gbk": invalid UTF-8 text'),
    ],
)
async def test_b04o_what_cannot_be_read(tmp_path: Path, arguments: dict[str, Any], text: str) -> None:
    (tmp_path / "binary").write_bytes(b"a\0b")
    (tmp_path / "latin1").write_bytes("größe".encode("latin-1"))
    (tmp_path / "gbk").write_bytes("编码测试".encode("gbk"))
    os.mkfifo(tmp_path / "fifo")
    async with root_with_files() as root:
        result = await call(root, "read", arguments, FakeAgent(tmp_path))
        assert result.is_error
        assert told(result) == "Error: " + text.replace("{cwd}", str(tmp_path))


async def test_b04p_one_stat_a_read_and_none_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_text("one")
    agent = FakeAgent(tmp_path)
    async with root_with_files() as root:
        stats = 0
        real = LocalFs.stat

        async def counted(self: Any, *args: Any) -> Any:
            nonlocal stats
            stats += 1
            return await real(self, *args)

        monkeypatch.setattr(LocalFs, "stat", counted)
        await call(root, "read", {"file_path": "a"}, agent)
        assert stats == 1
        await call(root, "edit", {"file_path": "a", "old_string": "one", "new_string": "two"}, agent)
        await call(root, "write", {"file_path": "a", "content": "three"}, agent)
        assert stats == 1
        assert (tmp_path / "a").read_text() == "three"


async def test_b04q_a_large_file_is_read_in_pieces_with_the_same_answer(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("".join(f"zeile ä {number}\n" for number in range(100_000)))
    agent = FakeAgent(tmp_path)
    arguments = {"file_path": "a", "offset": 50_000, "limit": 3}
    async with root_with_files() as root, root_with_files(tools={"readStreamMinSize": 1000}) as streaming:
        whole = await call(root, "read", arguments, agent)
        assert not whole.is_error
        assert told(whole) == told(await call(streaming, "read", arguments, agent))
        assert "50000: zeile ä 49999" in told(whole)


async def test_b04r_a_file_that_the_kernel_makes_up_is_read_to_its_end(tmp_path: Path) -> None:
    async with root_with_files(policy=False) as root:
        result = await call(root, "read", {"file_path": "/proc/self/status", "limit": 1}, FakeAgent(tmp_path))
        assert "1: Name:" in told(result)


# -- write -----------------------------------------------------------------------------------------------------------


async def test_a_file_is_created_and_updated(tmp_path: Path) -> None:
    agent = FakeAgent(tmp_path)
    async with root_with_files() as root:
        created = await call(root, "write", {"file_path": "sub/notes.txt", "content": "hello world\n"}, agent)
        path = f"{tmp_path}/sub/notes.txt"
        assert told(created) == f"<path>{path}</path>\n<type>file</type>\n<content>\nCreated file\n</content>"
        assert created.meta == {"diffs": []}
        assert created.value == {"path": path, "operation": "create", "before": None, "after": "hello world\n"}
        updated = await call(root, "write", {"file_path": "sub/notes.txt", "content": "replaced"}, agent)
        assert told(updated) == f"<path>{path}</path>\n<type>file</type>\n<content>\nUpdated file\n</content>"
        assert updated.meta == {"diffs": [{"path": "sub/notes.txt", "oldText": "hello world", "newText": "replaced"}]}
        assert (tmp_path / "sub" / "notes.txt").read_text() == "replaced"


# -- edit ------------------------------------------------------------------------------------------------------------


async def test_one_and_every_occurrence(tmp_path: Path) -> None:
    (tmp_path / "settings.txt").write_text("color: blue\nsky: blue\n")
    agent = FakeAgent(tmp_path)
    async with root_with_files() as root:
        await call(root, "read", {"file_path": "settings.txt"}, agent)
        path = f"{tmp_path}/settings.txt"
        one = await call(
            root,
            "edit",
            {"file_path": "settings.txt", "old_string": "color: blue", "new_string": "color: green"},
            agent,
        )
        assert told(one) == f"The file {path} has been updated successfully."
        assert one.meta == {
            "diffs": [
                {
                    "path": "settings.txt",
                    "oldText": "color: blue\nsky: blue",
                    "newText": "color: green\nsky: blue",
                }
            ]
        }
        every = await call(
            root,
            "edit",
            {"file_path": "settings.txt", "old_string": "e", "new_string": "E", "replace_all": True},
            agent,
        )
        assert told(every) == f"The file {path} has been updated. All occurrences were successfully replaced."
        assert (tmp_path / "settings.txt").read_text() == "color: grEEn\nsky: bluE\n"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"file_path": "", "old_string": "", "new_string": ""}, "file_path must be a non-empty string"),
        ({"file_path": "a", "old_string": "", "new_string": ""}, "old_string must be a non-empty string"),
        ({"file_path": "a", "old_string": "x", "new_string": "x"}, "old_string and new_string must differ"),
        ({"file_path": "a", "old_string": "absent", "new_string": "x"}, 'old_string was not found in "{cwd}/a"'),
        (
            {"file_path": "a", "old_string": "o", "new_string": "x"},
            'old_string matched 2 times in "{cwd}/a"; provide a more specific old_string or set replace_all to true',
        ),
    ],
)
async def test_what_cannot_be_edited(tmp_path: Path, arguments: dict[str, Any], text: str) -> None:
    (tmp_path / "a").write_text("one two")
    agent = FakeAgent(tmp_path)
    async with root_with_files() as root:
        await call(root, "read", {"file_path": "a"}, agent)
        result = await call(root, "edit", arguments, agent)
        assert told(result) == "Error: " + text.replace("{cwd}", str(tmp_path))
        assert (tmp_path / "a").read_text() == "one two"


@pytest.mark.parametrize(
    ("content", "old", "new", "expected"),
    [
        (b"one\r\ntwo\r\n", "two", "2\n3", b"one\r\n2\r\n3\r\n"),
        (b"one\r\ntwo\nthree\r\n", "two", "2", b"one\r\n2\nthree\r\n"),
        (b"\xef\xbb\xbfone\ntwo\n", "one", "1", b"\xef\xbb\xbf1\ntwo\n"),
        (b"one\ntwo", "two", "2", b"one\n2"),
        (b"one\rtwo\r", "two", "2", b"one\r2\r"),
        (b"one\rtwo\r", "two", "2\n3", b"one\r2\r3\r"),
        (b"one\r\ntwo\nthree\r\n", "two", "2\n3", b"one\r\n2\r\n3\nthree\r\n"),
        (b"one\ntwo\r\nthree\n", "two", "2\n3", b"one\n2\n3\r\nthree\n"),
        (b"\xef\xbb\xbfone\r\ntwo", "two", "two\nthree", b"\xef\xbb\xbfone\r\ntwo\r\nthree"),
    ],
    ids=[
        "crlf",
        "mixed",
        "bom",
        "no-final-newline",
        "cr-only",
        "cr-only-longer",
        "mixed-crlf-longer",
        "mixed-lf-longer",
        "bom-crlf-end-longer",
    ],  # fmt: skip
)
async def test_f48_b03p_only_the_edited_bytes_differ(
    tmp_path: Path, content: bytes, old: str, new: str, expected: bytes
) -> None:
    (tmp_path / "a").write_bytes(content)
    agent = FakeAgent(tmp_path)
    async with root_with_files() as root:
        await call(root, "read", {"file_path": "a"}, agent)
        result = await call(root, "edit", {"file_path": "a", "old_string": old, "new_string": new}, agent)
        assert not result.is_error
        assert (tmp_path / "a").read_bytes() == expected


@pytest.mark.parametrize("content", [b"a\xff b", "größe".encode("latin-1"), b"x" * 9000 + b"\0"])
async def test_f47c_an_edit_never_rewrites_what_it_cannot_read(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a").write_bytes(content)
    async with root_with_files(policy=False) as root:
        result = await call(root, "edit", {"file_path": "a", "old_string": "x", "new_string": "y"}, FakeAgent(tmp_path))
        assert code(result) == ("FsError", "FS_NOT_TEXT")
        assert (tmp_path / "a").read_bytes() == content


# -- what has been seen ----------------------------------------------------------------------------------------------


async def edit(root: Context, agent: Any, old: str, new: str) -> Any:
    return await call(root, "edit", {"file_path": "a", "old_string": old, "new_string": new}, agent)


async def test_b05a_nothing_is_changed_unread(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one")
    agent = FakeAgent(tmp_path)
    async with root_with_files() as root:
        refused = await edit(root, agent, "one", "two")
        assert told(refused) == f'Error: edit requires reading "{tmp_path}/a" first — read the file, then retry'
        assert code(refused) == ("FsError", "FS_NOT_OBSERVED")
        refused = await call(root, "write", {"file_path": "a", "content": "two"}, agent)
        assert told(refused) == (
            f'Error: cannot overwrite existing "{tmp_path}/a" without reading it first — read the file, then retry'
        )
        assert code(refused) == ("FsError", "FS_NOT_OBSERVED")
        assert (tmp_path / "a").read_text() == "one"
        # Any window of the file counts as having read it, and a change counts too.
        await call(root, "read", {"file_path": "a", "limit": 1}, agent)
        assert not (await edit(root, agent, "one", "two")).is_error
        assert not (await edit(root, agent, "two", "three")).is_error
        assert not (await call(root, "write", {"file_path": "a", "content": "four"}, agent)).is_error


async def test_b05b_what_changed_since_is_stale(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one")
    agent = FakeAgent(tmp_path)
    async with root_with_files() as root:
        await call(root, "read", {"file_path": "a"}, agent)
        (tmp_path / "a").write_text("other")
        stale = await edit(root, agent, "one", "two")
        assert told(stale) == (
            f'Error: cannot edit "{tmp_path}/a": file changed since it was read — re-read the file, then retry'
        )
        assert code(stale) == ("FsError", "FS_STALE_VERSION")
        stale = await call(root, "write", {"file_path": "a", "content": "two"}, agent)
        assert told(stale) == (
            f'Error: cannot write "{tmp_path}/a": file changed since it was read — re-read the file, then retry'
        )
        assert (tmp_path / "a").read_text() == "other"


async def test_b02g_a_deleted_file_is_stale_until_its_absence_is_seen(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one")
    agent = FakeAgent(tmp_path)
    async with root_with_files() as root:
        await call(root, "read", {"file_path": "a"}, agent)
        (tmp_path / "a").unlink()
        stale = await call(root, "write", {"file_path": "a", "content": "two"}, agent)
        assert told(stale) == (
            f'Error: cannot write "{tmp_path}/a": file no longer exists — re-read the file, then retry'
        )
        missing = await call(root, "read", {"file_path": "a"}, agent)
        assert (told(missing), code(missing)) == (
            f'Error: cannot read "{tmp_path}/a": not found',
            ("FsError", "FS_NOT_FOUND"),
        )
        gone = await edit(root, agent, "one", "two")
        assert (told(gone), code(gone)) == (
            f'Error: cannot edit "{tmp_path}/a": not found',
            ("FsError", "FS_NOT_FOUND"),
        )
        again = await call(root, "write", {"file_path": "a", "content": "two"}, agent)
        assert "Created file" in told(again)
        assert not (await edit(root, agent, "two", "three")).is_error


async def test_b05c_sessions_do_not_share_what_they_saw(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one")
    reader, other = FakeAgent(tmp_path), FakeAgent(tmp_path)
    async with root_with_files() as root:
        await call(root, "read", {"file_path": "a"}, reader)
        assert code(await edit(root, other, "one", "two")) == ("FsError", "FS_NOT_OBSERVED")
        assert not (await edit(root, reader, "one", "two")).is_error


async def test_b05d_nobody_never_edits(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one")
    async with root_with_files(fs={"cwd": str(tmp_path)}) as root:
        await call(root, "read", {"file_path": "a"})
        assert code(await edit(root, None, "one", "two")) == ("FsError", "FS_NOT_OBSERVED")
        assert not (await call(root, "write", {"file_path": "new", "content": "x"})).is_error
        assert code(await call(root, "write", {"file_path": "a", "content": "x"})) == ("FsError", "FS_NOT_OBSERVED")


async def test_b05e_an_unloaded_policy_forgets(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one")
    agent = FakeAgent(tmp_path)
    async with root_with_files() as root:
        await call(root, "read", {"file_path": "a"}, agent)
        policy = next(fiber for fiber in root.fiber.children() if fiber.name == "fs-observation-policy")
        await policy.restart()
        assert code(await edit(root, agent, "one", "two")) == ("FsError", "FS_NOT_OBSERVED")
        await policy.dispose()
        assert not (await edit(root, agent, "one", "two")).is_error  # without a policy nothing has to be read


async def test_b05f_a_second_decider_is_not_asked(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one")
    agent = FakeAgent(tmp_path)
    asked: list[str] = []
    async with root_with_files() as root:

        @root.on(FsWriteIntent)
        async def on_write(event: FsWriteIntent, next: Any) -> Any:
            asked.append("write")
            return await next()

        @root.on(FsEditIntent)
        async def on_edit(event: FsEditIntent, next: Any) -> Any:
            asked.append("edit")
            return await next()

        await call(root, "read", {"file_path": "a"}, agent)
        await edit(root, agent, "one", "two")
        await call(root, "write", {"file_path": "a", "content": "x"}, agent)
        assert asked == []


async def test_b05g_a_finished_session_is_not_kept_alive(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one")
    agent = FakeAgent(tmp_path)
    async with root_with_files() as root:
        await call(root, "read", {"file_path": "a"}, agent)
        gone = weakref.ref(agent.session)
        del agent
        gc.collect()
        assert gone() is None


async def test_a_listener_that_refuses_an_observation_fails_the_call(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one")
    agent = FakeAgent(tmp_path)
    async with root_with_files() as root:
        seen: list[Any] = []

        @root.on(FsObserved)
        def refuse(event: FsObserved) -> None:
            seen.append(event.observation)
            raise RuntimeError("not that one")

        result = await call(root, "read", {"file_path": "a"}, agent)
        assert told(result) == "Error: not that one"
        assert isinstance(seen[0], Present)


# -- the rest ---------------------------------------------------------------------------------------------------------


async def test_f58b_any_name_works_from_end_to_end(tmp_path: Path) -> None:
    folder = tmp_path / "ä 目录 'q' 😀"
    folder.mkdir()
    agent = FakeAgent(folder)
    async with root_with_files() as root:
        await call(root, "write", {"file_path": "ö 文.txt", "content": "tëxt\n"}, agent)
        await call(root, "edit", {"file_path": "ö 文.txt", "old_string": "tëxt", "new_string": "文"}, agent)
        result = await call(root, "read", {"file_path": "ö 文.txt"}, agent)
        assert f"<path>{folder}/ö 文.txt</path>" in told(result)
        assert "1: 文" in told(result)


async def test_b14f_odd_strings_never_break_a_result_or_a_log_line(tmp_path: Path) -> None:
    (Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))).mkdir()
    agent = FakeAgent(tmp_path)
    odd = FakeAgent(Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")))
    async with root_with_files() as root:
        for arguments, who in (
            ({"file_path": "a\0b", "content": "x"}, agent),
            ({"file_path": "a\ud800", "content": "x\udfff"}, agent),
            ({"file_path": "b", "content": "\0\x1b[31m\u2028\x85"}, agent),
            ({"file_path": "c", "content": "x"}, odd),
        ):
            result = await call(root, "write", arguments, who)
            line = encode(thaw([list(result.content), result.meta, result.value]))
            assert b"\n" not in line and json.loads(line)
            told(result).encode()
        assert (tmp_path / "a\ufffd").read_text() == "x\ufffd"
        read = await call(root, "read", {"file_path": "c"}, odd)
        assert f"<path>{tmp_path}/caf\ufffd/c</path>" in told(read)


async def test_an_aborted_call_does_nothing(tmp_path: Path) -> None:
    controller = AbortController()
    controller.abort()
    async with root_with_files() as root:
        result = await call(root, "write", {"file_path": "a", "content": "x"}, FakeAgent(tmp_path), controller.signal)
        assert told(result) == "Error: tool call aborted before dispatch"
        assert os.listdir(tmp_path) == []


async def test_cards_for_people(tmp_path: Path) -> None:
    async with root_with_files() as root:
        definitions = {name: root[Tools].get(name) for name in ("read", "write", "edit")}
        assert definitions["read"].present_call({"file_path": "a", "offset": 3}) == {
            "card": "generic",
            "title": "a",
            "kind": "read",
            "locations": [{"path": "a", "line": 3}],
        }
        assert definitions["write"].present_call({"file_path": "a", "content": "x"})["diffs"] == [
            {"path": "a", "oldText": None, "newText": "x"}
        ]
        meta = {"diffs": [{"path": "a", "oldText": "x", "newText": "y"}]}
        done = {"content": [], "isError": False, "meta": meta}
        arguments = {"file_path": "a", "old_string": "x", "new_string": "y"}
        assert definitions["edit"].present_result(arguments, done) == {"card": "diff", **meta}
        for odd in (None, 1, {"diffs": 3}, {"lines": 3}, {"lines": []}):
            for name, given in (("read", {"file_path": "a"}), ("edit", arguments)):
                assert definitions[name].present_result(given, {"content": [], "isError": False, "meta": odd}) is None
