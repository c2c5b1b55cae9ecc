"""``dsh tail``: what happens in a session, as it happens."""

from __future__ import annotations

import os
import select
import stat
import sys
import threading
from collections.abc import Callable
from typing import Annotated, Any

import typer

from dsh.cli.daemons import control_errors, home_folder
from dsh.cli.output import fail, tell

app = typer.Typer(rich_markup_mode=None, add_completion=False)

_MOST = 2**53 - 1
"""The largest number of an event."""


@app.command()
def tail(
    agent: Annotated[
        str, typer.Argument(help="Label, session id or the unique beginning of one; PID: before it names the daemon.")
    ],
    start: Annotated[
        int | None, typer.Option("--from", min=0, max=_MOST, metavar="SEQ", help="Begin with this event of the log.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON line an event.")] = False,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Leave when the daemon ends.")] = False,
) -> None:
    """Show what happens in a session, as it happens.

    An agent that a restarted daemon opens again is followed further. A session that no daemon has open is printed from
    its log, and that is all.
    """
    from dsh.interfaces.control.client import ControlError, find_agent

    show = _printer(as_json)
    _leave_with_the_reader()
    home = home_folder()
    try:
        target = find_agent(home, agent)
    except ControlError as error:
        stored = None if error.exit_code == 2 else _stored(agent)
        if stored is None:
            with control_errors():
                raise
        session_id, log = stored
        tell(f"session {session_id} is not open; this is its log")
        for event in log[start or 0 :]:
            show(session_id, event.to_wire())
        return
    from dsh.interfaces.control.following import Follower

    follower = Follower(home, target, agent, None if start is None else start - 1, wait=not no_wait, say=tell)
    with control_errors():
        for frame in follower.frames():
            if frame["type"] == "session/event":
                show(frame["sessionId"], frame["event"])


def _printer(as_json: bool) -> Callable[[str, Any], None]:
    if as_json:
        import json

        def as_line(session_id: str, event: Any) -> None:
            line = {"type": "session_event", "sessionId": session_id, "event": event}
            text = json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n"
            sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
            sys.stdout.buffer.flush()

        return as_line
    from dsh.interfaces.screen import PlainScreen
    from dsh.interfaces.transcript import Transcript

    transcript = Transcript(PlainScreen())
    return lambda _, event: transcript.event(event["type"], event["data"])


def _leave_with_the_reader() -> None:
    """End when nobody reads the output any more, also while there is nothing to write (`dsh tail main | head -1`)."""
    if not stat.S_ISFIFO(os.fstat(1).st_mode):
        return

    def watch() -> None:
        reader = select.poll()
        reader.register(1, 0)  # asks for nothing but errors
        reader.poll()
        os._exit(0)

    threading.Thread(target=watch, name="reader of the output", daemon=True).start()


def _stored(reference: str) -> tuple[str, Any] | None:
    """The log of a stored session; None when there is none of that name, or several."""
    from dsh.cli.sessions import session_root
    from dsh.cordis.errors import HarnessError, describe_error
    from dsh.sessions.errors import AmbiguousSessionError, SessionNotFoundError
    from dsh.sessions.loading import repaired
    from dsh.sessions.log_file import read_log
    from dsh.sessions.stored import resolve_stored

    try:
        entry = resolve_stored(session_root(), reference)
        log = read_log(entry.path, entry.id)
        events, closers = repaired(log, frozenset())
    except (SessionNotFoundError, AmbiguousSessionError):
        return None
    except (OSError, HarnessError) as error:  # it is there and cannot be read
        fail(describe_error(error))
    return entry.id, [*events, *closers]
