"""Contradictions that `config check` must find, since a start or an edit refuses them."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.cli.kit import Place

MAIN = "      - id: main "


@pytest.fixture
async def place(tmp_path: Path) -> Place:
    place = Place.make(tmp_path)
    assert (await place.dsh("init", ".")).code == 0
    return place


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (MAIN, f"      - {{id: main}}\n{MAIN}", 'key config.agents: agents: label "main" is used twice'),
        (MAIN, f"      - {{id: one, cwd: ./nowhere}}\n{MAIN}", 'agent "one": cwd: there is no folder'),
        (MAIN, f"      - {{id: one, sessionId: x, resumeSessionId: y}}\n{MAIN}", "mutually exclusive"),
        ("maxParallelToolCalls: 10", "maxParallelToolCalls: 99999999999999999999", "key config.maxParallelToolCalls"),
        ("./plugins/clock.py", "./plugins", "./plugins is a folder without __init__.py"),
    ],
)
async def test_check_start_and_edit_refuse_the_same(place: Place, old: str, new: str, told: str) -> None:
    file = place.work / "cordis.yml"
    good = file.read_text("utf-8")
    bad = good.replace(old, new, 1)
    async with place.daemon("cordis.yml") as daemon:
        await daemon.ready()
        file.write_text(bad, "utf-8")
        assert told in (await daemon.config("refused"))["error"]
        daemon.signal(signal.SIGTERM)
        assert await daemon.finish() == 0
    for command in (("config", "check"), ("run", "--exit-when-idle")):
        done = await place.dsh(*command)
        assert done.code == 1 and told in done.err and "cordis.yml:" in done.err
        assert "Traceback" not in done.err
