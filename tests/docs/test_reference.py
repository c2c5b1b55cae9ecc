"""What docs/ says of events and public names is what the sources say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_generated_pages_are_fresh() -> None:
    done = subprocess.run([sys.executable, "scripts/reference", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
