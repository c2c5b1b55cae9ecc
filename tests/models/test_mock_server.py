"""The mock model server itself."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from dsh.models.mock_replies import BEHAVIOURS, UnknownBehaviour, plan_entry
from dsh.models.mock_server import MockLlmServer, MockOptions, load_script, serve

BODY = {"model": "m", "messages": []}


async def post(url: str, path: str = "/chat/completions", **more: Any) -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False) as client:
        return await client.post(url + path, **{"json": BODY, **more})


async def test_each_accepted_request_consumes_one_entry_and_refused_ones_none() -> None:
    async with MockLlmServer([{"text": "one"}, {"text": "two"}], api_key="k") as server:
        good = {"Authorization": "Bearer k"}
        assert (await post(server.url, "/nowhere", headers=good)).status_code == 404
        async with httpx.AsyncClient(trust_env=False) as client:
            assert (await client.get(f"{server.url}/chat/completions", headers=good)).status_code == 405
        assert (await post(server.url)).status_code == 401
        assert (await post(server.url, headers=good, json=None, content=b"{broken")).status_code == 400
        assert server.requests == []
        assert "one" in (await post(server.url, headers=good)).text
        assert "two" in (await post(server.url, headers=good)).text
        exhausted = await post(server.url, headers=good)
        assert exhausted.status_code == 500 and exhausted.json()["error"]["code"] == "MOCK_SCRIPT_EXHAUSTED"
        assert [r.outcome for r in server.requests] == ["completed", "completed", "server_error"]


async def test_the_last_entry_can_repeat_and_entries_may_look_at_the_request() -> None:
    def echo(body: Any) -> Any:
        return {"text": body["model"]}

    async with MockLlmServer(["success", echo], repeat_last=True) as server:
        await post(server.url)
        for _ in range(3):
            assert '"content":"m"' in (await post(server.url)).text
        assert [r.attempt for r in server.requests] == [1, 2, 3, 4]


async def test_a_record_says_what_happened_without_the_key() -> None:
    async with MockLlmServer(["random"], seed=7, weights={"success": 1.0}) as server:
        await post(server.url, "/deep/prefix/chat/completions", headers={"Authorization": "Bearer secret"})
        wire = server.requests[0].to_wire()
        assert (wire["scriptBehavior"], wire["behavior"], wire["outcome"]) == ("random", "success", "completed")
        assert wire["path"] == "/v1/deep/prefix/chat/completions" and wire["body"] == BODY and wire["chunksSent"] == 8
        assert "secret" not in json.dumps(wire)


async def test_a_scripted_reply_has_text_reasoning_and_calls() -> None:
    entry = {
        "text": "hi",
        "reasoning": "hm",
        "toolCalls": [{"name": "a", "arguments": {"n": 1}}, {"name": "b", "arguments": "raw", "id": "x"}],
    }
    from dsh.models.deepseek.response import CompletionReader

    async with MockLlmServer([entry, {"toolCall": {"id": "t", "name": "c", "arguments": {}}}]) as server:
        for expected in (["hm", "hi", '{"n":1}', "raw"], ["{}"]):
            reader = CompletionReader()
            for line in (await post(server.url)).text.split("\n\n"):
                if line.startswith("data: {"):
                    reader.push(json.loads(line[6:]))
            blocks = [chunk["block"] for chunk in reader.close() if chunk["type"] == "block-end"]
            assert [block.get("text", block.get("arguments")) for block in blocks] == expected


async def test_closing_the_server_cuts_a_stalled_connection() -> None:
    async with MockLlmServer(["stall"]) as server:
        pending = asyncio.create_task(post(server.url))
        await server.wait_for_requests(1)
    with pytest.raises(httpx.TransportError):
        await pending
    assert server.requests[0].outcome == "stalled"


def test_every_behaviour_has_a_plan_and_others_are_named() -> None:
    for name in BEHAVIOURS - {"random"}:
        plan_entry(name, "m", MockOptions())
    with pytest.raises(UnknownBehaviour, match="sucess"):
        plan_entry("sucess", "m", MockOptions())
    for entry in ("sucess", {"behavior": "sucess"}):
        with pytest.raises(UnknownBehaviour):
            MockLlmServer(["success", entry])


@pytest.mark.parametrize(
    ("name", "text"), [("s.json", '["success", {"text": "x"}]'), ("s.yml", "- success\n- text: x\n")]
)
def test_a_script_is_read_from_json_or_yaml(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert load_script(path) == ["success", {"text": "x"}]
    path.write_text("{}")
    with pytest.raises(ValueError, match="list"):
        load_script(path)


async def test_serve_reports_lines_and_can_refuse_connections_first() -> None:
    lines: list[Any] = []
    ready = asyncio.Event()

    def write(line: str) -> None:
        lines.append(json.loads(line))
        ready.set()

    task = asyncio.create_task(serve(["connection_refused", "success"], refuse_ms=300, write_line=write))
    await ready.wait()
    with pytest.raises(httpx.ConnectError):
        await post(lines[0]["url"])
    while True:
        try:
            assert (await post(lines[0]["url"])).status_code == 200
            break
        except httpx.ConnectError:
            await asyncio.sleep(0.02)
    while len(lines) < 3:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [line["type"] for line in lines] == ["ready", "request", "result"]
    assert lines[2]["outcome"] == "completed"
