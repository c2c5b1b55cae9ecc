"""The matrix of recorded cases and levels, printed when the tests are over.

Its hooks are taken over by the top conftest, so that they also run in a process that only distributes tests.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import floor

REPOSITORY = Path(__file__).resolve().parents[2]
CORPUS = Path(os.environ.get("DSH_CONFORMANCE") or REPOSITORY.parent / "shared" / "conformance")
PRESENT = (CORPUS / "INDEX.tsv").is_file()
WIRED = ("acp", "headless-stream", "jsonrpc-sdk")
"""Drivers that record what went over a wire."""
COLUMNS = ("L0", *floor.MARKS)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("recorded runs")
    group.addoption("--matrix", action="store_true", help="print what each recorded case reaches")
    group.addoption("--raise", action="store_true", help="record what each case reaches as the floor")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    asked = {(session.config.invocation_params.dir / arg.partition("::")[0]).resolve() for arg in session.config.args}
    if not PRESENT and exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and asked == {Path(__file__).parent}:
        session.exitstatus = pytest.ExitCode.OK  # skipped as a whole, and said so


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if not PRESENT:
        terminalreporter.write_line(f"conformance tests skipped: no corpus at {CORPUS} (set DSH_CONFORMANCE)")
        return
    results = Results()
    for reports in terminalreporter.stats.values():
        for each in reports:
            if isinstance(each, pytest.TestReport):
                results.add(each)
    if config.getoption("--raise"):
        floor.write(results.marks)
    if config.getoption("--matrix"):
        for line in results.matrix():
            terminalreporter.write_line(line)
    elif results.marks:
        terminalreporter.write_line(results.summary())


class Results:
    """What the reports of one test run say about the cases."""

    def __init__(self) -> None:
        self.level0: dict[str, bool] = {}
        self.marks: dict[str, frozenset[str]] = {}
        self.waiting: dict[str, str] = {}
        self.left_out: dict[str, list[str]] = {}
        self.replaced: dict[str, dict[str, str]] = {}
        self.allowed: dict[str, list[str]] = {}
        self.reports: dict[str, list[str]] = {}

    def add(self, report: pytest.TestReport) -> None:
        """Take over what a test noted about its case."""
        noted = dict(report.user_properties)
        case = noted.get("case")
        if case is None or report.when == "teardown":
            return
        case = str(case)
        if noted.get("level") == "L0":
            self.level0[case] = self.level0.get(case, True) and not report.failed
        elif "waiting" in noted:
            self.waiting[case] = str(noted["waiting"])
            self.marks[case] = frozenset({floor.WAITING})
        elif "marks" in noted:
            self.marks[case] = frozenset(str(noted["marks"]).split())
            left_out, replaced, allowed, lines = json.loads(str(noted["notes"]))
            self.left_out[case], self.replaced[case] = left_out, replaced
            self.allowed[case], self.reports[case] = allowed, lines
        elif report.failed:
            self.marks[case] = frozenset()
            self.reports[case] = ["the run itself failed, see above"]

    def summary(self) -> str:
        """One line."""
        reached = sum(self._reaches(row) for row in index())
        return f"recorded runs: {reached} cases at their target, {len(self.waiting)} wait for plugins"

    def matrix(self) -> list[str]:
        """All of it, for a reader."""
        rows = [row for row in index() if self._key(row) in {*self.marks, *self.level0}]
        lines = ["", _row("case", "tier", "target", COLUMNS, "")]
        for row in rows:
            lines.append(self._line(row))
        lines += ["", "yes reached, yes* with differences on purpose, no not reached, . not part of the case"]
        for tier in ("1", "2", "3"):
            of_tier = [row for row in rows if row["tier"] == tier]
            at_target = sum(self._reaches(row) for row in of_tier)
            waiting = sum(self._key(row) in self.waiting for row in of_tier)
            lines.append(f"tier {tier}: {len(of_tier)} cases, {at_target} at their target, {waiting} waiting")
        lines += self._notes(rows)
        return lines

    def _line(self, row: dict[str, str]) -> str:
        case = self._key(row)
        marks = self.marks.get(case, frozenset())
        asked = self._asked(row)
        cells = []
        for column in COLUMNS:
            if column == "L0":
                cells.append(("yes" if self.level0[case] else "no") if case in self.level0 else ".")
            elif case in self.waiting:
                cells.append("wait" if column in asked else ".")
            elif column in marks:
                cells.append("yes*" if self.allowed.get(case) else "yes")
            elif column in asked and case in self.marks:
                cells.append("no")
            else:
                cells.append("no" if column == "tools" and self._tools_differ(case) else ".")
        if case in self.waiting:
            remark = f"waits for {self.waiting[case]}"
        else:
            remark = "" if self._reaches(row) else "below its target"
        return _row(case, row["tier"], row["target"], tuple(cells), remark)

    def _notes(self, rows: list[dict[str, str]]) -> list[str]:
        lines: list[str] = []
        allowed = [(case, reason) for case, reasons in sorted(self.allowed.items()) for reason in reasons]
        if allowed:
            lines += ["", "differences on purpose", *(f"  {case}: {reason}" for case, reason in allowed)]
        replaced: dict[tuple[str, str], list[str]] = defaultdict(list)
        for case, rules in sorted(self.replaced.items()):
            for name, by in rules.items():
                replaced[name, by].append(case)
        if replaced:
            lines += ["", "rows replaced where nothing is confined, until they are built"]
            lines += [f"  {name} by {by}: {len(cases)} cases" for (name, by), cases in sorted(replaced.items())]
        grouped: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for case, names in sorted(self.left_out.items()):
            if names:
                grouped[tuple(names)].append(case)
        for left_out, cases in grouped.items():
            lines += ["", f"rows left out in {', '.join(cases)}", f"  {' '.join(left_out)}"]
        for row in rows:
            case = self._key(row)
            if self.reports.get(case):
                lines += ["", f"{case} differs", *(f"  {line}" for line in self.reports[case])]
        return lines

    def _tools_differ(self, case: str) -> bool:
        return any(".tools.json: " in line for line in self.reports.get(case, ()))

    def _asked(self, row: dict[str, str]) -> tuple[str, ...]:
        if row["target"] != "L2":
            return {"L1": ("L1",), "wire": ("wire",), "cli": ("cli",)}.get(row["target"], ())
        return ("L1", "L2", "wire") if row["driver"] in WIRED else ("L1", "L2")

    def _reaches(self, row: dict[str, str]) -> bool:
        case, target = self._key(row), row["target"]
        if target == "L0":
            return self.level0.get(case, False)
        return target in self.marks.get(case, ())

    def _key(self, row: dict[str, str]) -> str:
        return f"{row['suite']}/{row['case']}"


def index() -> list[dict[str, str]]:
    """The corpus's own list of cases."""
    head, *rows = (line.split("\t") for line in (CORPUS / "INDEX.tsv").read_text("utf-8").split("\n") if line)
    return [dict(zip(head, row, strict=True)) for row in rows]


def _row(case: str, tier: str, target: str, cells: tuple[str, ...], remark: str) -> str:
    return f"{case:<42} {tier:>4} {target:<6} {' '.join(f'{cell:<5}' for cell in cells)} {remark}".rstrip()
