"""Write docs/events.md and docs/reference/; with --check only say what is out of date."""

from __future__ import annotations

import sys
from pathlib import Path

import api
import events

ROOT = Path(__file__).resolve().parents[2]


def main(check: bool) -> int:
    """0, or 1 when something was out of date and only to be checked."""
    pages = {Path("docs/events.md"): events.render(ROOT / "dsh")}
    pages |= {Path(f"docs/reference/{name}.md"): text for name, text in api.render(ROOT).items()}
    stale = [
        path for path, text in pages.items() if not (ROOT / path).exists() or (ROOT / path).read_text("utf-8") != text
    ]
    for path in stale:
        if check:
            print(f"{path} is out of date: run scripts/docs", file=sys.stderr)
        else:
            (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / path).write_text(pages[path], "utf-8")
            print(f"wrote {path}")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
