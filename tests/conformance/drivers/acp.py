"""The ACP server as a child process, driven by the case's list of client actions over its standard files."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.conformance.comparison import Part, frames_shape
from tests.conformance.corpus import Case, read_lines
from tests.conformance.drivers import Ran
from tests.conformance.parts import log_parts, recorded_normaliser, tool_parts
from tests.conformance.rpc_client import RpcClient
from tests.conformance.workplace import TIMEOUT, Workplace

WAIT = 10.0
"""How long a client action waits for what it is about, in seconds."""
_POLL = 0.02


async def run(case: Case, root: Path) -> Ran:
    """Play the input, close standard input, compare frames and logs."""
    place = Workplace.make(case, root)
    ran = Ran(place.composition)
    script = json.loads(case.file(case.spec["input"]).read_text("utf-8"))
    async with RpcClient(await place.start("acp", "--config", str(place.config))) as client:
        player = Player(place, client, list(script.get("permissionAnswers", ())))
        client.on_request = player.answer
        try:
            for step in script["steps"]:
                await player.play(step)
        except (TimeoutError, ConnectionError) as error:
            ran.problems.append(f"{step}: {type(error).__name__} {error}")
        code = await client.close(TIMEOUT)
        ran.expect("exit code", 0, code)
        ran.expect("standard error", "", client.stderr)
        ran.expect("lines that are no frames", [], client.noise)
        ran.problems += player.problems
    name = case.expect["wire"]
    normaliser = place.normaliser([player.session_id] if player.session_id else ())
    want = recorded_normaliser(case).frames(read_lines(case.file(name)))
    ran.parts.append(Part(name, "wire", want, normaliser.frames(client.frames), frames_shape))
    if case.expect["sessions"]:
        ran.parts += [*log_parts(case, place), *tool_parts(case, place)]
    elif case.spec["case"] == "handshake":
        ran.expect("stored logs", [], [log.session_id for log in place.logs()])
    return ran


class Player:
    """The client's side of one transcript."""

    def __init__(self, place: Workplace, client: RpcClient, permissions: list[dict[str, Any]]) -> None:
        self._place = place
        self._client = client
        self._permissions = permissions
        self.session_id: str | None = None
        self.problems: list[str] = []

    async def play(self, step: dict[str, Any]) -> None:
        """One client action. Raises ``TimeoutError`` when what it waits for does not come."""
        await getattr(self, f"_{step['op']}")(**{key: value for key, value in step.items() if key != "op"})

    async def answer(self, method: str, params: dict[str, Any]) -> Any:
        """What the server asks of its client: permissions, answered in the order the case lists them."""
        if method != "session/request_permission":
            raise ValueError(method)
        if not self._permissions:
            return {"outcome": {"outcome": "cancelled"}}
        kind = self._permissions.pop(0)["kind"]
        chosen = [option["optionId"] for option in params["options"] if option["kind"] == kind]
        assert chosen, f"no option of kind {kind} is offered: {params['options']}"
        return {"outcome": {"outcome": "selected", "optionId": chosen[0]}}

    # -- protocol ------------------------------------------------------------------------------------------------

    async def _initialize(self) -> None:
        await self._request("initialize", {"protocolVersion": 1, "clientCapabilities": {}})

    async def _newSession(self) -> None:
        result = await self._request("session/new", {"cwd": str(self._place.cwd), "mcpServers": []})
        self.session_id = result["sessionId"]

    async def _newSessionExpectError(self, **more: Any) -> None:
        await self._refused("session/new", {"cwd": str(self._place.cwd), "mcpServers": [], **more})

    async def _prompt(self, text: str) -> None:
        await self._request("session/prompt", self._said(text))

    async def _promptContent(self, content: list[Any]) -> None:
        await self._request("session/prompt", {"sessionId": self.session_id, "prompt": content})

    async def _promptExpectError(self, text: str) -> None:
        await self._refused("session/prompt", self._said(text))

    async def _promptAndWaitForAgentMessage(self, text: str, waitForText: str) -> None:
        await self._request("session/prompt", self._said(text))
        await self._until(lambda: waitForText in map(_chunk_text, self._client.frames), f"the message {waitForText!r}")

    async def _promptAndCancel(self, text: str, waitForFile: dict[str, Any] | None = None) -> None:
        prompt = asyncio.ensure_future(self._request("session/prompt", self._said(text)))
        if waitForFile is not None:
            await self._waitForFile(**waitForFile)
        else:
            await self._waitForTurnStart()
        await self._cancel()
        await prompt

    async def _cancel(self, waitForFile: dict[str, Any] | None = None) -> None:
        if waitForFile is not None:
            await self._waitForFile(**waitForFile)
        await self._client.notify("session/cancel", {"sessionId": self.session_id})

    # -- waiting for files and logs --------------------------------------------------------------------------------

    async def _waitForFile(self, path: str) -> None:
        await self._until((self._place.cwd / path).exists, path)

    async def _waitForTurnStart(self, minimumTurn: int = 1) -> None:
        await self._until(lambda: _last_turn(self._events(), "turn/start") >= minimumTurn, f"turn {minimumTurn}")

    async def _waitForTurnEnd(self) -> None:
        await self._until(lambda: _is_closed(self._events()), "the end of a turn")

    async def _waitForSubagentTurnEnd(self, child: int = 1, minimumTurn: int = 1) -> None:
        def ended() -> bool:
            events = self._events(child)
            types = [event["type"] for event in events]
            if "subagent/descriptor" not in types:
                return False
            own = types[types.index("subagent/descriptor") :]
            return "request/header" in own and _last_turn(events, "turn/end") >= minimumTurn

        await self._until(ended, f"turn {minimumTurn} of child {child}")

    async def _waitForGoalPhase(self, phase: str) -> None:
        def reached() -> bool:
            changes = [event["data"] for event in self._events() if event["type"] == "goal/change"]
            return bool(changes) and changes[-1].get("goal", changes[-1]).get("phase") == phase

        await self._until(reached, f"the goal phase {phase}")

    async def _waitForInboxMessage(self, text: str) -> None:
        def arrived() -> bool:
            spliced = [event for event in self._events() if event["type"] == "agent/inbox/spliced"]
            return any(text in json.dumps(event["data"], ensure_ascii=False) for event in spliced)

        await self._until(arrived, f"an inbox message {text!r}")

    async def _waitForTitleAfterTurnEnd(self) -> None:
        await self._waitForEventAfterTurnEnd("session/title")

    async def _waitForEventAfterTurnEnd(self, type: str) -> None:
        def came() -> bool:
            types = [event["type"] for event in self._events()]
            return "turn/end" in types and type in types[types.index("turn/end") :]

        await self._until(came, f"{type} after the turn")

    def _events(self, log: int = 0) -> list[Any]:
        """The stored events of the parent, or of the n-th child, as far as they are written."""
        try:
            logs = self._place.logs()
        except ValueError:
            return []  # a line is being written
        return [event.to_wire() for event in logs[log].events] if log < len(logs) else []

    async def _until(self, reached: Callable[[], bool], what: str) -> None:
        try:
            async with asyncio.timeout(WAIT):
                while not reached():
                    self._client.check()
                    await asyncio.sleep(_POLL)
        except TimeoutError:
            raise TimeoutError(f"{what} did not come") from None

    # -- requests --------------------------------------------------------------------------------------------------

    def _said(self, text: str) -> dict[str, Any]:
        return {"sessionId": self.session_id, "prompt": [{"type": "text", "text": text}]}

    async def _request(self, method: str, params: dict[str, Any]) -> Any:
        frame = await self._client.request(method, params, TIMEOUT)
        if "error" in frame:
            self.problems.append(f"{method} was refused: {frame['error']}")
        return frame.get("result", {})

    async def _refused(self, method: str, params: dict[str, Any]) -> None:
        frame = await self._client.request(method, params, TIMEOUT)
        if "error" not in frame:
            self.problems.append(f"{method} was not refused: {frame}")


def _chunk_text(frame: dict[str, Any]) -> str | None:
    update = frame.get("params", {}).get("update", {})
    text: str | None = update.get("content", {}).get("text")
    return text if update.get("sessionUpdate") == "agent_message_chunk" else None


def _last_turn(events: list[Any], kind: str) -> int:
    return max((event["data"]["turn"] for event in events if event["type"] == kind), default=0)


def _is_closed(events: list[Any]) -> bool:
    return _last_turn(events, "turn/end") >= max(1, _last_turn(events, "turn/start"))
