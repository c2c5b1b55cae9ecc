"""What the benchmarks share: a temporary place to run the product in, a model server beside it, and how to print.

Times are wall or processor time of whole processes, the best of several runs taken in turns: a busy machine makes
single runs slower, never faster.
"""

from __future__ import annotations

import gc
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

REPOSITORY = Path(__file__).resolve().parent.parent
DSH = [sys.executable, "-m", "dsh.cli.start"]


@dataclass(slots=True)
class Place:
    """A home, a workspace and the environment of the processes that run there; all of it is temporary."""

    root: Path
    home: Path
    work: Path
    env: dict[str, str]

    def write(self, name: str, text: str) -> Path:
        """Write a file of the workspace."""
        path = self.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        return path

    def starter(self) -> Path:
        """A copy of the default composition with its plugins."""
        shutil.copytree(REPOSITORY / "plugins", self.work / "plugins", dirs_exist_ok=True)
        return Path(shutil.copy(REPOSITORY / "cordis.yml", self.work / "cordis.yml"))

    def spawn(self, command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        """Start a process in the workspace."""
        quiet: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        return subprocess.Popen(command, env=self.env, cwd=self.work, **quiet | options)


@contextmanager
def place(**env: str) -> Iterator[Place]:
    """A fresh place. Bytecode is cached there, whatever the caller's environment says: run once before measuring."""
    with tempfile.TemporaryDirectory(prefix="dsh-bench-", ignore_cleanup_errors=True) as name:
        root = Path(name)
        work = root / "work"
        work.mkdir()
        dropped = ("DSH_", "DEEPSEEK_", "PYTHONDONTWRITEBYTECODE", "PYTHONPATH")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(dropped) and "proxy" not in k.lower()}
        more = {"DSH_HOME": str(root / "home"), "PYTHONPYCACHEPREFIX": str(root / "bytecode")}
        yield Place(root, root / "home", work, {**kept, **more, **env})


class Model:
    """A model server in its own process; ``next_request`` waits for the next time (monotonic, s) one was read."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.url = self._line()
        self.body_size = 0

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().decode().strip()

    def next_request(self, sender: subprocess.Popen[bytes]) -> float:
        """When the next request of `sender` arrived; its size is `body_size` then."""
        assert self._process.stdout is not None
        while not select.select([self._process.stdout], [], [], 1)[0]:
            if sender.poll() is not None:
                raise RuntimeError(f"it left with exit code {sender.returncode} instead of asking the model")
        at, size = self._line().split()
        self.body_size = int(size)
        return float(at)


@contextmanager
def model(where: Place, script: Sequence[Any], bodies: Path | None = None) -> Iterator[Model]:
    """A server that repeats ``script``; processes started in ``where`` afterwards talk to it.

    It stores the bodies it gets in the folder ``bodies``.
    """
    file = where.root / "script.json"
    file.write_text(json.dumps(script), "utf-8")
    more = [] if bodies is None else [str(bodies)]
    command = [sys.executable, str(REPOSITORY / "benchmarks" / "_model.py"), str(file), *more]
    process = where.spawn(command, bufsize=0)  # no buffer in which a line could hide from `select`
    try:
        server = Model(process)
        where.env |= {"DEEPSEEK_BASE_URL": server.url, "DEEPSEEK_API_KEY": "bench"}
        yield server
    finally:
        process.kill()
        process.wait()


@dataclass(slots=True)
class Cost:
    """What a finished process took: seconds of wall and processor time, megabytes at its peak."""

    wall: float
    cpu: float
    peak: float


def run(where: Place, command: Sequence[str], exit_code: int = 0) -> Cost:
    """Run a command to its end, output thrown away. Raises `RuntimeError` when it ends with another exit code."""
    started = time.perf_counter()
    process = where.spawn(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != exit_code:
        raise RuntimeError(f"{' '.join(command)} left with exit code {process.returncode}")
    scale = 1024 * 1024 if sys.platform == "darwin" else 1024
    return Cost(wall, used.ru_utime + used.ru_stime, used.ru_maxrss / scale)


def best(costs: Sequence[Cost]) -> Cost:
    """The least of each figure."""
    return Cost(min(c.wall for c in costs), min(c.cpu for c in costs), min(c.peak for c in costs))


def fastest(work: Callable[[], object], rounds: int = 5) -> float:
    """Processor seconds of the fastest round of something that never waits; a busy machine does not count."""
    times = []
    for _ in range(rounds):
        gc.collect()
        began = time.process_time()
        kept = work()
        times.append(time.process_time() - began)
        del kept  # outside of the time
    return min(times)


def cpu_of(pid: int) -> float:
    """Processor seconds that a live process has used, ended threads included (Linux only; 0 elsewhere)."""
    if not sys.platform.startswith("linux"):
        return 0.0
    return time.clock_gettime((~pid << 3) | 2)  # the clock that clock_getcpuclockid(3) gives


class Row(NamedTuple):
    """A line of the table: the work, what it was measured to take, how that compares, and whether the target holds.

    ratio: to whatever `target` or `work` names. A row without a target only informs.
    """

    work: str
    measured: str
    ratio: float | None = None
    target: str = ""
    held: bool = True


def show(row: Row) -> None:
    """Print one line."""
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}x"
    verdict = "" if not row.target else "held" if row.held else "MISSED"
    print(f"  {row.work:62} {row.target:30} {row.measured:>20} {ratio:>7}  {verdict}".rstrip(), flush=True)


def script(rows: Callable[[bool], Iterable[Row]]) -> NoReturn:
    """What every script here does when it is run: measure (less with ``--quick``), print, exit with the misses."""
    missed = 0
    for row in rows("--quick" in sys.argv[1:]):
        show(row)
        missed += not row.held
    sys.exit(missed)
