"""Who is in the foreground of a terminal, and whether it waits for somebody to type."""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import platform
import termios
from typing import Final

_SYSCALLS: Final = {"x86_64": (0, 23, 270), "aarch64": (63, -1, 72)}
"""Numbers of read, select and pselect6 by machine."""


def foreground_group(master: int) -> int | None:
    """The process group that gets what is typed; None when the terminal has none any more."""
    try:
        group = os.tcgetpgrp(master)
    except OSError:
        return None
    return group if group > 0 else None


def unread(slave: int) -> bool:
    """Whether something typed has not been read yet: then whoever waits is about to wake up."""
    count = array.array("i", [0])
    with contextlib.suppress(OSError):
        fcntl.ioctl(slave, termios.FIONREAD, count)
    return count[0] > 0


def waits_for_input(master: int, slave: int, name: str, leader: int | None = None) -> bool | None:
    """Whether a process in the foreground of terminal `name` (open at both ends) is blocked in a read of it.

    leader: only the process that gave the group its id is looked at. None where the kernel does not tell.
    """
    group = foreground_group(master)
    calls = _SYSCALLS.get(platform.machine())
    if calls is None or not os.path.isdir("/proc/self"):
        return None
    if group is None or unread(slave) or leader not in (None, group):
        return False
    return any(_reads(pid, name, calls) for pid in (_members(group) if leader is None else (leader,)))


def _members(group: int) -> list[int]:
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{entry}/stat", "rb") as file:
                if int(file.read().rpartition(b")")[2].split()[2]) == group:
                    found.append(int(entry))
    return found


def _reads(pid: int, name: str, calls: tuple[int, int, int]) -> bool:
    try:
        with open(f"/proc/{pid}/syscall", "rb") as file:
            fields = file.read().split()
        number, first = int(fields[0]), int(fields[1], 16)
        if number == calls[0]:
            read_from = first
        elif number in calls[1:] and first == 1:  # waits for descriptor 0 alone, as line editors do
            read_from = 0
        else:
            return False
        return os.readlink(f"/proc/{pid}/fd/{read_from}") in (name, "/dev/tty")
    except (OSError, ValueError, IndexError):  # it runs, is gone, or is not ours to look at
        return False
