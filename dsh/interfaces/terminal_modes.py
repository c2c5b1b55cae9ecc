"""The modes of the terminal that a console is typed on.

Imported before anything heavy: keys are kept from a command's first line on.
"""

from __future__ import annotations

import atexit
import os
import select
import termios
from collections.abc import Callable


def hold_keys(fd: int = 0) -> tuple[Callable[[], None], str]:
    """Keep what is typed for whoever reads keys later, unechoed. Returns how to put the old modes back, and the keys
    that were pressed before: a terminal in its usual mode has made line feeds of their Enter.

    In that mode it would also show the text itself, and throw all of it away at a Ctrl-C, which stays a signal here.
    The old modes come back at the latest when the process exits.
    """
    try:
        before = termios.tcgetattr(fd)
    except termios.error:  # no terminal
        return lambda: None, ""
    held = termios.tcgetattr(fd)
    held[0] &= ~(termios.ICRNL | termios.INLCR | termios.IGNCR)
    held[3] = held[3] & ~(termios.ICANON | termios.ECHO) | termios.NOFLSH
    termios.tcsetattr(fd, termios.TCSANOW, held)

    def give_back() -> None:
        atexit.unregister(give_back)
        try:
            termios.tcsetattr(fd, termios.TCSANOW, before)
        except termios.error:  # the terminal is gone
            pass

    atexit.register(give_back)
    early = b""
    if before[3] & termios.ICANON:
        while select.select([fd], [], [], 0)[0] and (typed := os.read(fd, 4096)):
            early += typed.replace(b"\n", b"\r")
    return give_back, early.decode("utf-8", "replace")
