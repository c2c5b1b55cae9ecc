"""The first line of a command that opens a console: there before heavy imports, with keys kept from then on."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def opens_console() -> bool:
    """Whether this process talks to a person: standard input and output are a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


@contextmanager
def first_line(text: str, *, wanted: bool = True) -> Iterator[list[str]]:
    """Say what is being opened, and keep what is typed from now on for the prompt that is not there yet.

    Yields what was typed before, for the one who opens the prompt to take out.
    """
    if not wanted or os.environ.get("TERM") in ("dumb", "unknown"):
        yield []
        return
    from dsh.interfaces.terminal_modes import hold_keys
    from dsh.interfaces.terminal_text import Style, spelled

    give_back, typed = hold_keys()
    try:
        print(Style(sys.stdout)("2", spelled(text)), flush=True)
        yield [typed]
    finally:
        give_back()
