"""Without the corpus these tests are skipped as a whole, said in one line."""

from __future__ import annotations

import pytest

from tests.conformance.corpus import CORPUS, PRESENT

collect_ignore_glob = [] if PRESENT else ["test_*.py"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not PRESENT:
        terminalreporter.write_line(f"conformance tests skipped: no corpus at {CORPUS} (set DSH_CONFORMANCE)")
