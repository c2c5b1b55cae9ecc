"""Shared fixtures: every async test runs on asyncio."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
