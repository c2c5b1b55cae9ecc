"""Running one case and saying what it reached, with every difference in words."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tests.conformance.allowed import allowances, apply
from tests.conformance.comparison import Part, differences
from tests.conformance.corpus import Case
from tests.conformance.drivers import driver_of

SHOWN = 60
"""Lines of one part's differences in a report."""
_PROBLEM = 1_000


@dataclass
class Verdict:
    """What a case reached. ``marks`` of L1, L2, wire, cli, tools; ``notes`` say what was left out or replaced."""

    marks: frozenset[str]
    report: list[str]
    allowed: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    replaced: dict[str, str] = field(default_factory=dict)


async def judge(case: Case, root: Path) -> Verdict:
    """Run the case below ``root`` and compare everything it left."""
    ran = await driver_of(case)(case, root)
    allowed = allowances(case.id)
    parts = apply(ran.parts, allowed)
    report = [f"problem: {problem[:_PROBLEM]}" for problem in ran.problems]
    for part in parts:
        report += _lines(part)
    return Verdict(
        frozenset(_marks(parts, ran.problems)),
        report,
        [allowance.reason for allowance in allowed],
        ran.composition.left_out,
        ran.composition.replaced,
    )


def _marks(parts: list[Part], problems: list[str]) -> list[str]:
    runs = [part for part in parts if part.kind != "tools"]
    wires = [part for part in parts if part.kind == "wire"]
    logs = [part for part in parts if part.kind == "log"]
    tools = [part for part in parts if part.kind == "tools"]
    marks = []
    if not runs and not problems:
        return ["cli"]
    if (runs != wires or _holds_events(wires)) and not problems:
        if all(part.is_alike for part in runs):
            marks.append("L1")
        if all(part.is_exact for part in runs):
            marks.append("L2")
    if wires and all(part.is_exact for part in wires) and (logs or not problems):
        marks.append("wire")
    if tools and all(part.is_exact for part in tools):
        marks.append("tools")
    return marks


def _holds_events(parts: list[Part]) -> bool:
    return any("event" in record.get("params", record) for part in parts for record in part.want)


def _lines(part: Part) -> list[str]:
    found = list(differences(part.want, part.got))
    if not found:
        return []
    head = f"{part.name}: recorded (-), here (+){', alike in structure' if part.is_alike else ''}"
    more = [f"… {len(found) - SHOWN} more lines"] if len(found) > SHOWN else []
    return [head, *(f"  {line}" for line in found[:SHOWN]), *more]
