"""Without the corpus these tests are skipped as a whole, said in one line (`report.py`)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conformance.corpus import Case
from tests.conformance.report import PRESENT

collect_ignore_glob = [] if PRESENT else ["test_*.py"]


@pytest.fixture(autouse=True)
def noted_case(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> None:
    """Tell the matrix which case a test is about; every test but the runs themselves is level 0."""
    callspec = getattr(request.node, "callspec", None)
    case = None if callspec is None else callspec.params.get("case")
    if isinstance(case, Case):
        record_property("case", case.id)
        if request.path.stem != "test_cases":
            record_property("level", "L0")
