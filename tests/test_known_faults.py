"""The list of known faults names living tests, leaves no due entry without one, and covers every guard tried."""

from __future__ import annotations

import re

import pytest

from tests.faults.guards import GUARDS
from tests.test_behaviours import ROOT, Entry, parse, problem_of

DOCUMENT = ROOT / "docs" / "known-faults.md"
COUNT = 66
DUE = {*range(1, 26), *range(30, 39), *range(45, 49), 58, 60, 61, 62}
"""Faults that need nothing which is not built: each has a test that fails when its guard is removed."""


@pytest.fixture(scope="module")
def entries() -> list[Entry]:
    return parse(DOCUMENT.read_text("utf-8"))


def test_every_fault_is_there_exactly_once_and_in_order(entries: list[Entry]) -> None:
    assert [entry.number for entry in entries] == list(range(1, COUNT + 1))


def test_every_named_test_exists(entries: list[Entry]) -> None:
    dead = [f"{entry}: {test}: {why}" for entry in entries for test in entry.tests if (why := problem_of(test))]
    assert dead == [], "\n" + "\n".join(dead)


def test_nothing_due_is_without_a_test_and_nothing_else_is_silent(entries: list[Entry]) -> None:
    assert [entry.number for entry in entries if entry.number in DUE and not entry.tests] == []
    assert [entry.number for entry in entries if not entry.tests and entry.later is None] == []


def test_a_test_that_carries_a_number_stands_under_it(entries: list[Entry]) -> None:
    """A name like ``test_fault07_…`` promises fault 7; it may stand under others besides."""
    under: dict[str, set[int]] = {}
    for entry in entries:
        for test in entry.tests:
            under.setdefault(test, set()).add(entry.number)
    astray = [
        f"{test} stands under {sorted(numbers)}"
        for test, numbers in under.items()
        if (number := re.search(r"_fault(\d\d)[a-z]?_", test)) and int(number[1]) not in numbers
    ]
    assert astray == []


def test_every_guard_names_tests_that_stand_under_its_fault(entries: list[Entry]) -> None:
    listed = {entry.number: set(entry.tests) for entry in entries}
    astray = [f"{guard.row}: {test}" for guard in GUARDS for test in guard.tests if test not in listed[guard.row]]
    assert astray == [], "\n" + "\n".join(astray)


def test_every_due_fault_has_a_guard_that_can_be_taken_away(entries: list[Entry]) -> None:
    assert sorted(DUE - {guard.row for guard in GUARDS}) == []


def test_every_guard_stands_in_the_code_once() -> None:
    """Code that moved takes its guard along: one that cannot be taken away proves nothing."""
    stale = [
        f"{guard.row} ({guard.what}): {file}"
        for guard in GUARDS
        for file, old, _ in guard.edits
        if (ROOT / file).read_text("utf-8").count(old) != 1
    ]
    assert stale == [], "\n" + "\n".join(stale)
