"""Edits of the composition: seen once each, refused whole, and taken over in the middle of a turn by one rule.

The rule: what runs finishes on what it started with, the next step uses the new, the old one is released.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dsh.core.agent_loop import AgentLoop
from dsh.loader.events import TreeRefreshed
from dsh.loader.hmr import HmrConfigUpdateFailed, HmrReload
from dsh.loader.problems import LoadError
from dsh.loader.resolve import LOCAL_PACKAGE
from dsh.models.mock_server import MockLlmServer
from tests.faults.kit import PATIENCE, SPINE, Life, living, strict

HMR = "- {id: hmr, name: hmr, config: {debounce: 20}}\n"


@pytest.fixture(autouse=True)
def fresh_plugins() -> Iterator[None]:
    """Plugins loaded by path are forgotten, as in a new process."""
    yield
    for name in [name for name in sys.modules if name.startswith(f"{LOCAL_PACKAGE}.")]:
        del sys.modules[name]


async def until(condition: Any) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.005)


# --- 30: saves


PLAIN = "def apply(ctx, config):\n    pass\n"


async def test_fault30_each_save_is_taken_once_and_a_save_that_changes_nothing_not_at_all(tmp_path: Path) -> None:
    row = "- {id: plain, name: ./plain.py, config: {n: %d}}\n"
    path, draft = tmp_path / "cordis.yml", tmp_path / "draft"
    async with MockLlmServer([strict("success")]) as server:
        async with living(tmp_path, server, HMR + row % 0, {"plain.py": PLAIN}) as life:
            seen: list[Any] = []
            failed: list[Any] = []
            life.root.on(TreeRefreshed, seen.append)
            life.root.on(HmrConfigUpdateFailed, lambda event: failed.append(event))

            def save(n: int) -> None:
                draft.write_text(SPINE + HMR + row % n)
                os.replace(draft, path)

            for n in range(1, 6):
                save(n)
                await until(lambda n=n: len(seen) == n)
            os.utime(path)
            save(5)
            path.unlink()
            await until(lambda: len(failed) == 1)
            assert life.app.loader.resolve("plain").fiber.is_active
            save(6)
            await until(lambda: len(seen) == 6)
            target = tmp_path / "other.yml"
            target.write_text(SPINE + HMR + row % 7)
            draft.symlink_to(target)
            os.replace(draft, path)
            await until(lambda: len(seen) == 7)
            assert [event.rows for event in seen] == [("plain",)] * 7 and len(failed) == 1
            assert await life.prompt("still there?") == {"kind": "completed"}


# --- 35: edits in the middle of a turn


GATED = """\
from dsh.core.tools import Tools

def apply(ctx, config, tools: Tools):
    gate = ctx.root["gate"]
    word = (config or {}).get("word", "one")

    class Held:
        pass
    held = Held()
    gate.instances.append(held)

    @tools.tool
    async def wait() -> str:
        "Wait until the gate opens."
        gate.entered.set()
        await gate.open.wait()
        return f"{word} {held is not None}"
"""
GATED_ROW = "- {id: gated, name: ./gated.py, config: {word: one}}\n"
CALL = {"toolCalls": [{"name": "wait", "arguments": {}, "id": "c0"}]}
CALL_AGAIN = {"toolCalls": [{"name": "wait", "arguments": {}, "id": "c1"}]}


class Gate:
    """Where the tool waits; `instances` are weakly held objects of the plugin instances that were made."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.open = asyncio.Event()
        self.instances = Weakly()


class Weakly:
    def __init__(self) -> None:
        self.refs: list[weakref.ref[Any]] = []

    def append(self, item: object) -> None:
        self.refs.append(weakref.ref(item))

    def alive(self) -> list[bool]:
        gc.collect()
        return [ref() is not None for ref in self.refs]


async def in_the_call(life: Life, gate: Gate) -> None:
    """Start a turn and return when its tool call is running."""
    life.say("go")
    async with asyncio.timeout(PATIENCE):
        await gate.entered.wait()


def outputs(life: Life) -> list[str]:
    return [message["content"] for message in life.messages if message["role"] == "tool"]


async def test_fault35_a_tool_row_that_changes_during_its_call(tmp_path: Path) -> None:
    gate = Gate()
    async with MockLlmServer([strict(each) for each in (CALL, CALL_AGAIN, "success", "success")]) as server:
        async with living(tmp_path, server, GATED_ROW, {"gated.py": GATED}, values={"gate": gate}) as life:
            await in_the_call(life, gate)
            await life.edit(SPINE + GATED_ROW.replace("one", "two"))
            gate.open.set()
            assert await life.quiet() == {"kind": "completed"}
            assert outputs(life) == ["one True", "two True"]
            assert await life.prompt("next") == {"kind": "completed"}
            assert gate.instances.alive() == [False, True]


async def test_fault35_plugin_code_that_changes_during_its_call(tmp_path: Path) -> None:
    gate = Gate()
    async with MockLlmServer([strict(each) for each in (CALL, CALL_AGAIN, "success", "success")]) as server:
        async with living(tmp_path, server, HMR + GATED_ROW, {"gated.py": GATED}, values={"gate": gate}) as life:
            reloads: list[Any] = []
            life.root.on(HmrReload, reloads.append)
            await in_the_call(life, gate)
            draft = tmp_path / "draft"
            draft.write_text(GATED.replace('f"{word} ', 'f"new {word} '))
            os.replace(draft, tmp_path / "gated.py")
            await until(lambda: reloads)
            gate.open.set()
            assert await life.quiet() == {"kind": "completed"}
            assert outputs(life) == ["one True", "new one True"]
            assert await life.prompt("next") == {"kind": "completed"}
            assert gate.instances.alive() == [False, True]


async def test_fault35_a_tool_row_that_is_removed_during_its_call(tmp_path: Path) -> None:
    gate = Gate()
    async with MockLlmServer([strict(each) for each in (CALL, CALL_AGAIN, "success", "success")]) as server:
        async with living(tmp_path, server, GATED_ROW, {"gated.py": GATED}, values={"gate": gate}) as life:
            await in_the_call(life, gate)
            await life.edit(SPINE)
            gate.open.set()
            assert await life.quiet() == {"kind": "completed"}
            first, second = outputs(life)
            assert first == "one True" and "wait" in second and first != second
            assert await life.prompt("next") == {"kind": "completed"}
            assert "tools" not in life.server.bodies[-1]
            assert gate.instances.alive() == [False]


async def test_fault35_a_model_row_that_changes_during_a_call(tmp_path: Path) -> None:
    gate = Gate()
    async with MockLlmServer([strict(CALL)]) as server, MockLlmServer([strict("success")] * 2) as other:
        async with living(tmp_path, server, GATED_ROW, {"gated.py": GATED}, values={"gate": gate}) as life:
            await in_the_call(life, gate)
            await life.edit(SPINE.replace("!!js env.MODEL_URL", other.url) + GATED_ROW)
            gate.open.set()
            assert await life.quiet() == {"kind": "completed"}
            assert len(server.requests) == 1 and len(other.requests) == 1
            assert [m["role"] for m in other.bodies[0]["messages"]][-3:] == ["user", "assistant", "tool"]
            assert await life.prompt("next") == {"kind": "completed"}
            assert len(other.requests) == 2


async def test_fault35_a_model_row_that_is_removed_during_a_call(tmp_path: Path) -> None:
    gate = Gate()
    model = SPINE[SPINE.index("- id: llm-deepseek") : SPINE.index("- {id: llm-retry")]
    async with MockLlmServer([strict(CALL), strict("success")]) as server:
        async with living(tmp_path, server, GATED_ROW, {"gated.py": GATED}, values={"gate": gate}) as life:
            await in_the_call(life, gate)
            await life.edit(SPINE.replace(model, "") + GATED_ROW)
            gate.open.set()
            reason = await life.quiet()
            assert reason["kind"] == "error" and "deepseek-official" in reason["error"]["message"]
            assert [len(found) for found in life.results().values()] == [1]
            await life.edit(SPINE + GATED_ROW)
            assert await life.prompt("next") == {"kind": "completed"}
            assert [m["role"] for m in life.messages] == ["user", "assistant", "tool", "user"]


async def test_fault35_an_agent_row_that_is_removed_during_a_call_and_comes_back(tmp_path: Path) -> None:
    gate = Gate()
    row = "[{id: main, sessionId: s, provider: deepseek-official, model: deepseek-v4-flash}]"
    async with MockLlmServer([strict(CALL), strict("success")]) as server:
        async with living(tmp_path, server, GATED_ROW, {"gated.py": GATED}, values={"gate": gate}) as life:
            agent = life.agent
            await in_the_call(life, gate)
            await life.edit(SPINE.replace(row, "[]") + GATED_ROW)
            assert life.root[AgentLoop].configured.agent("main") is None
            gate.open.set()
            await life.edit(SPINE + GATED_ROW)
            async with asyncio.timeout(PATIENCE):
                await life.root[AgentLoop].configured.settled()
            assert life.agent is not agent
            (end,) = life.of_type("turn/end")
            assert end["reason"] == {"kind": "aborted", "reason": {"kind": "disposed"}}
            ((result,),) = life.results().values()
            assert not result["message"]["content"][0].get("isError")
            assert await life.prompt("next") == {"kind": "completed"}
            assert [m["role"] for m in life.messages] == ["user", "assistant", "tool", "user"]
            gone = weakref.ref(agent)
            del agent
            await until(lambda: gc.collect() is not None and gone() is None)


async def test_fault31_a_refused_edit_during_a_call_changes_nothing(tmp_path: Path) -> None:
    gate = Gate()
    bad = (
        "- {id: broken",
        SPINE + GATED_ROW.replace("./gated.py", "./no_such.py"),
        SPINE.replace("maxRetries: 1", "maxRetries: many") + GATED_ROW,
    )
    async with MockLlmServer([strict(each) for each in (CALL, "success", "success")]) as server:
        async with living(tmp_path, server, GATED_ROW, {"gated.py": GATED}, values={"gate": gate}) as life:
            await in_the_call(life, gate)
            for text in bad:
                with pytest.raises(LoadError) as caught:
                    await life.edit(text)
                assert len(caught.value.problems) == 1 and caught.value.line is not None
            gate.open.set()
            assert await life.quiet() == {"kind": "completed"}
            assert outputs(life) == ["one True"]
            await life.edit(SPINE + GATED_ROW.replace("one", "two"))
            assert await life.prompt("next") == {"kind": "completed"}
