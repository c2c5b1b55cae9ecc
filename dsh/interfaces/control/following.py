"""Following one session over cut streams, and over the ends and returns of its daemon.

Every reader of a stream stands on `Progress`: the one that blocks is `Follower`, the console of another terminal has
its own loop. The end of a stream says nothing of the daemon; `client.still_there` does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from .client import ControlError, DaemonGoneError, NoAnswerError, Target, find_agent, still_there

LOOK_AGAIN_SECONDS: Final = 0.5
"""How often is looked whether the session is open again: nothing tells when another process starts."""


class Progress:
    """How far a client of one session's events has come. after: the seq of the last event it knows, -1 for none, None
    for no past at all."""

    def __init__(self, session_id: str, after: int | None) -> None:
        self.session_id = session_id
        self.after = after

    def query(self) -> dict[str, str]:
        """The query of a stream that goes on from here."""
        name = quote(self.session_id, safe="/: ")
        query = {"sessions": name}
        if self.after is not None:
            query["after"] = f"{name}:{self.after}"
        return query

    def take(self, frame: dict[str, Any]) -> bool:
        """Note a frame. False when it is none to show but the daemon's word that too much was waiting: take up again.

        Raises ControlError when the session cannot be followed.
        """
        kind = frame["type"]
        if kind == "session/event":
            self.after = frame["event"]["seq"]
        elif kind == "session/subscribed" and self.after is None:
            self.after = frame.get("lastSeq")
        elif kind == "stream/error":
            if frame["code"] == "SLOW_CONSUMER":
                return False
            raise ControlError(frame["message"], code=frame["code"])
        return True


class Follower:
    """The frames of an agent's session.

    reference: what the agent is found by again; with a label that may be another session than before. after: the seq
    of the last event known, -1 for none, None for no past at all. wait: go on after the daemon ends, once the agent is
    back. say: told what happens to the daemon.
    """

    def __init__(
        self,
        home: Path,
        target: Target,
        reference: str | None,
        after: int | None,
        *,
        wait: bool,
        say: Callable[[str], None],
    ) -> None:
        self._home = home
        self._wait = wait
        self._say = say
        self.target = target
        by_label = reference is not None and reference == target.agent.get("label")
        self._reference = target.name if by_label else target.session_id
        self._progress = Progress(target.session_id, after)

    def frames(self) -> Iterator[dict[str, Any]]:
        """Every frame; an event never comes twice. Raises ControlError when it is over."""
        while True:
            try:
                yield from self._of_this_daemon()
            except (DaemonGoneError, NoAnswerError) as error:
                if not self._wait:
                    raise
                self._say(f"{error}; waiting for {self._reference} to come back (Ctrl-C leaves)")
            self._find_again()

    def _of_this_daemon(self) -> Generator[dict[str, Any], None, None]:
        """Frames until the daemon has ended, which is raised; a stream that is cut before is taken up again."""
        while True:
            try:
                if (yield from self._of_one_stream()):
                    continue
            except DaemonGoneError:
                pass  # perhaps: the connection is
            daemon = self.target.daemon
            entry = still_there(daemon.entry)
            if entry is None:
                raise DaemonGoneError(f"{daemon.name} ended")
            self.target = self.target._replace(daemon=daemon._replace(entry=entry))

    def _of_one_stream(self) -> Generator[dict[str, Any], None, bool]:
        """The frames of one request; True when the daemon dropped us because too much was waiting."""
        with self.target.client() as client:
            for frame in client.stream(self._progress.query()):
                if not self._progress.take(frame):
                    return True
                yield frame
        return False

    def _find_again(self) -> None:
        while True:
            time.sleep(LOOK_AGAIN_SECONDS)
            try:
                target = find_agent(self._home, self._reference)
            except ControlError as error:
                if error.code == "AMBIGUOUS":
                    raise
                continue
            if target.agent["status"] not in ("starting", "failed"):
                break
        if target.session_id != self.target.session_id:
            self._progress = Progress(target.session_id, -1)
            self._say(f"{self._reference} is back with the new session {target.session_id}")
        else:
            self._say(f"{self._reference} is back in {target.daemon.name}")
        self.target = target
