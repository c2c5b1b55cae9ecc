"""Contradictions that `config check` must find, since a start or an edit refuses them."""

from __future__ import annotations

import signal

import pytest

from dsh.interfaces.offline import check
from dsh.loader.boot import BootError, boot, make_source
from dsh.loader.home import Home
from tests.cli.kit import Place

MAIN = "      - id: main "

CASES = [
    (MAIN, f"      - {{id: main}}\n{MAIN}", 'key config.agents: agents: label "main" is used twice'),
    (MAIN, f"      - {{id: one, cwd: ./nowhere}}\n{MAIN}", 'agent "one": cwd: there is no folder'),
    (MAIN, f"      - {{id: one, sessionId: x, resumeSessionId: y}}\n{MAIN}", "mutually exclusive"),
    ("maxParallelToolCalls: 10", "maxParallelToolCalls: 99999999999999999999", "key config.maxParallelToolCalls"),
    ("./plugins/clock.py", "./plugins", "./plugins is a folder without __init__.py"),
]
"""What is replaced in the starter, by what, and what is said of it."""


async def test_an_edit_refuses_each_of_them(place: Place) -> None:
    file = place.work / "cordis.yml"
    good = file.read_text("utf-8")
    async with place.daemon("cordis.yml") as daemon:
        await daemon.ready()
        for old, new, told in CASES:
            file.write_text(good.replace(old, new, 1), "utf-8")
            assert told in (await daemon.config("refused"))["error"]
        daemon.signal(signal.SIGTERM)
        assert await daemon.finish() == 0


@pytest.mark.parametrize(("old", "new", "told"), CASES)
async def test_a_check_and_a_start_refuse_the_same(place: Place, old: str, new: str, told: str) -> None:
    file = place.work / "cordis.yml"
    file.write_text(file.read_text("utf-8").replace(old, new, 1), "utf-8")
    [problem] = check(make_source(file)).problems
    assert told in str(problem) and problem.place.startswith(f"{file}:")
    with pytest.raises(BootError) as caught:
        async with boot(file, home=Home(place.home, "~/.dsh")):
            raise AssertionError
    assert told in str(caught.value) and f"{file}:" in str(caught.value)
