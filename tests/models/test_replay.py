"""Playing recorded sessions."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dsh.cordis import AbortController, ConfigError, Context
from dsh.llm.service import Llm
from dsh.models import replay
from dsh.models.replay_script import (
    ReplayError,
    derive_script,
    override_entries,
    read_recording,
    resolve_placeholders,
)
from tests.conformance.corpus import load_cases
from tests.llm.helpers import HELLO, FakeAdapter, collect, failure_code, request
from tests.models.helpers import environment

FINISH = {"type": "finish", "reason": {"kind": "stop"}}


def chunk(text: str, turn: int = 1, step: int = 1) -> dict[str, Any]:
    delta = {"type": "text-delta", "index": 0, "text": text}
    return {"type": "assistant/chunk", "data": {"turn": turn, "step": step, "chunk": delta}}


def finish(turn: int = 1, step: int = 1) -> dict[str, Any]:
    return {"type": "assistant/chunk", "data": {"turn": turn, "step": step, "chunk": FINISH}}


def said(text: str, turn: int = 1, step: int = 1) -> list[dict[str, Any]]:
    return [chunk(text, turn, step), finish(turn, step)]


def write(path: Path, *rows: Any, **header: Any) -> Path:
    lines = [{"type": "session", "version": 0, "id": "s", "createdAt": 1, **header}, *rows]
    path.write_text("\n".join(json.dumps(line, ensure_ascii=False) for line in lines) + "\n", "utf-8")
    return path


@asynccontextmanager
async def playing(config: dict[str, Any], **env: str) -> AsyncIterator[tuple[Llm, replay.Replay, Context]]:
    async with Context() as root:
        root.provide("launchEnvironment", environment(**env))
        await root.plugin(Llm)
        mounted: list[replay.Replay] = []

        def row(ctx: Context, raw: Any, llm: Llm) -> None:
            mounted.append(replay.mount(ctx, replay.Config.validate(raw), llm))

        await root.plugin(row, config)
        yield root[Llm], mounted[0], root


def texts(chunks: list[Any]) -> str:
    return "".join(c["text"] for c in chunks if c["type"] == "text-delta")


def test_b54a_calls_end_at_their_finish_and_packed_rows_are_read(tmp_path: Path) -> None:
    where = {"turn": 1, "step": 1, "index": 0}
    path = write(
        tmp_path / "s.jsonl",
        {"type": "turn/start", "data": {"turn": 1}},
        {"type": "text-chunks", "data": {**where, "dt": [0, 0], "texts": ["a", "\u2028", "{{cwd}}"]}},
        finish(),
        {"type": "reasoning-chunks", "seq0": 5, "time0": 1, "data": {**where, "dt": [0, 0], "texts": ["x", "y", "z"]}},
        {
            "type": "tool-call-chunks",
            "data": {**where, "index": 1, "dt": [0, 0], "id": "c", "name": "n", "args": ["1", "2", "3"]},
        },
        finish(),
        *said("second step", step=2),
    )
    script = derive_script(read_recording(path, "/w"))
    assert [len(entry["chunks"]) for entry in script.entries] == [4, 7, 2]
    assert texts(script.entries[0]["chunks"]) == "a\u2028/w"
    assert script.entries[1]["chunks"][3] == {
        "type": "tool-call-delta",
        "index": 1,
        "id": "c",
        "name": "n",
        "argumentsDelta": "1",
    }


def test_b54b_a_call_without_finish_needs_an_override(tmp_path: Path) -> None:
    for rows in ([chunk("cut")], [chunk("cut"), *said("next", step=2)]):
        with pytest.raises(ReplayError, match="turn 1, step 1 has no finish"):
            derive_script(read_recording(write(tmp_path / "s.jsonl", *rows), "/"))


def test_b54c_a_compaction_call_is_rebuilt_from_its_blocks(tmp_path: Path) -> None:
    block = {"type": "text", "text": "summary"}
    summary = {"rawOutput": [block], "usage": {"inputTokens": 1, "outputTokens": 2}, "llmStreamCall": True}
    path = write(
        tmp_path / "s.jsonl",
        {"type": "compaction/summary", "data": summary},
        {"type": "compaction/summary", "data": {**summary, "llmStreamCall": None}},
    )
    assert derive_script(read_recording(path, "/")).entries == [
        {
            "kind": "chunks",
            "chunks": [
                {"type": "block-start", "index": 0, "blockType": "text"},
                {"type": "block-end", "index": 0, "block": block},
                {"type": "usage", "usage": {"inputTokens": 1, "outputTokens": 2}},
                FINISH,
            ],
        }
    ]


def test_b54d_overrides_replace_the_script_or_single_calls() -> None:
    old: list[Any] = [{"kind": "chunks", "chunks": [1]}, {"kind": "chunks", "chunks": [2]}]
    hang: Any = {"kind": "hang"}
    assert override_entries([hang], old) == [hang]
    patched = override_entries({"patches": [{"at": 2, "entry": hang}, {"at": 0, "entry": hang}]}, old)
    assert patched == [hang, old[1], hang] and len(old) == 2
    for bad in (
        {"patches": [{"at": 3, "entry": hang}]},
        {"patches": [{"at": 0, "entry": hang}, {"at": 0, "entry": hang}]},
        {"patches": [{"at": True, "entry": hang}]},
        {"patches": [{"at": 0, "entry": {"kind": "dance"}}]},
        [{"kind": "throw", "chunks": []}],
        {},
        3,
    ):
        with pytest.raises(ValueError):
            override_entries(bad, old)


def test_b54e_placeholders_take_the_last_match_and_its_group() -> None:
    messages: Any = [
        {"content": [{"type": "text", "text": "id=1"}, {"type": "tool-result", "content": [{"text": "id=22"}]}]}
    ]
    entry = {"chunks": [{"text": r"<{{fromRequest:id=(\d+)}}> {{fromRequest:id=\d+}}"}]}
    assert resolve_placeholders(entry, messages) == {"chunks": [{"text": "<22> id=22"}]}
    braces: Any = [{"text": "x{7}"}]
    assert resolve_placeholders(r"{{fromRequest:x\{(\d)}}}", braces) == "7"
    with pytest.raises(ReplayError, match="nothing in the request"):
        resolve_placeholders("{{fromRequest:absent}}", messages)
    untouched = {"a": "{{other}}"}
    assert resolve_placeholders(untouched, messages) == untouched


async def test_b54f_without_providers_every_call_is_answered_and_consumption_is_checked(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", *said("one"), *said("two", step=2))
    async with playing({"file": str(path)}) as (llm, played, _):
        llm.register_adapter(["p"], FakeAdapter())
        assert texts(await collect(llm.stream(request(session_id="s")))) == "one"
        with pytest.raises(ReplayError, match="1 recorded calls were not made"):
            played.assert_consumed()
        assert texts(await collect(llm.stream(request("nobody", session_id="s")))) == "two"
        played.assert_consumed()
        assert await failure_code(llm, request(session_id="s")) == ("error", "REPLAY")
        assert await failure_code(llm, request(session_id="stranger")) == ("error", "REPLAY")
        with pytest.raises(ReplayError, match="past the recording's end"):
            played.assert_consumed()


async def test_b54g_with_providers_it_serves_routes_with_their_models(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", *said("one"))
    model = {
        "id": "m",
        "contextWindow": 99,
        "defaultMaxTokens": 5,
        "reasoningEfforts": ["low", {"id": "high", "name": "High"}],
        "defaultReasoningEffort": "low",
    }
    provider = {"id": "p", "name": "P", "models": [model], "retryPolicy": {"maxRetries": 1}}
    async with playing({"file": str(path), "providers": [provider]}) as (llm, played, _):
        assert llm.list_providers() == [{"id": "p", "name": "P"}]
        assert (await llm.list_models("p"))[0]["context"] == {"contextWindow": 99}
        prepared = await llm.prepare_call(request().config)
        assert prepared.config.max_tokens == 5 and prepared.config.reasoning_effort == "low"
        assert texts(await collect(prepared.stream(request(config=prepared.config)))) == "one"
        played.assert_consumed()
        other = await llm.prepare_call(request(model="unlisted").config)
        assert other.context is None and other.adapter_defaults == frozenset()


async def test_b54h_throw_streams_then_fails_with_its_code(tmp_path: Path) -> None:
    override = tmp_path / "o.json"
    override.write_text(json.dumps([{"kind": "throw", "chunks": [HELLO[0]], "message": "no key", "code": "AUTH"}]))
    for providers in ([], [{"id": "p"}]):
        async with playing({"overrideFile": str(override), "providers": providers}) as (llm, played, _):
            chunks = await collect(llm.stream(request()))
            assert chunks[0] == HELLO[0]
            assert chunks[1]["reason"] == {"kind": "error", "failure": {"message": "no key", "code": "AUTH"}}
            played.assert_consumed()


async def test_b54i_hang_waits_for_the_cancel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("o.json").write_text(json.dumps([{"kind": "hang", "readyFile": "ready"}]))
    async with playing({"overrideFile": "o.json"}) as (llm, _, _root):
        controller = AbortController()
        task = asyncio.create_task(collect(llm.stream(request(signal=controller.signal))))
        while not Path("ready").exists():
            await asyncio.sleep(0.005)
        assert not task.done()
        controller.abort({"kind": "user"})
        chunks = await task
        assert texts(chunks) == "partial" and chunks[-1]["reason"]["kind"] == "aborted"


async def test_b54j_children_bind_in_order_of_creation_after_their_seed(tmp_path: Path) -> None:
    parent = write(tmp_path / "p.jsonl", *said("parent"), createdAt=5)
    late = write(tmp_path / "a.jsonl", *said("inherited"), *said("late"), createdAt=20, id="a", seedLength=2)
    tie = write(tmp_path / "c.jsonl", *said("tie"), createdAt=10, id="c")
    early = write(tmp_path / "b.jsonl", *said("early"), createdAt=10, id="b")
    children = os.pathsep.join(map(str, (late, tie, early)))
    env = {"DSH_SNAPSHOT_FILE": str(parent), "DSH_SNAPSHOT_CHILD_FILES": children}
    async with playing({}, **env) as (llm, played, _):
        order = [texts(await collect(llm.stream(request(session_id=f"live-{n}")))) for n in range(4)]
        assert order == ["parent", "early", "tie", "late"]
        played.assert_consumed()


async def test_b54k_an_absent_override_is_none_and_opts_out_of_the_environment(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", *said("one"))
    override = tmp_path / "o.json"
    override.write_text(json.dumps([{"kind": "chunks", "chunks": [FINISH]}]))
    env = {"DSH_SNAPSHOT_FILE": str(path), "DSH_SNAPSHOT_OVERRIDE": str(override)}
    async with playing({}, **env) as (llm, _, _root):
        assert await collect(llm.stream(request())) == [FINISH]
    async with playing({"overrideFile": str(tmp_path / "missing.json")}, **env) as (llm, _, _root):
        assert texts(await collect(llm.stream(request()))) == "one"
    with pytest.raises(ReplayError, match="nothing to play"):
        async with playing({}):
            pass


async def test_a_stub_log_takes_its_script_from_the_override(tmp_path: Path) -> None:
    stub = write(tmp_path / "s.jsonl")
    override = tmp_path / "o.json"
    override.write_text(json.dumps({"patches": [{"at": 0, "entry": {"kind": "chunks", "chunks": [FINISH]}}]}))
    async with playing({"file": str(stub), "overrideFile": str(override)}) as (llm, played, _):
        assert await collect(llm.stream(request())) == [FINISH]
        played.assert_consumed()


async def test_a_file_that_is_no_log_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"type":"turn/start"}\n')
    with pytest.raises(ValueError, match="no session header"):
        read_recording(path, "/")
    with pytest.raises(ConfigError):
        replay.Config.validate({"paceMs": -1})


RECORDED = [
    (case, name, facts)
    for case in load_cases()
    for name, facts in case.facts.items()
    if facts.get("modelCalls") and (case.path / name).is_file() and name.startswith("session")
]


@pytest.mark.skipif(not RECORDED, reason="the recorded corpus is not here")
def test_every_recorded_log_gives_as_many_calls_as_it_counts() -> None:
    checked = 0
    for case, name, facts in RECORDED:
        recording = read_recording(case.path / name, "/x")
        if recording.header.get("seedLength"):
            continue
        assert len(recording.events) == facts["events"], f"{case.id}/{name}"
        try:
            script = derive_script(recording)
        except ReplayError:
            continue  # recorded with a cut call; such cases bring an override or are never replayed
        assert len(script.entries) == facts["modelCalls"], f"{case.id}/{name}"
        checked += 1
    assert checked > 30
