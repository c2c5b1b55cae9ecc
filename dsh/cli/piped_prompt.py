"""What `dsh run` does with a standard input that is a pipe or a file: a run that leaves takes its prompt from it."""

from __future__ import annotations

import fcntl
import os
import select
import stat
import termios
from typing import Final

PATIENCE_SECONDS: Final = 1.0
"""How long an open pipe may stay empty: whoever starts a program and never writes to it does not stop it."""


def piped_prompt(fd: int = 0) -> str | None:
    """All of a piped standard input, for a run without another prompt; None when it is none, or holds no text."""
    from dsh.cli.output import read_stdin
    from dsh.interfaces.stdout import say

    if not _is_piped(fd):
        return None
    if not select.select([fd], [], [], PATIENCE_SECONDS)[0]:
        say("nothing came on standard input: the run begins without a prompt (--prompt gives one)")
        return None
    return read_stdin() if _waiting(fd) else None


def tell_unread(fd: int = 0) -> None:
    """Say so when somebody has piped text into a daemon, which reads none."""
    from dsh.interfaces.stdout import say

    if _is_piped(fd) and _waiting(fd):
        say(
            "standard input is not read by a run that stays; with --exit-when-idle it is the prompt, "
            "and lines piped into `dsh attach` are prompts for a daemon"
        )


def _is_piped(fd: int) -> bool:
    """A pipe, a file or a socket; no terminal, no device such as /dev/null, not closed."""
    try:
        mode = os.fstat(fd).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def _waiting(fd: int) -> bool:
    """Whether something can be read now, without reading it."""
    try:
        found = os.fstat(fd)
        if stat.S_ISREG(found.st_mode):
            return found.st_size > os.lseek(fd, 0, os.SEEK_CUR)
        return fcntl.ioctl(fd, termios.FIONREAD, b"\0" * 4) != b"\0" * 4
    except OSError:
        return False
