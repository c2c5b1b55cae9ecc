"""The watch that ends commands when the harness was killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from dsh.shell.death_watch import DeathWatch
from dsh.shell.process_tree import MARKER

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at /proc")


def child(marker: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "60"], env={**os.environ, MARKER: marker}, start_new_session=True)


def cut(watch: DeathWatch) -> None:
    """What the kernel does when the process is killed."""
    shell = watch._shell  # type: ignore[attr-defined]
    assert shell is not None and shell.stdin is not None
    shell.stdin.close()
    shell.wait(10)


def test_it_kills_what_it_still_knows_and_nothing_else() -> None:
    watch = DeathWatch()
    trees = {name: child(name) for name in ("aa11", "bb22", "cc33", "dd44")}
    try:
        for name, process in trees.items():
            watch.expect(name)
            watch.add(process.pid, name)
        for name in ("bb22", "dd44"):
            watch.remove(trees[name].pid, name)
        cut(watch)
        assert trees["aa11"].wait(10) == -9 and trees["cc33"].wait(10) == -9
        time.sleep(0.05)
        assert trees["bb22"].poll() is None and trees["dd44"].poll() is None
    finally:
        for process in trees.values():
            process.kill()
            process.wait()


def test_a_process_that_took_over_the_id_is_left_alone() -> None:
    watch = DeathWatch()
    other = child("ee55")
    try:
        watch.expect("an-older-one")
        watch.add(other.pid, "an-older-one")
        cut(watch)
        time.sleep(0.05)
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_closing_ends_the_shell_and_later_trees_start_none() -> None:
    watch = DeathWatch()
    watch.close()
    watch.expect("ff66")
    watch.add(1, "ff66")
    assert watch._shell is None  # type: ignore[attr-defined]
    watch = DeathWatch()
    watch.expect("ff66")
    watch.add(2**22 + 1, "ff66")
    shell = watch._shell  # type: ignore[attr-defined]
    watch.close()
    assert shell is not None and shell.returncode == 0


def test_a_tree_that_was_only_announced_is_killed_too() -> None:
    watch = DeathWatch()
    watch.expect("ab77")
    process = child("ab77")
    try:
        cut(watch)
        assert process.wait(10) == -9
    finally:
        process.kill()
        process.wait()
