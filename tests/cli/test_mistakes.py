"""What is said of each likely mistake in a cordis.yml: by a check, by a start, and when it is saved into a running one.

The texts stand in `mistakes/`, a page for each mistake; `DSH_UPDATE_SNAPSHOTS=1` writes them anew, to be read before
they are kept.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
from pathlib import Path

import pytest

from tests.cli.bad_inputs import BAD_INPUTS, SECRET, BadInput, lay_out, restore
from tests.cli.kit import Daemon, Place

ROOT = Path(__file__).parents[2]
PAGES = Path(__file__).parent / "mistakes"
UPDATE = bool(os.environ.get("DSH_UPDATE_SNAPSHOTS"))

CHECK, RUN, LIVE = "$ dsh config check", "$ dsh run cordis.yml", "saved while it runs"
_PASSING = re.compile(r"dsh: (?:ready \(pid|agent main: session).*\n")
"""What a start says when it goes well."""


def page(mistake: BadInput) -> Path:
    return PAGES / f"{re.sub(r'[^a-z]+', '-', mistake.name.lower())}.txt"


def sections(mistake: BadInput) -> dict[str, str]:
    """The texts of a page by what brought them up."""
    path = page(mistake)
    parts = re.split(r"^-- (.*)\n", path.read_text("utf-8") if path.exists() else "", flags=re.M)
    return dict(zip(parts[1::2], (each.rstrip("\n") for each in parts[2::2]), strict=True))


def keep(mistake: BadInput, **said: str) -> None:
    """Write texts into a page."""
    found = sections(mistake) | {{"check": CHECK, "run": RUN, "live": LIVE}[name]: text for name, text in said.items()}
    ordered = [(name, found[name]) for name in (CHECK, RUN, LIVE) if name in found]
    parts = [f"{mistake.name}\n\n{mistake.shown()}", *(f"-- {name}\n{text.rstrip()}\n" for name, text in ordered)]
    PAGES.mkdir(exist_ok=True)
    page(mistake).write_text("\n".join(parts), "utf-8")


def said_of(text: str) -> str:
    return _PASSING.sub("", text).rstrip("\n")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place.make(tmp_path)
    lay_out(place.work, ROOT / "plugins")
    return place


async def test_without_a_mistake_nothing_is_said(place: Place) -> None:
    done = await place.dsh("config", "check")
    assert (done.code, done.out, done.err) == (0, "cordis.yml: 11 rows, nothing wrong\n", "")


@pytest.mark.parametrize("mistake", BAD_INPUTS, ids=lambda mistake: mistake.name)
async def test_a_check_and_a_start_say_what_is_wrong(place: Place, mistake: BadInput) -> None:
    mistake.make(place.work)
    checked, run = await asyncio.gather(
        place.dsh("config", "check"), place.dsh("run", "cordis.yml", "--exit-when-idle")
    )
    check_text = f"{checked.out}{checked.err}[exit code {checked.code}]"
    run_text = f"{said_of(run.out + run.err)}\n[exit code {run.code}]"
    if UPDATE:
        keep(mistake, check=check_text, run=run_text)
    known = sections(mistake)
    assert (check_text, run_text) == (known[CHECK], known[RUN])
    assert SECRET not in page(mistake).read_text("utf-8").split("-- ", 1)[1]


@pytest.mark.timeout(180)
async def test_a_running_composition_says_the_same_of_an_edit_and_runs_on(place: Place) -> None:
    process = await place.start("run", "cordis.yml")
    running = Daemon(process)
    try:
        await said(running, "dsh: ready", 0)
        for mistake in BAD_INPUTS:
            begin = len(running.err)
            mistake.make(place.work)
            if UPDATE:
                await asyncio.sleep(1.5)
                keep(mistake, live=said_of(running.err[begin:]))
            wanted = sections(mistake)[LIVE]
            await said(running, wanted.splitlines()[-1], begin)
            assert said_of(running.err[begin:]) == wanted
            mended = len(running.err)
            restore(place.work, f"# without {mistake.name}\n")
            await said(running, "dsh: config applied: ", mended)
            if mistake.name == "missing provider":  # who says so waited for it too
                await said(running, "dsh: ready", mended)
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
        assert SECRET not in running.err
    finally:
        if process.returncode is None:
            process.kill()
        await running.finish()


async def said(daemon: Daemon, line: str, begin: int) -> None:
    """Wait until a line that begins so was printed after a place in the daemon's standard error."""

    async def look() -> None:
        while not any(each.startswith(line) for each in daemon.err[begin:].split("\n")[:-1]):
            daemon._news.clear()
            await daemon._news.wait()

    try:
        await asyncio.wait_for(look(), 30)
    except TimeoutError:
        pytest.fail(f"not said: {line!r}\nbut: {daemon.err[begin:]!r}")


def test_no_mistake_is_without_a_place_and_every_page_has_its_mistake() -> None:
    assert sorted(path.name for path in PAGES.iterdir()) == sorted(page(each).name for each in BAD_INPUTS)
    for mistake in BAD_INPUTS:
        for text in sections(mistake).values():
            assert re.search(r"cordis(?:\.patch)?\.yml(?::\d+)?: ", text), mistake.name
