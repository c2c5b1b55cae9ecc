"""Screens kept as text: `snapshots/<name>.txt`, compared with ids, times and the like masked.

``DSH_WRITE_SNAPSHOTS=1 pytest …`` writes them anew; look at the difference before keeping it.
"""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path
from typing import Final

SNAPSHOTS: Final = Path(__file__).parent / "snapshots"
WRITE: Final = bool(os.environ.get("DSH_WRITE_SNAPSHOTS"))

MASKS: Final = (
    (re.compile(r"session-[0-9a-f]{8}-[0-9a-f-]+"), "session-ID"),
    (re.compile(r"\bdsh \d+\.\d+\.\d+\S*"), "dsh VERSION"),
    (re.compile(r"(?: for| ·)? \d+(?:\.\d+)? s(?=,| *$)", re.M), ""),
    (re.compile(r"[⠀-⣿]"), "*"),
)


def masked(text: str) -> str:
    """``text`` without what differs from run to run."""
    for pattern, put in MASKS:
        text = pattern.sub(put, text)
    return "\n".join(line.rstrip() for line in text.split("\n")).rstrip() + "\n"


def check(name: str, picture: str) -> None:
    """Compare a picture with the one that is kept, or keep it."""
    path = SNAPSHOTS / f"{name}.txt"
    found = masked(picture)
    if WRITE:
        path.parent.mkdir(exist_ok=True)
        path.write_text(found, "utf-8")
        return
    assert path.is_file(), f"there is no {path}; DSH_WRITE_SNAPSHOTS=1 writes it:\n{found}"
    kept = path.read_text("utf-8")
    difference = "\n".join(difflib.unified_diff(kept.split("\n"), found.split("\n"), "kept", "found", lineterm=""))
    assert found == kept, f"{path.name} differs (DSH_WRITE_SNAPSHOTS=1 writes it anew):\n{difference}"
