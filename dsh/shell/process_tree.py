"""Which processes descend from one child, whether any is left, and how to signal them all.

A child leads its own session and process group. Its descendants are found by the group (everywhere) and on Linux by
the session and by a marker in their environment too, which also finds those that made a session of their own.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
from typing import NamedTuple

MARKER = "DSH_PROCESS_TREE"
"""Environment variable that marks a child and what it starts; it is scrubbed like every `DSH_*` name."""

_PROC = sys.platform.startswith("linux") and os.path.isdir("/proc/self")


def new_marker() -> str:
    """A value that marks one tree."""
    return secrets.token_hex(12)


class _Process(NamedTuple):
    pid: int
    group: int
    started: bytes  # in clock ticks since boot: tells a process from a later one with its id


class ProcessTree:
    """The tree below one session leader. Once it was seen empty it is never signalled again: ids are reused.

    For the same reason, after the leader was reaped its id proves nothing any more: then a process counts if it carries
    the marker or already was in the group or session when the leader ended.
    """

    def __init__(self, leader: int, marker: str) -> None:
        self.leader = leader
        self._marker = f"{MARKER}={marker}".encode()
        self._reaped = False
        self._survivors: frozenset[_Process] = frozenset()
        self._empty = False

    @property
    def empty(self) -> bool:
        """Whether the tree was seen without a living process (zombies do not count)."""
        return self._empty

    def leader_reaped(self) -> None:
        """The leader has ended and was waited for just now. Looks only at younger processes, which is cheap."""
        if _PROC:
            self._survivors = frozenset(self._members(since_leader=True))
            self._empty = not self._survivors
        else:
            self._empty = not _group_exists(self.leader)
        self._reaped = True

    def alive(self) -> bool:
        """Whether any process of the tree lives."""
        if self._empty or any(self._look(process.pid) for process in self._survivors):
            return not self._empty
        self._empty = not (self._members() if _PROC else _group_exists(self.leader))
        return not self._empty

    def signal(self, number: int) -> None:
        """Send `number` to every process of the tree; those that are gone or not ours to signal are passed over."""
        if self._empty:
            return
        members = self._members() if _PROC else [_Process(self.leader, self.leader, b"")]
        self._empty = not members
        if any(process.group == self.leader for process in members):
            # The group at once, so that nothing in it can fork its way past a loop over processes.
            with contextlib.suppress(OSError):
                os.killpg(self.leader, number)
        for process in members:
            if process.group != self.leader:
                with contextlib.suppress(OSError):
                    os.kill(process.pid, number)

    def _members(self, *, since_leader: bool = False) -> list[_Process]:
        newest = _newest_pid() if since_leader else 0
        if newest == self.leader:
            return []  # nothing has been started on this machine since
        # A process that forks and ends while the list is read can hide its child; it cannot do so twice in a row.
        return self._scan(newest) or self._scan(newest)

    def _scan(self, newest: int) -> list[_Process]:
        own = os.getpid()
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit() and (pid := int(name)) != own:
                if newest and not _started_since(self.leader, newest, pid):
                    continue
                process = self._look(pid)
                if process is not None:
                    found.append(process)
        return found

    def _look(self, pid: int) -> _Process | None:
        """The living process `pid` if it belongs to the tree."""
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                # The name in parentheses may hold anything, so only what follows its last closing one is read.
                fields = file.read().rpartition(b")")[2].split()
            state, group, session, started = fields[0], int(fields[2]), int(fields[3]), fields[19]
            if state in (b"Z", b"X"):
                return None
            process = _Process(pid, group, started)
            if (group == self.leader or session == self.leader) and (not self._reaped or process in self._survivors):
                return process
            with open(f"/proc/{pid}/environ", "rb") as file:
                return process if self._marker in file.read().split(b"\0") else None
        except (OSError, ValueError, IndexError):
            return None


def _started_since(leader: int, newest: int, pid: int) -> bool:
    """Whether id `pid` was handed out after `leader`, `newest` being the latest one; ids wrap around."""
    if newest >= leader:
        return leader < pid <= newest
    return pid > leader or pid <= newest


def _newest_pid() -> int:
    """The id handed out last; 0 where the kernel does not tell."""
    try:
        with open("/proc/loadavg", "rb") as file:
            return int(file.read().split()[-1])
    except (OSError, ValueError, IndexError):
        return 0


def _group_exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody is there
        return True
    return True
