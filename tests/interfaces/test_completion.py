"""What a console offers to complete, and what it remembers: quick and bounded whatever it finds."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from dsh.cordis import HarnessError
from dsh.interfaces import file_names, history
from dsh.interfaces.commands import Command, CommandTable, Suggestion
from dsh.interfaces.completion import Completion
from dsh.interfaces.file_names import FileNames
from dsh.interfaces.history import InputHistory


def tree(root: Path, *paths: str) -> str:
    for path in paths:
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
    return str(root)


def test_the_likeliest_files_come_first(tmp_path: Path) -> None:
    folder = tree(tmp_path, "notes/main_list.txt", "src/main.py", "main.c", "x/m/a/i/n.txt", ".git/main", "domain/a")
    assert FileNames().matching(folder, "main") == [
        "main.c",
        "src/main.py",
        "notes/main_list.txt",
        "domain/",
        "domain/a",
        "x/m/a/i/n.txt",
    ]


def test_paths_elsewhere_hidden_ones_and_ones_with_spaces_are_found_by_their_folder(tmp_path: Path) -> None:
    folder = tree(tmp_path / "here", ".hidden", "a b/c")
    tree(tmp_path / "other", "file.txt")
    names = FileNames()
    assert names.matching(folder, "../other/f") == ["../other/file.txt"]
    assert names.matching(folder, str(tmp_path / "oth")) == [f"{tmp_path}/other/"]
    assert names.matching(folder, ".h") == [".hidden"]
    assert names.matching(folder, "") == ["a b/"]
    assert names.matching(folder, "nothing/here/") == []


def test_a_large_tree_costs_a_bounded_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_names, "ENTRIES", 50)
    folder = tree(tmp_path, *(f"d{n:02}/f{m}" for n in range(20) for m in range(20)), "near.txt")
    looked = 0
    scandir = os.scandir

    def counting(path: str) -> object:
        nonlocal looked
        looked += 1
        return scandir(path)

    monkeypatch.setattr(os, "scandir", counting)
    names = FileNames()
    assert "near.txt" in names.matching(folder, "near")
    assert looked < 10
    assert names.matching(folder, "d19/f") == [f"d19/f{m}" for m in sorted(range(20), key=str)]  # typed: found
    before = looked
    names.matching(folder, "nea")
    assert looked == before + 1  # the folder itself; what is below is still known


def test_a_link_that_leads_back_ends(tmp_path: Path) -> None:
    folder = tree(tmp_path, "a/b.txt")
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    assert "a/b.txt" in FileNames().matching(folder, "b.txt")


def completion(folder: str = "/") -> Completion:
    table = CommandTable()
    table.add(Command("settings", lambda argument, screen: None, "h", complete=lambda a: ["one", "two", "atone"]))
    table.add(Command("send", lambda argument, screen: None, "s"))
    return Completion(table, lambda: folder)


@pytest.mark.parametrize(
    ("before", "length", "words"),
    [
        ("/se", 2, ["settings", "send"]),
        ("/set", 3, ["settings"]),
        ("/x", 1, []),
        ("/settings ", 0, ["one", "two", "atone"]),
        ("/settings on", 2, ["one", "atone"]),
        ("/settings one tw", 2, ["two"]),
        ("/send on", 0, []),
        ("text /se", 0, []),
        ("mail a@b", 0, []),
    ],
)
def test_commands_and_their_arguments(before: str, length: int, words: list[str]) -> None:
    found_length, found = completion().suggestions(before)
    assert (found_length if found else 0, [each.text for each in found]) == (length if words else 0, words)


def test_folders_lead_on(tmp_path: Path) -> None:
    length, found = completion(tree(tmp_path, "src/a.py")).suggestions("see @sr")
    assert length == 2 and found[0] == Suggestion("src/")


def test_a_name_is_taken_once_and_given_back() -> None:
    table = CommandTable()
    remove = table.add(Command("greet", lambda argument, screen: None, ""))
    with pytest.raises(HarnessError, match="registered already"):
        table.add(Command("greet", lambda argument, screen: None, ""))
    for name in ("", "/x", "Greet", "a b", "9"):
        with pytest.raises(HarnessError, match="a name begins with a letter"):
            table.add(Command(name, lambda argument, screen: None, ""))
    remove()
    remove()
    assert table.get("greet") is None


def test_the_history_is_bounded_private_and_survives_rubbish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "ENTRIES", 5)
    path = tmp_path / "home" / "history"
    kept = InputHistory(path)
    assert kept.load() == []
    for text in ("a\nb", "a\nb", "", " secret", "x" * 20_000, "/config llm.apiKey sk-1", "ü"):
        kept.add(text)
    assert path.stat().st_mode & 0o777 == 0o600
    with path.open("ab") as file:
        file.write(b'\xff\xfe not json\n{}\n"half')
    assert InputHistory(path).load() == ["a\nb", "ü"]
    path.write_text("".join(json.dumps(f"entry {n}") + "\n" for n in range(10)), "utf-8")
    assert InputHistory(path).load() == [f"entry {n}" for n in range(5, 10)]
    assert len(path.read_text("utf-8").split("\n")) == 6
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_history_that_cannot_be_written_costs_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    kept = InputHistory(tmp_path / "file" / "history")
    kept.add("text")
    assert kept.load() == []


async def test_completions_are_the_same_asked_for_at_once_or_in_the_background(tmp_path: Path) -> None:
    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document

    from dsh.interfaces.prompt_app import _Completer
    from dsh.interfaces.prompt_line import PromptLine

    folder, line, table = tree(tmp_path, "notes.txt"), PromptLine(lambda: False), CommandTable()
    table.add(Command("note", print, "writes it down"))
    asked, completer = CompleteEvent(completion_requested=True), _Completer(line)
    assert list(completer.get_completions(Document("/no"), asked)) == []
    line.completion = Completion(table, lambda: folder)
    for typed, wanted in (("/no", "note"), ("see @no", "notes.txt")):
        found = list(completer.get_completions(Document(typed), asked))
        assert [each.text for each in found] == [wanted]
        assert [each async for each in completer.get_completions_async(Document(typed), asked)] == found
