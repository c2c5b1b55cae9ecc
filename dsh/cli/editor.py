"""Letting a person edit a text in their own editor, without ever losing what they wrote."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import typer

from dsh.cli.output import fail, tell

_EDITORS = ("sensible-editor", "nano", "vi")


def edit_text(name: str, data: bytes, accept: Callable[[bytes], list[str]], save: Callable[[bytes], None]) -> bool:
    """Open a copy of a file in `$VISUAL` or `$EDITOR`, and save it once `accept` finds nothing wrong with it.

    `name` is the file's name, by which editors know its kind. Where something is wrong it is said, and on a terminal
    the editor is offered again; whoever gives up is told where their text is. False when nothing was changed.
    """
    command = _editor()
    folder = Path(tempfile.mkdtemp(prefix="dsh-edit-"))  # for this user alone
    copy = folder / name
    copy.write_bytes(data)
    while True:
        try:
            code = subprocess.run([*command, str(copy)], check=False).returncode
        except OSError as error:
            shutil.rmtree(folder)
            fail(f"the editor {command[0]} cannot be started: {error.strerror}; set $VISUAL or $EDITOR")
        except (KeyboardInterrupt, SystemExit):  # Ctrl-C, while an editor outside of this terminal is open
            tell(f"nothing was changed; your text is in {copy}")
            raise
        try:
            edited = copy.read_bytes()
        except OSError as error:
            fail(f"{copy} cannot be read any more: {error.strerror}; nothing was changed")
        if edited == data:
            shutil.rmtree(folder)
            if code:
                fail(f"the editor {command[0]} left with code {code}; nothing was changed")
            return False
        problems = [f"the editor left with code {code}"] if code else accept(edited)
        if not problems:
            try:
                save(edited)
            except BaseException:
                tell(f"your text is in {copy}")
                raise
            shutil.rmtree(folder)
            return True
        for problem in problems:
            tell(problem)
        if not _again():
            fail(f"nothing was changed; your text is in {copy}")


def _again() -> bool:
    if not sys.stdin.isatty():
        return False
    try:
        return typer.confirm("Edit again?", default=True, err=True)
    except typer.Abort:
        return False


def _editor() -> list[str]:
    for name in ("VISUAL", "EDITOR"):
        try:
            words = shlex.split(os.environ.get(name, ""))
        except ValueError as error:
            fail(f"${name} is no command: {error}")
        if words:
            return words
    found = next((path for each in _EDITORS if (path := shutil.which(each))), None)
    if found is None:
        fail("no editor is known; set $VISUAL or $EDITOR")
    return [found]
