"""The modes of the terminal that a console is typed on.

Imported before anything heavy: keys are kept from a command's first line on.
"""

from __future__ import annotations

import atexit
import os
import select
import signal
import termios
import threading
from collections.abc import Callable
from types import FrameType
from typing import Final

FATAL: Final = (signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end a process on the spot unless somebody handles them."""

UNDRAWN: Final = b"\x1b[?2004l\x1b[?25h\x1b[0m\r\n\x1b[J"
"""Ends the drawing of a prompt: pasted text comes as keys, the cursor is seen, the rows below it are empty."""


def hold_keys(fd: int = 0) -> tuple[Callable[[], None], str]:
    """Keep what is typed for whoever reads keys later, unechoed. Returns how to put the old modes back, and the keys
    that were pressed before: a terminal in its usual mode has made line feeds of their Enter.

    In that mode it would also show the text itself, and throw all of it away at a Ctrl-C, which stays a signal here.
    The old modes come back at the latest when the process exits, also by a signal that nobody handles.
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
        for number in taken:
            if signal.getsignal(number) is on_signal:
                signal.signal(number, signal.SIG_DFL)
        try:
            termios.tcsetattr(fd, termios.TCSANOW, before)
        except termios.error:  # the terminal is gone
            pass

    def on_signal(number: int, _frame: FrameType | None) -> None:
        try:
            os.write(fd, UNDRAWN)
        except OSError:  # the terminal is gone, or only read
            pass
        give_back()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    taken = []
    if threading.current_thread() is threading.main_thread():
        for each in FATAL:
            if signal.getsignal(each) is signal.SIG_DFL:
                signal.signal(each, on_signal)
                taken.append(each)
    atexit.register(give_back)
    early = b""
    if before[3] & termios.ICANON:
        while select.select([fd], [], [], 0)[0] and (typed := os.read(fd, 4096)):
            early += typed.replace(b"\n", b"\r")
    return give_back, early.decode("utf-8", "replace")
