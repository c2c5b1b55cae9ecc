"""What docs/architecture.md names is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dsh.core.event_types import KNOWN_EVENT_TYPES

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "architecture.md").read_text("utf-8")
QUOTED = sorted(set(re.findall(r"`([^`\n]+)`", TEXT)))
FILES = [each for each in QUOTED if re.fullmatch(r"(dsh|tests|docs)/[\w/]+\.(py|md)", each)]
EVENTS = [each for each in QUOTED if re.fullmatch(r"[a-z-]+(/[a-z-]+)+", each)]


@pytest.mark.parametrize("path", FILES)
def test_files_are_there(path: str) -> None:
    assert (ROOT / path).is_file()


@pytest.mark.parametrize("name", EVENTS)
def test_events_exist(name: str) -> None:
    assert name in KNOWN_EVENT_TYPES or f"`{name}`<br>" in (ROOT / "docs" / "events.md").read_text("utf-8")


def test_something_is_named() -> None:
    assert len(FILES) > 5 and len(EVENTS) > 15
