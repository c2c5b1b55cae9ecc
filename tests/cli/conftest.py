"""Where commands are tried."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.kit import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A workspace with the composition that `dsh init` writes."""
    place = Place.make(tmp_path)
    place.init()
    return place
