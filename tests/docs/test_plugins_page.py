"""docs/plugins.md is true: every block of it is executed."""

from __future__ import annotations

import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.docs.page import execute

PAGE = Path(__file__).parents[2] / "docs" / "plugins.md"


@pytest.mark.timeout(300)
@pytest.mark.skipif(shutil.which("bash") is None, reason="the page is written for bash")
def test_every_block_of_the_page_does_what_the_page_says(tmp_path: Path) -> None:
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("DEEPSEEK_", "DSH_", "PYTEST_", "COV_")) and "proxy" not in key.lower()
    }
    home, site = tmp_path / "home", tmp_path / "site"
    home.mkdir()
    programs = Path(sys.executable).parent
    env = {
        **kept,
        "HOME": str(home),
        "PATH": f"{programs}{os.pathsep}{kept['PATH']}",
        "LC_ALL": "C.UTF-8",
        "PYTHONPATH": str(site),  # where `pip install` puts packages here, in place of the environment of these tests
        "PIP_TARGET": str(site),
        "PIP_NO_DEPS": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    if find_spec("hatchling") is not None:
        env["PIP_NO_BUILD_ISOLATION"] = "0"  # which pip reads as: build with what is installed, without the network
    work = tmp_path / "work"
    work.mkdir()
    ran = execute(PAGE, work, env)
    for part in ("dsh init", "dsh plugins new", "dsh run", "pytest", "--listener", "--service", "--adapter", "pip"):
        assert any(part in command for command in ran), f"the page no longer shows {part}"
