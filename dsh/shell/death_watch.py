"""Children do not outlive the harness even when it is killed: a small shell keeps a list and acts on the end of a pipe.

SIGKILL and a crash of the interpreter run no code of ours (what does is in `exit_guard`), but they close our files.
"""

from __future__ import annotations

import contextlib
import os
import subprocess

from .process_tree import MARKER

_SCRIPT = f"""
left=" "
while read -r what tree; do
    case $what in
        +) left="$left$tree " ;;
        -) left="${{left%% $tree *}} ${{left#* $tree }}" ;;
    esac
done
for tree in $left; do
    leader=${{tree%:*}} mark={MARKER}=${{tree#*:}}
    if [ "$leader" != 0 ] && {{ [ ! -d /proc/self ] || grep -qF "$mark" "/proc/$leader/environ"; }}; then
        kill -KILL -- "-$leader"
    fi
    for file in $(grep -lF "$mark" /proc/[0-9]*/environ); do
        process=${{file#/proc/}}
        kill -KILL "${{process%/environ}}"
    done
done 2>/dev/null
"""


class DeathWatch:
    """Kills the trees it was told of when this process is gone without `close`. Started with the first tree.

    A tree is announced by its marker before it is spawned, so that no kill comes in between.
    """

    def __init__(self) -> None:
        self._shell: subprocess.Popen[bytes] | None = None
        self._closed = False

    def expect(self, marker: str) -> None:
        """A tree with this marker is about to be spawned."""
        if self._shell is None and not self._closed:
            with contextlib.suppress(OSError):
                self._shell = subprocess.Popen(
                    ["/bin/sh", "-c", _SCRIPT], bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL, cwd="/", env={"PATH": os.defpath}, start_new_session=True,
                )  # fmt: skip
        self._tell(f"+ 0:{marker}")

    def add(self, leader: int, marker: str) -> None:
        """The expected tree is there, below `leader`."""
        self._tell(f"+ {leader}:{marker}")

    def remove(self, leader: int | None, marker: str) -> None:
        """Nothing of that tree is left; it never began without a `leader`."""
        if leader is not None:
            self._tell(f"- {leader}:{marker}")
        self._tell(f"- 0:{marker}")

    def close(self) -> None:
        """End the watch; every tree must be gone."""
        self._closed = True
        if self._shell is not None:
            self._shell.communicate()
            self._shell = None

    def _tell(self, line: str) -> None:
        if self._shell is not None and self._shell.stdin is not None:
            with contextlib.suppress(OSError):
                self._shell.stdin.write(line.encode() + b"\n")
