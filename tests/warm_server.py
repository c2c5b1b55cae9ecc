"""The process that commands of tests are forked from: it has imported what they would import, and nothing else.

Run as a program; told what to start over the socket whose number it is given. See `tests.warm` for the other side.
"""

from __future__ import annotations

import array
import gc
import importlib
import io
import json
import os
import selectors
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress

BEFORE_ALL = ("dsh.cli.logs", "dsh.cli.starter", "dsh.interfaces.control.client", "encodings.utf_8_sig")
BEFORE_COMPOSITIONS = (
    "dsh.cli.host",
    "dsh.cli.last_line",
    "dsh.cli.looking",
    "dsh.interfaces.offline",
    "dsh.interfaces.plugin_offers",
    "dsh.interfaces.known_plugins",
    "anyio.lowlevel",
    "anyio._core._sockets",
    "anyio._core._testing",
    "httpcore",
    "httpx",
    "uvloop",
    "watchfiles",
)
"""What is imported late, as far as it is known; what is not here is imported by each command that needs it."""
WITHOUT_COMPOSITIONS = frozenset({"ps", "send", "tail", "cancel", "stop", "credentials", "init", "local", "completion"})

imported: set[str] = set()


def import_for(arguments: Sequence[str]) -> None:
    """Import what a command line will need. What cannot be imported is left for the command to find."""
    from dsh.cli.main import COMMANDS

    command = next((each for each in arguments if each in COMMANDS), None)
    if command is None or command in imported:
        return
    for name in BEFORE_ALL if not imported else ():
        _import(name)
    imported.add(command)
    _import(f"dsh.cli.{command}")
    if command not in WITHOUT_COMPOSITIONS and "plugins" not in imported:
        imported.add("plugins")
        for name in BEFORE_COMPOSITIONS:
            _import(name)
        with suppress(Exception):
            sys.modules["dsh.interfaces.known_plugins"].providers_of("")


def _import(name: str) -> None:
    with suppress(Exception):
        importlib.import_module(name)


def main(control: socket.socket) -> list[str]:
    """Fork a process for each request until the other side is gone. Returns in each of those, with its arguments."""
    selector = selectors.DefaultSelector()
    selector.register(control, selectors.EVENT_READ)
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
    running: dict[int, tuple[int, socket.socket]] = {}
    while True:
        for key, _ in selector.select():
            if key.fileobj is not control:
                pid, reply = running.pop(key.fd)
                selector.unregister(key.fd)
                os.close(key.fd)
                with suppress(OSError):
                    reply.send(b"%d\n" % os.waitpid(pid, 0)[1])
                reply.close()
                continue
            data, ancillary, _, _ = control.recvmsg(2**18, socket.CMSG_SPACE(4 * 4))
            if not data:
                os._exit(0)
            files = array.array("i")
            files.frombytes(ancillary[0][2])
            *streams, replying = files
            request = json.loads(data)
            import_for(request["arguments"])
            gc.freeze()
            reply = socket.socket(fileno=replying)
            pid = os.fork()
            if not pid:
                for number, each in enumerate(streams):
                    os.dup2(each, number)
                reply.detach()
                control.detach()
                selector.close()
                os.closerange(3, 1024)
                signal.signal(signal.SIGINT, interrupt)
                become(request)
                return list(request["arguments"])
            for each in streams:
                os.close(each)
            reply.send(b"%d\n" % pid)
            exited = os.pidfd_open(pid)
            running[exited] = pid, reply
            selector.register(exited, selectors.EVENT_READ)


def become(request: dict[str, object]) -> None:
    """Be in the folder and the environment that were asked for."""
    os.environ.clear()
    os.environ.update(request["environment"])  # type: ignore[call-overload]
    os.chdir(str(request["folder"]))
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        setattr(sys, name, stream(number, getattr(sys, name)))
        setattr(sys, f"__{name}__", getattr(sys, name))
    if request["session"]:
        os.setsid()
    sys.path.insert(0, str(request["folder"]))  # where `python -m` looks first


def stream(number: int, like: io.TextIOWrapper) -> io.TextIOWrapper:
    """A standard stream as Python makes it while it starts, with what its file can now do."""
    file = open(number, "rb", closefd=False) if number == 0 else open(number, "wb", 0, closefd=False)
    newline = None if number == 0 else "\n"
    return io.TextIOWrapper(file, like.encoding, like.errors, newline, number == 2, number > 0)


if __name__ == "__main__":
    del sys.path[0]
    import dsh.cli.main  # noqa: F401

    arguments = main(socket.socket(fileno=int(sys.argv[1])))
    sys.argv[:] = [dsh.cli.main.__file__, *arguments]
    sys.orig_argv[:] = [sys.executable, "-m", "dsh.cli.main", *arguments]
    __package__ = "dsh.cli"  # for the name of the program in its help
    dsh.cli.main.main()
