"""Lines of standard input where no prompt can be drawn: pipes, and terminals that cannot move their cursor."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing

from .stdin import stdin_chunks


def can_draw() -> bool:
    """Whether standard input and output are a terminal on which a prompt can be drawn."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")


async def typed_lines() -> AsyncGenerator[str, None]:
    """Standard input line by line, until its end."""
    rest = b""
    async with aclosing(stdin_chunks()) as chunks:  # type: ignore[type-var]
        async for chunk in chunks:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield line.decode("utf-8", "replace").rstrip("\r")
    yield rest.decode("utf-8", "replace")
