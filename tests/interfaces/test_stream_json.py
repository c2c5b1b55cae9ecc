"""The event lines of ``--output stream-json`` while nobody reads them."""

from __future__ import annotations

import json
import os
from typing import Any

from dsh.core.session_event import SessionEvent
from dsh.interfaces.outcome import Outcome, write_event, write_result
from dsh.interfaces.stdout import LineOutput


async def test_events_wait_as_references_and_nothing_follows_the_result() -> None:
    made: list[int] = []

    class Counted(SessionEvent):
        def to_wire(self) -> dict[str, Any]:
            made.append(self.seq)
            return super().to_wire()

    events = [Counted("test/noted", seq, 0, {"text": "x" * 200}) for seq in range(10_001)]
    reader, writer = os.pipe()
    output = LineOutput(writer)
    for event in events[:-1]:
        write_event(output, "s", event)
    write_result(output, "stream-json", Outcome("s"))
    write_event(output, "s", events[-1])
    assert len(made) < 1_000  # what a pipe and one batch hold
    with open(reader, "rb") as file:
        lines = [json.loads(file.readline()) for _ in range(10_001)]
        output.close()
        os.close(writer)
        assert file.read() == b""
    assert lines[0] == {"type": "session_event", "sessionId": "s", "event": SessionEvent.to_wire(events[0])}
    assert [line["event"]["seq"] for line in lines[:-1]] == made == list(range(10_000))
    assert lines[-1]["type"] == "result"
