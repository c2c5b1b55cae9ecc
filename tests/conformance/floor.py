"""The recorded floor: what each case reached. A case below it fails; one above it asks for the floor to be raised."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

FILE = Path(__file__).with_name("floor.tsv")
WAITING = "waiting"
NOTHING = "-"
MARKS = ("L1", "L2", "wire", "cli", "tools")
"""In the order of the matrix. L0 is no matter of the floor: every recorded log passes it."""

_HEAD = """\
# What each recorded case reached; written by `scripts/conformance --raise`, lowered by hand only.
# Level 0 is not listed: every recorded log passes it. Cases whose plugins are missing wait.
"""


def read() -> dict[str, frozenset[str]]:
    """Marks by case."""
    lines = [line for line in FILE.read_text("utf-8").split("\n") if line and not line.startswith("#")]
    return {case: frozenset(marks.split()) - {NOTHING} for case, marks in (line.split("\t") for line in lines)}


def raised(recorded: frozenset[str], reached: frozenset[str]) -> frozenset[str]:
    """The new floor of a case: what it lost stays recorded, so that it goes on failing."""
    marks = (recorded | reached) - {WAITING}
    return marks or recorded | reached


def write(reached: Mapping[str, frozenset[str]]) -> None:
    """Raise the floor to what was reached; lowering it is done by hand. Cases that were not run keep their line."""
    recorded = read()
    marks = {**recorded, **{case: raised(recorded.get(case, frozenset()), found) for case, found in reached.items()}}
    lines = [f"{case}\t{show(marks[case])}" for case in sorted(marks)]
    FILE.write_text(_HEAD + "\n".join(lines) + "\n", "utf-8")


def show(marks: frozenset[str]) -> str:
    """Marks in the order of the matrix."""
    order = (*MARKS, WAITING)
    return " ".join(sorted(marks, key=order.index)) or NOTHING
