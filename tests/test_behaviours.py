"""The list of behaviours and the tests it names stay in step: no dead name, no number missing, nothing due untested."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENT = ROOT / "docs" / "behaviours.md"

ENTRIES = {
    "Plugin runtime": 27,
    "Composition files and hot reload": 21,
    "Session log": 71,
    "Agents and the loop": 73,
    "Tools and the system prompt": 65,
    "Models": 54,
    "Settings and credentials": 15,
    "Files, shell and their tools": 14,
    "Stored sessions": 31,
    "Command line and clients": 18,
}
"""How many behaviours each part has."""


@dataclass
class Entry:
    """One behaviour of the document: where it stands, why it may wait, the tests it names."""

    part: str
    number: int
    line: int
    later: str | None = None
    tests: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"behaviours.md:{self.line}: {self.part} {self.number}"


def parse(text: str) -> list[Entry]:
    """The entries of the document. Raises ``ValueError`` for a line inside a part that is none of its kinds."""
    entries: list[Entry] = []
    part = ""
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("## "):
            part = line[3:]
        elif not part or not line.strip():
            continue
        elif found := re.match(r"(\d+)\. \S", line):
            entries.append(Entry(part, int(found[1]), number))
        elif found := re.fullmatch(r"   - `([^`]+)`", line):
            entries[-1].tests.append(found[1])
        elif found := re.match(r"   - later: (\S.*)", line):
            entries[-1].later = found[1]
        elif not re.match(r"   \S", line) or line.startswith("   - "):
            raise ValueError(f"behaviours.md:{number}: neither an entry nor its text, a test or a reason: {line}")
    return entries


@cache
def collected(path: str) -> frozenset[str]:
    """The test functions that pytest finds in a file: module level ones and those of ``Test`` classes."""
    module = ast.parse((ROOT / path).read_text("utf-8"))
    bodies = [module.body, *(node.body for node in module.body if isinstance(node, ast.ClassDef))]
    functions = (node for body in bodies for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(node.name for node in functions if node.name.startswith("test_"))


def problem_of(test: str) -> str | None:
    """Why a named test cannot be the one that pins something; ``None`` if it can."""
    path, separator, name = test.partition("::")
    if not separator or not re.fullmatch(r"tests/(\w+/)*test_\w+\.py", path):
        return "is no path::name of a test file"
    if not (ROOT / path).is_file():
        return f"there is no {path}"
    if name not in collected(path):
        return f"there is no {name} in {path}"
    return None


@pytest.fixture(scope="module")
def entries() -> list[Entry]:
    return parse(DOCUMENT.read_text("utf-8"))


def test_every_entry_is_there_exactly_once_and_in_order(entries: list[Entry]) -> None:
    numbers: dict[str, list[int]] = {}
    for entry in entries:
        numbers.setdefault(entry.part, []).append(entry.number)
    assert numbers == {part: list(range(1, count + 1)) for part, count in ENTRIES.items()}


def test_every_named_test_exists(entries: list[Entry]) -> None:
    dead = [f"{entry}: {test}: {why}" for entry in entries for test in entry.tests if (why := problem_of(test))]
    assert dead == [], "\n" + "\n".join(dead)


def test_nothing_due_is_without_a_test(entries: list[Entry]) -> None:
    bare = [str(entry) for entry in entries if not entry.tests and entry.later is None]
    assert bare == [], "\n" + "\n".join(bare)


def test_no_test_is_named_twice_for_one_entry(entries: list[Entry]) -> None:
    doubled = [str(entry) for entry in entries if len(set(entry.tests)) < len(entry.tests)]
    assert doubled == []


def test_a_test_that_carries_a_number_serves_an_entry_of_that_number(entries: list[Entry]) -> None:
    """A name like ``test_b07a_…`` promises entry 7; it may serve others besides."""
    served: dict[str, set[int]] = {}
    for entry in entries:
        for test in entry.tests:
            served.setdefault(test, set()).add(entry.number)
    astray = [
        f"{test} serves {sorted(numbers)}"
        for test, numbers in served.items()
        if (promised := {int(found) for found in re.findall(r"_b(\d\d)[a-z]?(?=_)", test)}) and not promised & numbers
    ]
    assert astray == [], "\n" + "\n".join(astray)


@pytest.mark.parametrize(
    ("test", "why"),
    [
        ("tests/test_behaviours.py::test_every_named_test_exists", None),
        ("tests/test_behaviours.py::collected", "there is no collected in tests/test_behaviours.py"),
        ("tests/test_nowhere.py::test_x", "there is no tests/test_nowhere.py"),
        ("tests/cordis/helpers.py::test_x", "is no path::name of a test file"),
        ("tests/test_behaviours.py", "is no path::name of a test file"),
    ],
)
def test_the_check_tells_dead_names_from_living_ones(test: str, why: str | None) -> None:
    assert problem_of(test) == why


def test_the_document_is_read_strictly() -> None:
    text = "intro\n## Part\n\n1. One line\n   and another\n   - `tests/a.py::b`\n2. Two\n   - later: not yet\n"
    assert [(e.part, e.number, e.line, e.later, e.tests) for e in parse(text)] == [
        ("Part", 1, 4, None, ["tests/a.py::b"]),
        ("Part", 2, 7, "not yet", []),
    ]
    for bad in ("## Part\n1. One\n   - tests/a.py::b\n", "## Part\n1. One\nloose text\n", "## Part\n1.\n"):
        with pytest.raises(ValueError, match=r"behaviours.md:\d"):
            parse(bad)
