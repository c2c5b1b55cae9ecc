"""Shared fixtures: every async test runs on asyncio. The summary of recorded runs is printed from here."""

import os
import sys
import tempfile

import pytest

from tests.conformance.report import pytest_addoption, pytest_sessionfinish, pytest_terminal_summary

__all__ = ["pytest_addoption", "pytest_sessionfinish", "pytest_terminal_summary"]


def pytest_configure(config: pytest.Config) -> None:
    """Where Python keeps no byte code, keep it for the time of this run: hundreds of tests start processes, and each
    of those would compile all of dsh again."""
    if sys.dont_write_bytecode:
        folder = tempfile.TemporaryDirectory(prefix="dsh-bytecode-")
        config.add_cleanup(folder.cleanup)
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = folder.name
        sys.dont_write_bytecode = False


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
