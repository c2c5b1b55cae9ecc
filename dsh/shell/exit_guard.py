"""Children do not outlive the harness: whatever is left is killed when the interpreter ends without an unload."""

from __future__ import annotations

import atexit
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def exit_guard(kill: Callable[[], None]) -> Iterator[None]:
    """While open, `kill` runs at interpreter exit and before SIGTERM or SIGHUP take their default effect.

    A signal that somebody else handles is theirs: they unload the harness in an orderly way (SIGINT always is, by
    Python itself).
    """

    def on_signal(number: int, _frame: FrameType | None) -> None:
        kill()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    taken = []
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, on_signal)
                taken.append(number)
    atexit.register(kill)
    try:
        yield
    finally:
        atexit.unregister(kill)
        for number in taken:
            if signal.getsignal(number) is on_signal:
                signal.signal(number, signal.SIG_DFL)
