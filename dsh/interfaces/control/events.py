"""Following one session over the ends and returns of its daemon."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, Final

from .client import ControlError, DaemonGoneError, NoAnswerError, Target, find_agent

LOOK_AGAIN_SECONDS: Final = 0.5
"""How often is looked whether the session is open again: nothing tells when another process starts."""


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
        self._after = after

    def frames(self) -> Iterator[dict[str, Any]]:
        """Every frame; an event never comes twice. Raises ControlError when it is over."""
        while True:
            try:
                while (yield from self._frames()):  # as long as we are dropped for being slow
                    pass
                raise DaemonGoneError(f"{self.target.daemon.name} ended")
            except (DaemonGoneError, NoAnswerError) as error:
                if not self._wait:
                    raise
                self._say(f"{error}; waiting for {self._reference} to come back (Ctrl-C leaves)")
            self._find_again()

    def _frames(self) -> Generator[dict[str, Any], None, bool]:
        with self.target.client() as client:
            for frame in client.stream(self.target.session_id, self._after):
                kind = frame["type"]
                if kind == "session/event":
                    self._after = frame["event"]["seq"]
                elif kind == "session/subscribed" and self._after is None:
                    self._after = frame.get("lastSeq")
                elif kind == "stream/error":
                    if frame["code"] == "SLOW_CONSUMER":
                        return True
                    raise ControlError(frame["message"], code=frame["code"])
                yield frame
        return False

    def _find_again(self) -> None:
        while True:
            time.sleep(LOOK_AGAIN_SECONDS)
            try:
                target = find_agent(self._home, self._reference)
            except ControlError:
                continue
            if target.agent["status"] not in ("starting", "failed"):
                break
        if target.session_id != self.target.session_id:
            self._after = -1
            self._say(f"{self._reference} is back with the new session {target.session_id}")
        else:
            self._say(f"{self._reference} is back in {target.daemon.name}")
        self.target = target
