"""Every recorded run, replayed through the real loop, tools, stores and servers of this build.

A case that reaches less than the floor says fails with the differences; one that reaches more asks for the floor to be
raised. A case whose plugins are not built waits for them by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance import floor
from tests.conformance.corpus import Case, load_cases
from tests.conformance.drivers import DRIVERS
from tests.conformance.needs import waits_for
from tests.conformance.verdict import judge

CASES = [case for case in load_cases() if case.driver in DRIVERS and case.target != "L0"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
async def test_case(
    case: Case, tmp_path: Path, record_property: Callable[[str, object], None], request: pytest.FixtureRequest
) -> None:
    raising = bool(request.config.getoption("--raise", False))
    recorded = floor.read().get(case.id, frozenset())
    waiting = waits_for(case)
    if waiting:
        record_property("waiting", " ".join(waiting))
        if not raising:
            assert recorded <= {floor.WAITING}, f"{case.id} was at {floor.show(recorded)} and now waits for {waiting}"
        pytest.skip(f"waits for {', '.join(waiting)}")
    verdict = await judge(case, tmp_path)
    record_property("marks", " ".join(sorted(verdict.marks)))
    record_property("notes", json.dumps([verdict.left_out, verdict.replaced, verdict.allowed, verdict.report]))
    if raising:
        return
    report = "\n".join(verdict.report)
    lost = recorded - verdict.marks - {floor.WAITING}
    assert not lost, f"{case.id} lost {floor.show(lost)}, kept {floor.show(verdict.marks)}\n{report}"
    assert recorded == verdict.marks, (
        f"{case.id} stands at {floor.show(verdict.marks)}, the floor at {floor.show(recorded)}; "
        f"record it with scripts/conformance --raise\n{report}"
    )


def test_the_floor_names_the_cases_of_the_corpus() -> None:
    assert set(floor.read()) == {case.id for case in CASES}
