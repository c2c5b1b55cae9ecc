"""Searching stored logs without an index, and carrying them from one root to another."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import pytest

from dsh.core.session_event import SessionEvent
from dsh.sessions.errors import SessionCollisionError, SessionPersistenceCorruptionError
from dsh.sessions.jsonl_store import Compression
from dsh.sessions.log_file import read_log
from dsh.sessions.search import SearchResult, search_stored
from dsh.sessions.stored import list_stored, read_entry
from dsh.sessions.transfer import export_jsonl, import_jsonl
from tests.sessions.helpers import LogBuilder, header, log_of, store_at, write_log


def said(*texts: str) -> list[SessionEvent]:
    builder = LogBuilder()
    for number, text in enumerate(texts):
        builder.turn(number, text)
    return builder.events


def search(root: Path, text: str, **more: Any) -> SearchResult:
    return search_stored(list_stored(str(root)).sessions, text, **more)


def ids(result: SearchResult) -> list[str]:
    return [found.entry.id for found in result.found]


@pytest.mark.parametrize("compression", ["zstd", "none"])
def test_b23a_what_was_just_written_is_found_and_a_removed_session_is_not(
    tmp_path: Path, compression: Compression
) -> None:
    write_log(tmp_path, header("other"), said("something else"), compression=compression)
    hold = store_at(tmp_path, compression).hold("open", "/w")
    events = said("first", "the platypus")
    hold.append(header("open", "/w"), 0, events[:8])
    assert ids(search(tmp_path, "platypus")) == []
    hold.append(header("open", "/w"), 8, events[8:])
    (found,) = search(tmp_path, "PLATYPUS").found
    (match,) = found.matches
    assert found.entry.id == "open" and match.kind == "user" and events[match.seq].type == match.type == "user/message"
    assert match.snippet == "the platypus" and match.time == events[match.seq].time
    hold.delete()
    assert ids(search(tmp_path, "platypus")) == []


@pytest.mark.parametrize(
    "text",
    [
        'say "hi" to',
        "a * b",
        "50%",
        "back\\slash",
        "C:\\new",
        "tab\there",
        "über ÄÖ",
        "日本",
        "🙂 ok",
        "two\nlines",
        "[a-z]+",
    ],
)
def test_b23b_quotes_stars_and_other_signs_are_literal(tmp_path: Path, text: str) -> None:
    write_log(tmp_path, header("yes"), said(f"before {text} after"))
    write_log(tmp_path, header("no"), said("before a b 50 say hi to back slash after"))
    assert ids(search(tmp_path, text)) == ["yes"] and ids(search(tmp_path, text.upper())) == ["yes"]


def test_b23c_stream_chunks_and_what_only_the_harness_wrote_are_not_found(tmp_path: Path) -> None:
    builder = LogBuilder()
    builder.turn(0, "hello", chunks=3)
    write_log(tmp_path, header("s"), builder.events)
    (found,) = search(tmp_path, "piece 1").found
    assert [match.type for match in found.matches] == ["assistant/message"]
    for hidden in ("text-delta", "assistant-0", "turn/start", "sourceEventSeqs"):
        assert ids(search(tmp_path, hidden)) == []


def test_b23d_a_search_is_bounded_by_number_and_by_time_and_says_so(tmp_path: Path) -> None:
    for number in range(5):
        write_log(tmp_path, header(f"s{number}"), said(*["needle"] * 4))
    all_of_them = search(tmp_path, "needle", per_session=2)
    assert len(all_of_them.found) == 5 and all_of_them.complete
    assert all(len(found.matches) == 2 and found.more for found in all_of_them.found)
    two = search(tmp_path, "needle", limit=2)
    assert len(two.found) == 2 and not two.complete
    ticks = count()
    late = search(tmp_path, "needle", seconds=5, clock=lambda: float(next(ticks)))
    assert 0 < late.searched < 5 and not late.complete
    ticks = count()
    alone = search_stored(
        list_stored(str(tmp_path)).sessions[:1], "absent", seconds=1, clock=lambda: float(next(ticks))
    )
    assert alone.searched == 1 and not alone.complete, "also one log may be too long"


def test_b23e_a_damaged_log_is_named_and_hides_no_other(tmp_path: Path) -> None:
    path = Path(write_log(tmp_path, header("bad"), said("needle"), said("needle")[:0] or log_of(1)))
    write_log(tmp_path, header("good"), said("needle"))
    data = path.read_bytes()
    path.write_bytes(data[:200] + bytes(reversed(data[200:])))
    result = search(tmp_path, "needle")
    assert ids(result) == ["good"] and [each for each, _ in result.unreadable] == ["bad"]


def test_a_snippet_is_one_line_around_the_place(tmp_path: Path) -> None:
    write_log(tmp_path, header("s"), said("x" * 500 + "\n\n needle \t" + "y" * 500))
    (found,) = search(tmp_path, "needle").found
    snippet = found.matches[0].snippet
    assert "needle" in snippet and "\n" not in snippet and len(snippet) <= 122
    assert snippet.startswith("…") and snippet.endswith("…")


@pytest.mark.parametrize("compression", ["zstd", "none"])
def test_a_log_is_carried_whole_and_never_over_another(tmp_path: Path, compression: Compression) -> None:
    events = log_of(1, 2)
    path = write_log(tmp_path / "a", header("s"), events[:5], events[5:], compression=compression)
    data = export_jsonl(read_entry(path, "s"))
    entry, number = import_jsonl(str(tmp_path / "b"), data)
    assert number == len(events) and read_log(entry.path, "s").events == events and entry.header == header("s")
    assert export_jsonl(entry).split(b"\n")[0] == data.split(b"\n")[0]
    before = Path(entry.path).read_bytes()
    with pytest.raises(SessionCollisionError):
        import_jsonl(str(tmp_path / "b"), data)
    assert Path(entry.path).read_bytes() == before
    other, _ = import_jsonl(str(tmp_path / "b"), Path(path).read_bytes(), session_id="t", cwd="/there")
    assert (other.header.id, other.header.cwd) == ("t", "/there") and read_log(other.path, "t").events == events


def test_a_refused_import_leaves_nothing(tmp_path: Path) -> None:
    path = write_log(tmp_path / "a", header("s"), log_of(1, 2), compression="none")
    lines = Path(path).read_bytes().splitlines(keepends=True)
    for bad in (b"", b"\n", lines[0], b"".join(lines[:3] + lines[4:])):
        with pytest.raises(SessionPersistenceCorruptionError):
            import_jsonl(str(tmp_path / "b"), bad)
    assert not (tmp_path / "b").exists()
