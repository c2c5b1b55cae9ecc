"""Notifications of the SDK runtime while the client does not read."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from dsh.cordis import Context
from dsh.core.session_event import SessionEvent
from dsh.core.session_store import Sessions
from dsh.interfaces.sdk_jsonrpc_server import Config
from dsh.interfaces.sdk_jsonrpc_server.notifications import Notifications
from dsh.interfaces.stdio_jsonrpc import JsonRpcPeer
from dsh.interfaces.stdout import LineOutput


async def test_b10_events_that_wait_for_a_slow_client_are_references_to_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[int] = []
    to_wire = SessionEvent.to_wire

    def counted(event: SessionEvent) -> Any:
        made.append(event.seq)
        return to_wire(event)

    monkeypatch.setattr(SessionEvent, "to_wire", counted)

    async def nothing(method: str, params: Any) -> Any:
        raise AssertionError

    reader, writer = os.pipe()
    output = LineOutput(writer)
    async with Context() as root:
        await root.plugin(Sessions)

        def tell(ctx: Context, config: Any, sessions: Sessions) -> None:
            Notifications(ctx, JsonRpcPeer(output, nothing), Config())
            session = sessions.create("s")
            for number in range(10_000):
                session.append("test/noted", {"number": number, "text": "x" * 200}, ignorable=True)

        await root.plugin(tell)
        assert len(made) < 1_000  # what a pipe and one batch hold
        with open(reader, "rb") as file:
            numbers = [json.loads(file.readline())["params"]["event"]["seq"] for _ in range(10_000)]
        assert numbers == made == list(range(10_000))
    output.close()
    os.close(writer)
