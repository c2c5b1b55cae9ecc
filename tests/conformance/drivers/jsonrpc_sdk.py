"""The JSON-RPC runtime as a child process: initialize, one prompt, every notification until the session is idle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.conformance.comparison import Part, Record, stream_shape, value_shape
from tests.conformance.corpus import Case, read_lines
from tests.conformance.drivers import Ran
from tests.conformance.normalise import Normaliser
from tests.conformance.parts import log_parts, recorded_normaliser, tool_parts
from tests.conformance.rpc_client import RpcClient
from tests.conformance.workplace import TIMEOUT, Workplace


async def run(case: Case, root: Path) -> Ran:
    """Drive the runtime, compare notifications, result and logs."""
    place = Workplace.make(case, root)
    ran = Ran(place.composition)
    session_id = case.spec["sessionId"]
    async with RpcClient(await start(place)) as client:
        try:
            await prompt(client, place, session_id)
            ran.expect("exit code", 0, await shut_down(client))
        except (TimeoutError, ConnectionError) as error:
            ran.problems.append(f"{type(error).__name__} {error}")
        ran.expect("standard error", "", client.stderr)
        ran.expect("lines that are no frames", [], client.noise)
    normaliser, recorded = place.normaliser([session_id]), recorded_normaliser(case)
    name = case.expect["notifications"]
    heard = [frame for frame in client.frames if "id" not in frame]
    got = [_notification(frame, normaliser) for frame in heard]
    want = [_notification(frame, recorded) for frame in read_lines(case.file(name))]
    ran.parts.append(Part(name, "wire", want, got, stream_shape))
    result = {"sessionId": session_id, "finalResponse": final_response(heard, session_id)}
    wanted = json.loads(case.file(case.expect["result"]).read_text("utf-8"))
    ran.parts.append(Part(case.expect["result"], "value", [wanted], [normaliser.value(result)], value_shape))
    ran.parts += [*log_parts(case, place), *tool_parts(case, place)]
    return ran


async def start(place: Workplace, **env: str) -> Any:
    """The runtime, launched by environment."""
    return await place.start("jsonrpc", env={**launch_variables(place), **env})


def launch_variables(place: Workplace) -> dict[str, str]:
    """The environment that names composition, session root and workspace."""
    folders = {"DSH_SESSION_ROOT": str(place.sessions), "DSH_CWD": str(place.cwd)}
    return {"DSH_CORDIS_CONFIG": str(place.config), **folders}


async def prompt(client: RpcClient, place: Workplace, session_id: str) -> None:
    """Initialize, prompt, wait until the session is idle. Raises ``AssertionError`` when the server refuses."""
    given = {key: place.filled(value) for key, value in place.case.spec["initialize"].items()}
    blocks = [{"type": "text", "text": place.filled(place.case.spec["prompt"])}]
    for method, params in (
        ("initialize", given),
        ("session/prompt", {"sessionId": session_id, "contentBlocks": blocks}),
    ):
        frame = await client.request(method, params, TIMEOUT)
        assert "result" in frame, frame
    await client.until(lambda frame: _is_idle(frame, session_id), TIMEOUT)


async def shut_down(client: RpcClient) -> int:
    """Ask the runtime to go; its exit code."""
    await client.request("shutdown", None, TIMEOUT)
    return await client.close(TIMEOUT)


def final_response(frames: list[Record], session_id: str) -> str:
    """The text of the session's last assistant message."""
    text = ""
    for frame in frames:
        event = frame["params"].get("event", {})
        if frame["params"].get("sessionId") == session_id and event.get("type") == "assistant/message":
            content = event["data"]["message"]["content"]
            text = "".join(block["text"] for block in content if block["type"] == "text")
    return text


def _notification(frame: Record, normaliser: Normaliser) -> Record:
    params = normaliser.value(frame["params"])
    if "event" in params:
        params["event"] = normaliser.record(params["event"])
    return {"method": frame["method"], "params": params}


def _is_idle(frame: Record, session_id: str) -> bool:
    return frame.get("method") == "session.status" and frame["params"] == {"sessionId": session_id, "status": "idle"}
