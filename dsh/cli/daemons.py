"""What the commands that talk to running daemons share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dsh.cli.output import fail


def home_folder() -> Path:
    """The home folder whose daemons are meant."""
    from dsh.loader.home import resolve_home

    return resolve_home().path


@contextmanager
def control_errors() -> Iterator[None]:
    """Turn what the client raises into one sentence and an exit code."""
    from dsh.interfaces.control.client import ControlError

    try:
        yield
    except ControlError as error:
        fail(str(error), error.exit_code)
