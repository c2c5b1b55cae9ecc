"""Prints wherever it can: at import, at start, in a tool, through a child, as a warning."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings

from dsh.cordis import Context
from dsh.core.tools import Tools

print("noise at import")


def apply(ctx: Context, tools: Tools) -> None:
    print("noise at start", flush=True)
    os.system("echo noise of a child")
    warnings.warn("noise as a warning", DeprecationWarning, stacklevel=1)

    @tools.tool
    async def shout() -> str:
        """Make noise."""
        print("noise of a tool", flush=True)
        os.write(1, b"noise on the descriptor\n")
        sys.__stdout__.write("noise on the old stream\n")  # type: ignore[union-attr]
        sys.__stdout__.flush()  # type: ignore[union-attr]
        subprocess.run(["sh", "-c", "echo noise of a tool's child; cat"], check=True)
        return "shouted"
