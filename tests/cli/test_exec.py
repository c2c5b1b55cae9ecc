"""``dsh exec``: one task against a scripted model server, in a real process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dsh.models.mock_server import MockLlmServer
from tests.cli.kit import Place

EDIT_RUN: list[Any] = [
    {"toolCalls": [{"name": "read", "arguments": '{"file_path":"greeting.txt"}'}]},
    {
        "toolCalls": [
            {
                "name": "edit",
                "arguments": json.dumps({"file_path": "greeting.txt", "old_string": "world", "new_string": "dsh"}),
            }
        ]
    },
    {"toolCalls": [{"name": "bash", "arguments": '{"command":"cat greeting.txt","description":"show it"}'}]},
    {"text": "The greeting now names dsh."},
]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place.make(tmp_path)


async def test_a_task_changes_a_real_file_and_prints_the_final_text(place: Place) -> None:
    path = place.write("greeting.txt", "hello world\n")
    async with MockLlmServer(EDIT_RUN) as server:
        place.model(server.url)
        done = await place.dsh("exec", "Greet dsh instead.")
    assert (done.code, done.out, done.err) == (0, "The greeting now names dsh.\n", "")
    assert path.read_text() == "hello dsh\n"
    shown = server.bodies[-1]["messages"][-1]
    assert shown["role"] == "tool" and "hello dsh" in shown["content"]


async def test_json_output_names_session_status_usage_and_turns(place: Place) -> None:
    async with MockLlmServer(["success"]) as server:
        place.model(server.url)
        done = await place.dsh("exec", "Hi", "--output", "json")
    result = done.json()
    assert done.code == 0
    assert result["status"] == "completed" and result["turns"] == 1
    assert result["output"] and result["sessionId"].startswith("session-")
    assert result["usage"]["outputTokens"] > 0 and "error" not in result


async def test_stream_json_prints_every_event_and_then_the_result(place: Place) -> None:
    async with MockLlmServer(["success"]) as server:
        place.model(server.url)
        done = await place.dsh("exec", "Hi", "--output", "stream-json")
    *events, result = done.lines()
    assert [line["event"]["seq"] for line in events] == list(range(len(events)))
    assert events[-1]["event"]["type"] == "turn/end"
    assert {line["sessionId"] for line in events} == {result["sessionId"]}
    assert result["type"] == "result" and result["reason"] == "completed"


async def test_a_failing_model_is_one_line_on_stderr_and_exit_code_1(place: Place) -> None:
    async with MockLlmServer(["auth_error"], repeat_last=True) as server:
        place.model(server.url)
        done = await place.dsh("exec", "Hi")
        as_json = await place.dsh("exec", "Hi", "--output", "json")
    assert (done.code, done.out) == (1, "\n")
    assert done.err.startswith("dsh: AUTH: ") and done.err.count("\n") == 1
    assert as_json.code == 1
    assert as_json.json()["status"] == "error" and as_json.json()["error"]["code"] == "AUTH"


async def test_a_key_never_shows_in_any_output(place: Place) -> None:
    async with MockLlmServer(["auth_error"], api_key="another") as server:
        place.model(server.url)
        place.env["DEEPSEEK_API_KEY"] = "sk-very-secret-value"
        done = await place.dsh("-vv", "exec", "Hi", "--output", "stream-json")
    assert done.code == 1
    assert "sk-very-secret-value" not in done.out + done.err


async def test_max_tokens_is_not_a_success(place: Place) -> None:
    async with MockLlmServer(["max_tokens"]) as server:
        place.model(server.url)
        done = await place.dsh("exec", "Hi", "--output", "json")
    assert done.code == 1 and done.json()["status"] == "max-tokens"


async def test_a_timeout_cancels_the_run_and_says_so(place: Place) -> None:
    async with MockLlmServer(["stall"]) as server:
        place.model(server.url)
        done = await place.dsh("exec", "Hi", "--timeout", "1", "--output", "json")
    assert done.code == 1 and done.json()["status"] == "aborted"


async def test_the_task_can_come_from_standard_input(place: Place) -> None:
    async with MockLlmServer(["success"]) as server:
        place.model(server.url)
        done = await place.dsh("exec", "-", stdin="from a pipe: ü\n")
    assert done.code == 0
    assert server.bodies[0]["messages"][-1]["content"].endswith("from a pipe: ü\n")


@pytest.mark.parametrize("task", ["", "  \n"])
async def test_an_empty_task_is_a_usage_error(place: Place, task: str) -> None:
    done = await place.dsh("exec", task)
    assert done.code == 2 and "empty" in done.err


async def test_an_absent_model_server_is_a_typed_failure(place: Place) -> None:
    place.model("http://127.0.0.1:9")
    row = "llm-deepseek.retryPolicy={mode: normal, maxRetries: 0}"
    done = await place.dsh("exec", "Hi", "--set", row)
    assert done.code == 1 and done.err.startswith("dsh: TRANSPORT: ")


async def test_without_any_key_or_model_a_labelled_demo_answers(place: Place) -> None:
    done = await place.dsh("exec", "Hi")
    assert done.code == 0
    assert "demo reply, no model involved" in done.out and "dsh local pull" in done.out


async def test_a_session_can_be_continued(place: Place) -> None:
    async with MockLlmServer(["success", "success"]) as server:
        place.model(server.url)
        first = (await place.dsh("exec", "one", "--output", "json")).json()
        second = await place.dsh("exec", "two", "--session", first["sessionId"][:16], "--output", "json")
    assert second.json()["sessionId"] == first["sessionId"]
    roles = [message["role"] for message in server.bodies[1]["messages"]]
    assert roles == ["system", "user", "assistant", "user"]


async def test_prints_of_plugins_stay_off_standard_output(place: Place) -> None:
    place.write("noisy.py", "import os, sys\nprint('at import')\n\ndef apply(ctx):\n    os.write(1, b'raw bytes\\n')\n")
    place.write("noisy.patch.yml", "- insert:\n    - {id: noisy, name: ./noisy.py}\n")
    copied = await place.dsh("init", ".")
    assert copied.code == 0
    async with MockLlmServer(["success"]) as server:
        place.model(server.url)
        done = await place.dsh("exec", "Hi", "--patch", "noisy.patch.yml", "--output", "stream-json")
    assert done.code == 0 and len(done.lines()) > 3
    assert "at import" in done.err and "raw bytes" in done.err
