"""`dsh sessions search|fork|rm|export|import` and the filters of `list`, on sessions that real runs stored."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from dsh.cli.output import CommandFailed
from dsh.cli.sessions_change import rm
from dsh.core.session_header import SessionHeader
from dsh.models.mock_server import MockLlmServer
from dsh.sessions.jsonl_store import JsonlHold
from dsh.sessions.paths import session_dir
from tests.cli.kit import PYTHON, TIMEOUT, Place

TOOL_RUN: list[Any] = [
    {
        "reasoning": "hidden thought of a heron",
        "toolCalls": [{"name": "read", "arguments": '{"file_path":"zebra.txt"}'}],
    },
    {"text": "\x1b[2JThe file says: striped `animal`.\n\n```\ncode\n```"},
]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place.make(tmp_path)


async def run(place: Place, task: str, script: list[Any], *more: str) -> str:
    """The id of the session of one real run against a scripted model."""
    async with MockLlmServer(script) as server:
        place.model(server.url)
        done = await place.dsh("exec", task, "--output", "json", *more)
    assert done.code == 0, done.err
    return str(done.json()["sessionId"])


def log_of(place: Place, session_id: str) -> Path:
    (log,) = (place.home / "sessions").glob(f"*/{session_id}/session.jsonl*")
    return log


async def events_of(place: Place, session_id: str) -> list[Any]:
    return (await place.dsh("sessions", "show", session_id, "--events")).lines()


async def test_search_finds_titles_messages_calls_and_results_and_nothing_hidden(place: Place) -> None:
    place.write("zebra.txt", "GIRAFFE in the file\n")
    zebra = await run(place, "Look at the Zebra file", TOOL_RUN)
    other = await run(place, 'Say ünïcode "quoted" wörds', [{"text": "nothing more"}])
    places = {"zebra FILE": "user", "striped": "assistant", "zebra.txt": "call", "giraffe": "result"}
    for text, kind in places.items():
        told = (await place.dsh("sessions", "search", text, "--json")).json()
        assert [each["id"] for each in told["sessions"]] == [zebra], text
        (found,) = told["sessions"]
        assert kind in {each["kind"] for each in found["matches"]}, (text, found)
        assert all(text.casefold() in each["snippet"].casefold() for each in found["matches"])
    for text in ("ÜNÏCODE", '"quoted" W'):
        assert [e["id"] for e in (await place.dsh("sessions", "search", text, "--json")).json()["sessions"]] == [other]
    hidden = await place.dsh("sessions", "search", "heron")
    assert hidden.code == 1 and hidden.out == "nothing found\n"
    title = await place.dsh("sessions", "search", "say ünïcode", "--titles", "--json")
    assert title.json()["sessions"][0]["inTitle"] and title.json()["sessions"][0]["matches"] == []
    shown = await place.dsh("sessions", "search", "zebra")
    assert shown.code == 0 and shown.out.startswith(zebra) and "user: Look at the Zebra file" in shown.out
    assert (await place.dsh("sessions", "search", " ")).code == 2


async def test_search_is_bounded_and_passes_over_what_is_damaged(place: Place) -> None:
    ids = [await run(place, f"hippo number {number}", [{"text": "hippo hippo"}]) for number in range(3)]
    one = await place.dsh("sessions", "search", "hippo", "--limit", "1", "--json")
    assert [each["id"] for each in one.json()["sessions"]] == [ids[-1]] and not one.json()["complete"]
    log_of(place, ids[1]).write_bytes(log_of(place, ids[1]).read_bytes()[:-40] + b"x" * 40)
    rest = await place.dsh("sessions", "search", "hippo", "--json")
    assert ids[0] in [each["id"] for each in rest.json()["sessions"]]
    assert ids[2] in [each["id"] for each in rest.json()["sessions"]]


async def test_search_of_large_logs_is_fast(place: Place) -> None:
    session_id = await run(place, "start", [{"text": "fine"}])
    lines = (await place.dsh("sessions", "export", session_id)).out.splitlines()
    message = next(line for line in lines if '"user/message"' in line)
    folder = place.home / "sessions" / log_of(place, session_id).parent.parent.name
    for number in range(20):
        copy = folder / f"big-{number}"
        copy.mkdir()
        header = json.loads(lines[0]) | {"id": f"big-{number}"}
        body = [message.replace('"text":"start"', f'"text":"{"filler " * 2000}{i}"') for i in range(400)]
        (copy / "session.jsonl").write_text("\n".join([json.dumps(header), *body]) + "\n")
    begin = time.monotonic()
    done = await place.dsh("sessions", "search", "no such words anywhere", "--json")
    assert done.json()["searched"] == 21 and done.json()["complete"]
    assert time.monotonic() - begin < 20


async def test_list_filters_by_time_and_workspace(place: Place) -> None:
    old, new = await run(place, "old", [{"text": "a"}]), await run(place, "new", [{"text": "b"}])
    then = time.time() - 3 * 86400
    os.utime(log_of(place, old), (then, then))

    async def ids(*arguments: str) -> list[str]:
        return [each["id"] for each in (await place.dsh("sessions", "list", "--json", *arguments)).json()["sessions"]]

    assert (
        await ids() == [new, old] and await ids("--since", "2d") == [new] and await ids("--since", "1w") == [new, old]
    )
    assert await ids("--since", "2001-01-01") == [new, old] and await ids("--cwd", "/elsewhere") == []
    wrong = await place.dsh("sessions", "list", "--since", "yesterday")
    assert wrong.code == 2 and "7d" in wrong.err


async def test_fork_prints_the_id_of_a_copy_that_can_be_resumed(place: Place) -> None:
    first = await run(place, "remember the otter", [{"text": "done"}])
    done = await place.dsh("sessions", "fork", first)
    copy = done.out.strip()
    assert done.code == 0 and copy != first and f"of {first}" in done.err
    original = await events_of(place, first)
    assert (await events_of(place, copy))[: len(original)] == original
    async with MockLlmServer([{"text": "again"}]) as server:
        place.model(server.url)
        assert (await place.dsh("resume", copy, "go on")).out == "again\n"
    assert len(await events_of(place, first)) == len(original)
    told = (await place.dsh("sessions", "fork", first, "--json")).json()
    assert told["parentSession"] == first and told["events"] == len(original)
    assert (await place.dsh("sessions", "fork", first, "--at", "999")).code == 2


async def test_rm_asks_and_removes_and_refuses_open_sessions(place: Place) -> None:
    first, second = await run(place, "one", [{"text": "a"}]), await run(place, "two", [{"text": "b"}])
    refused = await place.dsh("sessions", "rm", first)
    assert refused.code == 2 and "--yes" in refused.err and log_of(place, first).exists()
    done = await place.dsh("sessions", "rm", first, "--yes")
    assert done.code == 0 and done.out == f"removed {first}\n"
    assert not list((place.home / "sessions").glob(f"*/{first}"))
    assert [each["id"] for each in (await place.dsh("sessions", "list", "--json")).json()["sessions"]] == [second]
    assert (await place.dsh("sessions", "rm", first, "--yes")).code == 1
    place.init()
    async with place.daemon() as daemon:
        await daemon.ready()
        await place.dsh("send", "main", "hello")
        await daemon.event("turn/end")
        (live,) = [
            e["id"] for e in (await place.dsh("sessions", "list", "--json")).json()["sessions"] if e["id"] != second
        ]
        opened = await place.dsh("sessions", "rm", second, live, "--yes")
        assert opened.code == 1 and str(daemon.process.pid) in opened.err and "nothing was removed" in opened.err
        assert log_of(place, second).exists() and log_of(place, live).exists()


def test_rm_tells_what_is_gone_when_another_one_cannot_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = ["s-one", "s-two", "s-three"]
    for each in ids:
        folder = Path(session_dir(str(tmp_path), None, each))
        folder.mkdir(parents=True)
        (folder / "session.jsonl").write_text(json.dumps(SessionHeader(each, 1).to_wire()) + "\n")
    delete = JsonlHold.delete

    def refusing(self: JsonlHold) -> None:
        if self.session_id == "s-two":
            raise OSError(13, "Permission denied", "s-two")
        delete(self)

    monkeypatch.setattr(JsonlHold, "delete", refusing)
    with pytest.raises(CommandFailed) as failed:
        rm(ids, root=str(tmp_path), yes=True)
    said = capsys.readouterr()
    assert failed.value.exit_code == 1 and said.out == "removed s-one\nremoved s-three\n"
    assert said.err.startswith("dsh: s-two is not removed: ") and "Permission denied" in said.err


async def test_rm_on_a_terminal_shows_what_is_meant_and_takes_no_for_an_answer(place: Place) -> None:
    first = await run(place, "the only one", [{"text": "a"}])
    for answer, code, there in (("n", 1, True), ("y", 0, False)):
        ours, theirs = os.openpty()
        with open(ours, "r+b", buffering=0) as terminal:
            process = await asyncio.create_subprocess_exec(
                *(PYTHON, "-m", "dsh.cli.main", "sessions", "rm", first),
                cwd=place.work,
                env=place.env,
                stdin=theirs,
                stdout=asyncio.subprocess.PIPE,
                stderr=theirs,
            )
            os.close(theirs)
            seen = b""
            while b"for good?" not in seen:
                seen += await asyncio.to_thread(os.read, terminal.fileno(), 4096)
            terminal.write(f"{answer}\n".encode())
            assert await asyncio.wait_for(process.wait(), TIMEOUT) == code
        assert b"the only one" in seen and bool(list((place.home / "sessions").glob(f"*/{first}"))) is there


async def test_rm_removes_a_session_that_cannot_be_read(place: Place) -> None:
    first = await run(place, "one", [{"text": "a"}])
    log_of(place, first).write_bytes(b"nonsense")
    done = await place.dsh("sessions", "rm", first, "--yes")
    assert done.code == 0 and not list((place.home / "sessions").glob(f"*/{first}"))


async def test_a_session_travels_by_export_and_import(place: Place, tmp_path: Path) -> None:
    place.write("zebra.txt", "striped\n")
    first = await run(place, "Look at the Zebra file", TOOL_RUN)
    file = place.work / "carried.jsonl"
    done = await place.dsh("sessions", "export", first, "-o", str(file))
    assert done.code == 0 and done.out == "" and file.stat().st_mode & 0o777 == 0o600
    assert (await place.dsh("sessions", "export", first)).out.encode() == file.read_bytes()
    again = await place.dsh("sessions", "export", first, "-o", str(file))
    assert again.code == 1 and "--force" in again.err
    collision = await place.dsh("sessions", "import", str(file))
    assert collision.code == 1 and "already" in collision.err and "--as" in collision.err
    renamed = await place.dsh("sessions", "import", str(file), "--as", "another", "--json")
    assert renamed.json()["id"] == "another" and await events_of(place, "another") == await events_of(place, first)
    before = await events_of(place, first)
    elsewhere = {"DSH_HOME": str(tmp_path / "elsewhere")}
    brought = await place.dsh("sessions", "import", "-", "--cwd", str(tmp_path), stdin=file.read_text(), env=elsewhere)
    assert brought.code == 0 and brought.out == f"{first}\n"
    shown = await place.dsh("sessions", "show", first, "--events", env=elsewhere)
    assert shown.lines() == before
    assert (await place.dsh("sessions", "verify", first, env=elsewhere)).code == 0
    stored = log_of(place, first).read_bytes()
    (place.work / "stored").write_bytes(stored)
    assert (await place.dsh("sessions", "import", "stored", "--as", "third")).code == 0


@pytest.mark.parametrize("damage", ["empty", "no log", "gap", "newer", "unknown event"])
async def test_import_refuses_what_could_not_be_opened(place: Place, damage: str) -> None:
    first = await run(place, "one", [{"text": "a"}])
    lines = (await place.dsh("sessions", "export", first)).out.splitlines()
    header = json.loads(lines[0]) | {"id": "brought"}
    lines[0] = json.dumps(header)
    if damage == "empty":
        lines = []
    elif damage == "no log":
        lines = ["hello", "world"]
    elif damage == "gap":
        del lines[3]
    elif damage == "newer":
        lines[0] = json.dumps(header | {"version": 99})
    else:
        event = json.loads(lines[1])
        lines[1] = json.dumps(event | {"type": "from/the-future"})
    place.write("bad.jsonl", "".join(f"{line}\n" for line in lines))
    done = await place.dsh("sessions", "import", "bad.jsonl")
    assert done.code == 1 and done.err.startswith("dsh: ") and "Traceback" not in done.err
    assert [each["id"] for each in (await place.dsh("sessions", "list", "--json")).json()["sessions"]] == [first]


async def test_export_as_markdown_is_a_transcript_to_read(place: Place) -> None:
    place.write("zebra.txt", "```\nfence in a file\n```\n")
    first = await run(place, "Look at the Zebra file", TOOL_RUN)
    text = (await place.dsh("sessions", "export", first, "--format", "md")).out
    assert text.startswith("# Look at the Zebra file\n") and f"Session `{first}`" in text
    assert "## User\n\nLook at the Zebra file\n" in text and "**Call of `read`**" in text
    assert "\n````\n" in text, "a fence longer than those in the result"
    assert "## Assistant\n\n[2JThe file says: striped `animal`." in text and "heron" not in text and "\x1b" not in text
    assert (await place.dsh("sessions", "export", first, "--format", "html")).code == 2
