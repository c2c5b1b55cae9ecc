"""The JSON-RPC runtime behind the official Python client, its model a server on the loopback interface.

Where that client is not installed, the runner's own stands in and says so.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dsh.models.mock_server import MockLlmServer
from tests.conformance.comparison import Part, value_shape
from tests.conformance.corpus import Case
from tests.conformance.drivers import Ran
from tests.conformance.drivers.jsonrpc_sdk import final_response, launch_variables, prompt, shut_down, start
from tests.conformance.parts import undescribed
from tests.conformance.rpc_client import RpcClient
from tests.conformance.workplace import Workplace, inside

CLIENT = "deepseek_harness"

WAIT = 30.0
"""Seconds that the client may take."""


async def run(case: Case, root: Path) -> Ran:
    """Drive the runtime, compare what the model was sent and what the agent left."""
    place = Workplace.make(case, root)
    ran = Ran(place.composition)
    script = json.loads(case.file(case.spec["script"]).read_text("utf-8").replace("{{cwd}}", str(place.cwd)))
    async with MockLlmServer([_reply(entry) for entry in script]) as server:
        model = {"DEEPSEEK_BASE_URL": server.url, "DEEPSEEK_API_KEY": "test-key"}
        if importlib.util.find_spec(CLIENT) is not None:
            answer = await _by_official_client(place, model)
        else:
            ran.composition.replaced[CLIENT] = "the runner's own client"
            answer = await _by_own_client(place, model)
    ran.expect("final response", case.expect["finalResponse"], answer)
    seen = [place.normaliser().value(_visible(body)) for body in server.bodies]
    name = case.expect["modelVisible"]
    wanted = json.loads(case.file(name).read_text("utf-8"))
    ran.parts.append(Part(name, "value", wanted, seen, value_shape))
    stored = "\n".join(path.read_text("utf-8") for path in place.sessions.rglob("session.jsonl"))
    ran.expect_parts("the stored session", case.expect.get("sessionMust", []), stored)
    for path, text in case.expect.get("files", {}).items():
        file = place.cwd / path
        ran.expect(path, text, file.read_text("utf-8") if file.is_file() else None)
    return ran


async def _by_official_client(place: Workplace, model: Mapping[str, str]) -> str:
    options = {key: place.filled(value) for key, value in place.case.spec["initialize"].items()}
    client = importlib.import_module(CLIENT)
    command = (sys.executable, "-m", "dsh.cli.main", "jsonrpc")

    def drive() -> str:
        with harness:
            return str(harness.run(place.filled(place.case.spec["prompt"])).final_response)

    with inside(place.cwd, {**place.env, **launch_variables(place), **model}):
        harness = client.DeepSeekHarness(_launch_args=command, **options)
        driving = asyncio.ensure_future(asyncio.to_thread(drive))
        if not (await asyncio.wait([driving], timeout=WAIT))[0]:
            harness.client._proc.kill()  # it waits for what does not come; a thread ends only when its runtime does
        return await driving


async def _by_own_client(place: Workplace, model: Mapping[str, str]) -> str:
    session_id = f"session-{uuid.uuid4()}"
    async with RpcClient(await start(place, **model)) as client:
        await prompt(client, place, session_id)
        await shut_down(client)
    return final_response([frame for frame in client.frames if "id" not in frame], session_id)


def _reply(entry: Mapping[str, Any]) -> dict[str, Any]:
    if "text" in entry:
        return {"text": entry["text"]}
    call = entry["toolCall"]
    return {"toolCalls": [{**call, "arguments": json.dumps(call["arguments"])}]}


def _visible(body: Mapping[str, Any]) -> dict[str, Any]:
    """A request as the recording keeps it."""
    tools = [{"type": tool["type"], "function": undescribed(tool["function"])} for tool in body["tools"]]
    return {"tools": tools, "messages": [_message(message) for message in body["messages"]]}


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {"role": message["role"]}
    text = _text(message.get("content"))
    if message["role"] == "tool":
        out |= {"toolCallId": message["tool_call_id"], "text": "{{tool-result}}"}
    elif text:
        out["text"] = text
    if message.get("tool_calls"):
        out["toolCalls"] = [{"id": call["id"], "name": call["function"]["name"]} for call in message["tool_calls"]]
    return out


def _text(content: str | Sequence[Mapping[str, Any]] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part["text"] for part in content if part["type"] == "text")
