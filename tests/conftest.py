"""Shared fixtures: every async test runs on asyncio. The summary of recorded runs is printed from here."""

import pytest

from tests.conformance.report import pytest_addoption, pytest_sessionfinish, pytest_terminal_summary

__all__ = ["pytest_addoption", "pytest_sessionfinish", "pytest_terminal_summary"]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
