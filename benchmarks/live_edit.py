"""From saving a file to the effect in the running process: a live key of a row, and of the user's settings.

A plugin notes the moment its live value changes; nothing restarts. The unit is a bare watchfiles loop with the same
quiet time (100 ms) that notices the same kind of save.

    python benchmarks/live_edit.py [--quick]
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from _kit import DSH, Place, Row, place, script

PROBE = """
import sys, time
from dsh.cordis import ConfigModel, Context, field
from dsh.settings.base import SettingsUpdated

class Config(ConfigModel):
    number: int = field(0, live=True)

def apply(ctx: Context, config: Config) -> None:
    config.watch(lambda: print("row", time.monotonic(), file=sys.stderr, flush=True))
    ctx.on(SettingsUpdated, lambda happened: print("settings", time.monotonic(), file=sys.stderr, flush=True))
"""
BARE = """
import sys, time
from watchfiles import watch
for _ in watch(sys.argv[1], debounce=400, step=100):
    print("seen", time.monotonic(), file=sys.stderr, flush=True)
"""


def replace(path: Path, text: str) -> float:
    """Save as editors do; the moment of it."""
    draft = path.with_name(path.name + "~")
    draft.write_text(text, "utf-8")
    os.replace(draft, path)
    return time.monotonic()


def delays(process: subprocess.Popen[bytes], word: str, save: Callable[[int], float], edits: int) -> list[float]:
    """Seconds from each save to the line it causes."""
    assert process.stderr is not None
    found = []
    for number in range(1, edits + 1):
        time.sleep(0.4)
        began = save(number)
        while True:
            line = process.stderr.readline()
            if not line:
                raise RuntimeError(f"it left with exit code {process.wait()} instead of noticing the edit")
            said = line.decode().split()
            if len(said) == 2 and said[0] == word and float(said[1]) >= began:
                break
        found.append(float(said[1]) - began)
    return sorted(found)


def composition(where: Place, number: int) -> str:
    """The default composition with the probe in it."""
    starter = (where.work / "starter.yml").read_text("utf-8")
    return f"{starter}- id: probe\n  name: ./probe.py\n  config:\n    number: {number}\n"


def rows(quick: bool) -> Iterator[Row]:
    """Measure."""
    edits = 3 if quick else 9
    with place() as where:
        config = where.starter()
        os.rename(config, where.work / "starter.yml")
        where.write("probe.py", PROBE)
        replace(config, composition(where, 0))
        where.home.mkdir(exist_ok=True)
        settings = where.home / "settings.yaml"
        process = where.spawn([*DSH, "run", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            time.sleep(4)  # the first start fills the bytecode cache and arms the watches
            row = delays(process, "row", lambda n: replace(config, composition(where, n)), edits)
            text = "agent-loop:\n  maxParallelToolCalls: {}\n"
            user = delays(process, "settings", lambda n: replace(settings, text.format(n)), edits)
        finally:
            process.terminate()
            process.wait()
        folder = where.root / "watched"
        folder.mkdir()
        watcher = where.spawn([sys.executable, "-c", BARE, str(folder)], stderr=subprocess.PIPE)
        try:
            time.sleep(1)
            bare = delays(watcher, "seen", lambda n: replace(folder / "file", str(n)), edits)
        finally:
            watcher.kill()
            watcher.wait()
    middle = bare[edits // 2]
    yield Row("(bare watchfiles notices a save, median and slowest)", f"{middle * 1e3:.0f} ms ({bare[-1] * 1e3:.0f})")
    for name, found in (("row in cordis.yml", row), ("user's settings.yaml", user)):
        each = found[edits // 2]
        measured = f"{each * 1e3:.0f} ms ({found[-1] * 1e3:.0f})"
        yield Row(f"edit of a live setting to its effect, {name}", measured, each / middle, "< 250 ms", each < 0.25)


if __name__ == "__main__":
    script(rows)
