"""``scripts/environment`` makes .venv whole: after a start that was cut off, and when two start at once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"

PYTHON = """#!/bin/bash
# Stands in for Python: `-m venv` copies it, pip only writes down what it is asked; all else is the real one.
case "$*" in
    "-m venv .venv")
        echo venv >> made
        mkdir -p .venv/bin; cp "$0" .venv/bin/python
        [ ! -e cut-off ] || exit 130
        sleep 0.3; touch .venv/pip ;;
    "-m pip"*)
        [ -e .venv/pip ] || { echo "No module named pip" >&2; exit 1; }
        case "$3" in install) echo "${@: -1}" >> made ;; esac ;;
    *) exec REAL "$@" ;;
esac
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    (tmp_path / "scripts").mkdir()
    shutil.copy(SCRIPTS / "environment", tmp_path / "scripts")
    (tmp_path / "pyproject.toml").write_text("")
    python = tmp_path / "python"
    python.write_text(PYTHON.replace("REAL", sys.executable))
    python.chmod(0o755)
    return tmp_path


def start(clone: Path) -> subprocess.Popen[str]:
    command = ["bash", "-c", "source scripts/environment; ensure_environment base"]
    environment = {**os.environ, "PYTHON": str(clone / "python")}
    return subprocess.Popen(command, cwd=clone, env=environment, stderr=subprocess.PIPE, text=True)


def made(clone: Path) -> list[str]:
    return (clone / "made").read_text().split()


def test_an_environment_whose_making_was_cut_off_is_made_again(clone: Path) -> None:
    (clone / "cut-off").touch()
    first = start(clone)
    first.communicate()
    assert first.returncode != 0
    (clone / "cut-off").unlink()
    again = start(clone)
    assert (again.communicate()[1], again.returncode) == ("installing .[base] into .venv …\n", 0)
    assert made(clone) == ["venv", "venv", ".[base]"]


def test_two_starts_at_once_make_one_environment(clone: Path) -> None:
    both = [start(clone), start(clone)]
    said = [one.communicate()[1] for one in both]
    assert ([one.returncode for one in both], sorted(said)) == ([0, 0], ["", "installing .[base] into .venv …\n"])
    assert made(clone) == ["venv", ".[base]"]


def test_an_environment_in_order_is_left_alone(clone: Path) -> None:
    start(clone).communicate()
    second = start(clone)
    assert (second.communicate()[1], second.returncode) == ("", 0)
    assert made(clone) == ["venv", ".[base]"]
