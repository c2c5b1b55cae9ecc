"""The first moments of a command: an early interrupt is quiet, a poor locale is left behind."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from tests.cli.kit import PYTHON, TIMEOUT, Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place.make(tmp_path)


SLOW_IMPORT = """\
import sys
import time

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            print("importing", flush=True)
            time.sleep(30)

sys.meta_path.insert(0, Slow())
"""


async def test_an_interrupt_during_the_first_imports_is_quiet(place: Place) -> None:
    """A module that takes long to import is hit for sure, instead of by luck."""
    place.write("sitecustomize.py", SLOW_IMPORT)
    process = await asyncio.create_subprocess_exec(
        PYTHON, "-m", "dsh.cli.start", "--help",
        cwd=place.work, env={**place.env, "PYTHONPATH": f"{place.work}:{place.env.get('PYTHONPATH', '')}"},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        async with asyncio.timeout(TIMEOUT):
            assert await process.stdout.readline() == b"importing\n"
            process.send_signal(signal.SIGINT)
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert (process.returncode, out, err) == (130, b"", b"")


async def test_the_console_script_is_the_command(place: Place) -> None:
    done = await asyncio.create_subprocess_exec(
        PYTHON, "-m", "dsh.cli.start", "--version", cwd=place.work, env=place.env, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await asyncio.wait_for(done.communicate(), TIMEOUT)
    assert done.returncode == 0 and out.startswith(b"dsh ")


async def test_a_process_whose_locale_knows_only_ascii_starts_over_in_utf8(place: Place) -> None:
    poor = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    place.write("größe.yml", "- {id: a, name: ./größe.py}\n")
    place.write("größe.py", "def apply(ctx, config):\n    pass\n")
    done = await place.dsh("config", "check", "größe.yml", env=poor)
    assert (done.code, done.err) == (0, "") and "größe.yml" in done.out
