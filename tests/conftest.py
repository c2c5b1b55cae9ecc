"""Shared fixtures: every async test runs on asyncio. The summary of recorded runs is printed from here."""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from tests.conformance.report import pytest_addoption, pytest_sessionfinish, pytest_terminal_summary

__all__ = ["pytest_addoption", "pytest_sessionfinish", "pytest_terminal_summary"]


def pytest_configure(config: pytest.Config) -> None:
    """Where Python keeps no byte code, keep it for tests alone: hundreds of them start processes, and each of those
    would compile all of dsh again."""
    if sys.dont_write_bytecode:
        folder = Path(__file__).parents[1] / ".cache" / "bytecode"
        config.add_cleanup(lambda: _forget_files_of_tests(folder / tempfile.gettempdir().lstrip("/")))
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = str(folder)
        sys.dont_write_bytecode = False


def _forget_files_of_tests(folder: Path) -> None:
    for kind in ("pytest-of-*", "tmp*"):
        for each in folder.glob(kind):
            shutil.rmtree(each, ignore_errors=True)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
