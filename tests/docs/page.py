"""A page of documentation, executed: its console blocks run, its files are written, what it shows is what comes.

A page is read from top to bottom by these rules.

- A ``console`` block runs in one shell for the whole page. A line that starts with ``$ `` is a command, which goes on
  as long as its lines end in a backslash; the lines up to the next command are what it prints, errors included.
- A block of another language whose first line names a file after the language (```` ```python plugins/x.py ````) is
  written to that file; other blocks are not allowed.
- A comment ``<!-- file: as written before -->`` in front of such a block says that the file holds just that already,
  ``<!-- file: as a part -->`` that it is a part of what the file holds.
- A comment ``<!-- soon -->`` in front of a console block says that what it prints may need a moment to come true: each
  command of it is repeated until it prints what the page shows.
- In what is shown ``…`` stands for any text, alone on a line for any lines; a time such as ``0.31s`` for any time.
"""

from __future__ import annotations

import os
import re
import selectors
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

FENCE = re.compile(r"^```(\S*)(?: +(\S+))?\s*$")
COMMENT = re.compile(r"^<!-- (.*) -->$")
MARK = "\x1e"
PATIENCE = 10.0


@dataclass
class Block:
    """One fenced block: where it starts, its language, the file it names, the comment before it."""

    line: int
    language: str
    file: str | None
    comment: str | None
    lines: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(f"{line}\n" for line in self.lines)


@dataclass
class Command:
    """One command of a console block and what the page says it prints."""

    line: int
    text: str
    shown: list[str] = field(default_factory=list)


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page."""
    block: Block | None = None
    comment: str | None = None
    for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
        if block is not None:
            if line.rstrip() == "```":
                yield block
                block = comment = None
            else:
                block.lines.append(line)
        elif opened := FENCE.match(line):
            block = Block(number, opened[1], opened[2], comment)
        elif found := COMMENT.match(line.strip()):
            comment = found[1]
        elif line.strip():
            comment = None
    assert block is None, f"the block of line {block.line} is not closed"


def commands(block: Block) -> list[Command]:
    """The commands of a console block."""
    found: list[Command] = []
    for number, line in enumerate(block.lines, block.line + 1):
        if line.startswith("$ "):
            found.append(Command(number, line[2:]))
        elif found and found[-1].text.endswith("\\"):
            found[-1].text += "\n" + line
        else:
            assert found, f"line {number}: output before any command"
            found[-1].shown.append(line)
    return found


def fits(shown: list[str], printed: str) -> bool:
    """Whether what a command printed is what the page shows."""
    parts = []
    for line in shown:
        if line.strip() == "…":
            parts.append(r"(?:.*\n)*?")
        else:
            exact = re.sub(r"\\?\d+\\\.\d+s\b", r"\\d+\\.\\d+s", re.escape(line.rstrip()))
            parts.append(exact.replace("…", ".*") + r"[ \t]*\n")
    text = printed if not printed or printed.endswith("\n") else printed + "\n"
    return re.fullmatch("".join(parts), text) is not None


class Shell:
    """One bash that runs command after command, so that folders, variables and jobs last."""

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            cwd=folder,
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def run(self, command: str) -> str:
        """Run a command and return what it printed."""
        into, out = self._process.stdin, self._process.stdout
        assert into is not None and out is not None
        into.write(f"eval {shlex.quote(command)} </dev/null\nprintf '\\036%s\\036' \"$PWD\"\n".encode())
        into.flush()
        printed = self._until_mark(out)
        self.folder = Path(self._until_mark(out))
        return printed

    def _until_mark(self, out: IO[bytes]) -> str:
        found = bytearray()
        deadline = time.monotonic() + PATIENCE * 4
        with selectors.DefaultSelector() as selector:
            selector.register(out, selectors.EVENT_READ)
            while True:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise AssertionError(f"the command does not end; so far: {bytes(found)!r}")
                byte = os.read(out.fileno(), 1)
                if byte == MARK.encode():
                    return found.decode("utf-8", "replace")
                assert byte, f"the shell ended: {bytes(found)!r}"
                found += byte

    def close(self) -> None:
        """End the shell and every job it started."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.communicate(b"kill $(jobs -p) 2>/dev/null; wait\n", PATIENCE)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def execute(page: Path, folder: Path, env: Mapping[str, str]) -> list[str]:
    """Execute a page from top to bottom in `folder`; the commands that ran. AssertionError names line and reason."""
    ran: list[str] = []
    shell = Shell(folder, env)
    try:
        shell.run("true")
        for block in blocks(page):
            if block.language == "console":
                for command in commands(block):
                    _check(page, shell, command, patient=block.comment == "soon")
                    ran.append(command.text)
                continue
            assert block.file is not None, f"{page.name}:{block.line}: the block names no file to write it to"
            path = shell.folder / block.file
            if block.comment == "file: as written before":
                assert path.read_text("utf-8") == block.text, f"{page.name}:{block.line}: {block.file} is different"
                continue
            if block.comment == "file: as a part":
                assert block.text in path.read_text("utf-8"), f"{page.name}:{block.line}: not in {block.file}"
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            draft = path.with_name(f".{path.name}~")
            draft.write_text(block.text, "utf-8")
            os.replace(draft, path)
    finally:
        shell.close()
    return ran


def _check(page: Path, shell: Shell, command: Command, *, patient: bool) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        printed = shell.run(command.text)
        if fits(command.shown, printed):
            return
        if not patient or time.monotonic() > deadline:
            shown = "\n".join(command.shown)
            raise AssertionError(
                f"{page.name}:{command.line}: $ {command.text}\nthe page shows:\n{shown}\nit printed:\n{printed}"
            )
        time.sleep(0.1)
