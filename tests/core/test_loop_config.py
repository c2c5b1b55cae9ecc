"""Agents that a composition names: which session they get, what an edit does to them, and who else has a say."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dsh.cordis import ConfigError, Context, Fiber, HarnessError
from dsh.core import agent_loop, agents, configured_agents, session_store, system_prompt, tools
from dsh.core.agent import Agent
from dsh.core.agent_events import AgentConfigStartFailed
from dsh.core.agent_loop import AgentLoop
from dsh.core.agents import Agents
from dsh.core.seams import Settings
from dsh.core.session_store import SessionCreated, Sessions
from dsh.core.tools import ToolRun, Tools
from dsh.llm import service
from dsh.llm.retry_policy import RetryPolicy
from dsh.llm.service import Llm
from dsh.models import default_model, retry
from dsh.sessions import jsonl
from dsh.settings import memory
from dsh.testing import nothing_left
from tests.core.kit import (
    Entry,
    ScriptedAdapter,
    deaf,
    mount_companions,
    of_type,
    text_reply,
    tool_reply,
    types,
)
from tests.core.test_loop_errors_cancel import balanced, end
from tests.core.test_loop_turns import say, texts_of


@asynccontextmanager
async def no_task_left() -> AsyncIterator[None]:
    """Tasks only: two deployments may overlap, and threads of the outer one start when it has something to do."""
    before = asyncio.all_tasks()
    yield
    await asyncio.sleep(0)
    survivors = asyncio.all_tasks() - before
    assert not survivors, survivors


async def until(condition: Callable[[], Any]) -> None:
    """Let the loop run until `condition` holds; the limit only guards against a hang."""
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


def row(label: str = "main", **more: Any) -> dict[str, Any]:
    return {"id": label, "provider": "test", "model": "m", **more}


class Deployment:
    """The spine with its rows at hand, each of which a test may restart."""

    def __init__(self, root: Context, model: ScriptedAdapter) -> None:
        self.root = root
        self.model = model
        self.rows: dict[str, Fiber] = {}
        self.failed: list[AgentConfigStartFailed] = []
        root.on(AgentConfigStartFailed, self.failed.append)

    async def mount(self, name: str, plugin: Any, config: Any = None) -> Fiber:
        fiber = self.rows[name] = self.root.plugin(plugin, config)
        return await fiber

    @property
    def loop(self) -> AgentLoop:
        return self.root[AgentLoop]

    def session_id(self, label: str = "main") -> str:
        return dict(self.loop.configured.sessions())[label]

    def agent(self, label: str = "main") -> Agent:
        agent = self.loop.configured.agent(label)
        assert agent is not None
        return agent

    async def ready(self) -> None:
        await self.root.settle()
        await self.loop.configured.settled()

    async def edit(self, *rows: dict[str, Any], **more: Any) -> None:
        """Save the loop's row with these agents."""
        await self.rows["loop"].update({"agents": list(rows), **more})

    async def run(self, text: str, label: str = "main") -> None:
        agent = self.agent(label)
        agent.followup(say(text))
        await agent.when_idle()


@asynccontextmanager
async def deployment(
    *rows: dict[str, Any],
    script: Sequence[Entry] = (),
    store: Path | None = None,
    values: dict[str, Any] | None = None,
    settings: bool = False,
    dispose_timeout: float = 10.0,
    **config: Any,
) -> AsyncIterator[Deployment]:
    """The spine with configured agents, stored below `store`; `values` are what a launcher provides."""
    async with no_task_left(), Context(dispose_timeout=dispose_timeout) as root:
        d = Deployment(root, ScriptedAdapter(script))
        for name, value in {"configuredAgentSessions": {}, **(values or {})}.items():
            root.provide(name, value)
        for name, module in {
            "llm": service,
            "sessions": session_store,
            "prompt": system_prompt,
            "tools": tools,
            "agents": agents,
        }.items():
            await d.mount(name, module)
        await mount_companions(root)
        root[Llm].register_adapter(["test"], d.model)
        if settings:
            await d.mount("settings", memory)
        if store is not None:
            await d.mount("persistence", jsonl, {"root": str(store), "durability": "os"})
        await d.mount("loop", agent_loop, {"agents": list(rows), **config})
        await d.ready()
        yield d


# -- identities ---------------------------------------------------------------------------------------------------


async def test_b64_two_runs_without_ids_get_different_sessions_named_after_the_label(tmp_path: Path) -> None:
    seen = []
    for _ in range(2):
        async with deployment(row(), script=[text_reply("ok")], store=tmp_path) as d:
            await d.run("hi")
            assert d.agent().id == d.session_id()
            seen.append(d.session_id())
    assert seen[0] != seen[1] and all(one.startswith("main-session-") for one in seen)


async def test_b65_a_stable_session_is_created_once_and_resumed_with_its_history(tmp_path: Path) -> None:
    async with deployment(row(sessionId="stable"), script=[text_reply("first")], store=tmp_path) as d:
        await d.run("one")
        d.agent().inject(say("parked"))
    async with deployment(row(sessionId="stable"), script=[text_reply("second")], store=tmp_path) as d:
        assert d.agent().id == "stable"
        await d.run("two")
        assert texts_of(d.agent().session) == ["one", "first", "parked", "two", "second"]
        assert [data["turn"] for data in of_type(d.agent().session, "turn/start")] == [1, 2]
        assert [data["reason"] for data in of_type(d.agent().session, "request/header")] == ["initial", "resume"]


async def test_b65_without_persistence_a_stable_session_is_created_at_once() -> None:
    async with deployment(row(sessionId="stable"), script=[text_reply("ok")]) as d:
        await d.run("one")
        assert d.agent().id == "stable" and d.failed == []


async def test_b65_a_log_that_cannot_be_read_is_reported_loudly_and_not_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with deployment(row(sessionId="stable"), script=[text_reply("ok")], store=tmp_path) as d:
        await d.run("one")
    (log,) = tmp_path.rglob("*.jsonl*")
    log.write_bytes(b"\x00 no log at all")
    broken = log.read_bytes()
    with caplog.at_level(logging.WARNING):
        async with deployment(row(sessionId="stable"), row("other"), store=tmp_path) as d:
            assert d.root[Agents].get("stable") is None and d.agent("other").status == "idle"
            assert [one.session_id for one in d.failed] == ["stable"]
            assert [label for label, _ in d.loop.configured.failures()] == ["main"]
    assert 'agent "main": config-driven restore of "stable" failed: ' in caplog.text
    assert log.read_bytes() == broken


async def test_b65_a_reload_waits_for_an_old_agent_that_is_still_leaving(tmp_path: Path) -> None:
    script = [tool_reply(("stuck", "{}")), text_reply("second")]
    async with deployment(row(sessionId="stable"), script=script, store=tmp_path, dispose_timeout=0.3) as d:
        started, go = asyncio.Event(), asyncio.Event()

        @d.root[Tools].tool
        async def stuck() -> str:
            """Does not stop."""
            started.set()
            await deaf(go)
            return "late"

        old = d.agent()
        old.followup(say("one"))
        await started.wait()
        await d.rows["loop"].restart()  # gives the old agent up after dispose_timeout
        assert d.root[Agents].get("stable") is old and d.loop.configured.agent("main") is None
        go.set()
        await d.ready()
        new = d.agent()
        assert new is not old and new.id == "stable" and d.failed == []
        assert end(new.session) == {"kind": "aborted", "reason": {"kind": "disposed"}}
        await d.run("two")
        assert texts_of(new.session)[-2:] == ["two", "second"]


async def test_b66_a_session_that_is_missing_stops_its_own_agent_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        async with deployment(
            row("gone", resumeSessionId="missing"), row("here"), script=[text_reply("ok")], store=tmp_path
        ) as d:
            assert [one.session_id for one in d.failed] == ["missing"]
            await d.run("hi", "here")
    assert 'agent "gone": config-driven resume of "missing" failed: ' in caplog.text


async def test_b66_a_resume_without_persistence_waits_and_has_not_failed(tmp_path: Path) -> None:
    async with deployment(row(), script=[text_reply("first")], store=tmp_path) as d:
        await d.run("one")
        stored = d.session_id()
    async with deployment(row(resumeSessionId=stored), script=[text_reply("second")]) as d:
        assert d.loop.configured.failures() == [] and d.failed == []
        ((label, missing),) = d.loop.configured.waiting()
        assert label == "main" and "session persistence is not configured" in str(missing)
        assert d.root[Agents].get(stored) is None
        await d.mount("persistence", jsonl, {"root": str(tmp_path), "durability": "os"})
        await d.ready()
        assert d.loop.configured.waiting() == []
        await d.run("two")
        assert texts_of(d.agent().session)[-2:] == ["two", "second"]


async def test_b66_a_resumed_session_continues_and_an_empty_id_counts_as_none(tmp_path: Path) -> None:
    async with deployment(row(), script=[text_reply("first")], store=tmp_path) as d:
        await d.run("one")
        stored = d.session_id()
    rows = row(resumeSessionId=stored), row("fresh", resumeSessionId="")
    async with deployment(*rows, script=[text_reply("second")], store=tmp_path) as d:
        await d.run("two")
        assert texts_of(d.agent().session) == ["one", "first", "two", "second"]
        assert d.session_id("fresh").startswith("fresh-session-")


async def test_b66_a_resume_waits_for_persistence_to_come(tmp_path: Path) -> None:
    async with deployment(row(), script=[text_reply("first")], store=tmp_path) as d:
        await d.run("one")
        stored = d.session_id()
    async with deployment(script=[text_reply("second")]) as d:
        await d.edit(row(resumeSessionId=stored))
        await d.root.settle()
        assert d.loop.configured.agent("main") is None and d.failed == []
        await d.mount("persistence", jsonl, {"root": str(tmp_path), "durability": "os"})
        await d.ready()
        assert texts_of(d.agent().session) == ["one", "first"]


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        (
            [row(sessionId="x", resumeSessionId="y")],
            'agent "main": sessionId and resumeSessionId are mutually exclusive',
        ),
        (
            [row("one", sessionId="x"), row("two", resumeSessionId="x")],
            'agents "one" and "two" use duplicate exact session identity "x"',
        ),
        ([row("one"), row("one")], 'label "one" is used twice'),
        ([row(sessionId="")], "sessionId"),
        ([row(maxTokens=0)], "maxTokens"),
    ],
)
async def test_b67_contradicting_identities_are_refused_before_anything_starts(rows: Any, text: str) -> None:
    async with deployment() as d:
        created: list[Any] = []
        d.root.on(SessionCreated, created.append)
        await d.rows["loop"].dispose()
        with pytest.raises((HarnessError, ConfigError)) as caught:
            await d.mount("loop", agent_loop, {"agents": [row("first"), *rows]})
        assert text in str(caught.value) and created == [] and d.root[Agents].list() == []


async def test_b67_a_contradicting_edit_changes_nothing() -> None:
    async with deployment(row(), script=[text_reply("ok")]) as d:
        agent = d.agent()
        with pytest.raises(HarnessError, match="mutually exclusive"):
            await d.edit(row(sessionId="x", resumeSessionId="y"), maxParallelToolCalls=3)
        assert d.agent() is agent and d.loop.max_parallel_tool_calls == 10
        await d.run("hi")


async def test_b68_a_launcher_decides_the_identity_of_the_label_it_names(tmp_path: Path) -> None:
    async with deployment(row(), script=[text_reply("first")], store=tmp_path) as d:
        await d.run("one")
        stored = d.session_id()
    values = {"configuredAgentIdentities": {"main": {"id": stored, "resume": True}}}
    async with deployment(
        row(sessionId="configured"), row("other", sessionId="kept"), store=tmp_path, values=values
    ) as d:
        assert d.agent().id == stored and texts_of(d.agent().session) == ["one", "first"]
        assert d.agent("other").id == "kept" and d.root[Agents].get("configured") is None
    values = {"configuredAgentIdentities": {"main": {"id": "chosen", "resume": False}, "nobody": {"id": "x"}}}
    async with deployment(row(resumeSessionId="absent"), store=tmp_path, values=values) as d:
        assert d.agent().id == "chosen" and d.failed == []


# -- settings and edits -------------------------------------------------------------------------------------------


async def test_b69_the_cap_is_a_live_setting_over_the_row_and_agents_are_not() -> None:
    async with deployment(row(), settings=True, maxParallelToolCalls=4) as d:
        settings = d.root[Settings]
        assert d.loop.max_parallel_tool_calls == 4
        await settings.update("agent-loop", {"maxParallelToolCalls": 7})
        assert d.loop.max_parallel_tool_calls == 7
        for bad in (0, -3, 1.5, True):
            with pytest.raises(HarnessError):
                await settings.update("agent-loop", {"maxParallelToolCalls": bad})
        assert d.loop.max_parallel_tool_calls == 7
        assert set(settings.describe()["agent-loop"]["schema"]["properties"]) == {"maxParallelToolCalls"}
        await d.edit(row(), maxParallelToolCalls=5)  # the user's value stays on top of an edited row
        assert d.loop.max_parallel_tool_calls == 7
        await d.rows["settings"].dispose()
        assert d.loop.max_parallel_tool_calls == 5


async def test_b69_the_section_leaves_with_the_loop() -> None:
    async with deployment(settings=True) as d:
        assert "agent-loop" in d.root[Settings].describe()
        await d.rows["loop"].dispose()
        assert "agent-loop" not in d.root[Settings].describe()


async def test_b69_an_edit_adds_removes_and_changes_labels_and_leaves_the_others_alone() -> None:
    script: list[Entry] = [tool_reply(("wait", "{}")), text_reply("done")]
    async with deployment(row("stays"), row("goes"), row("changes"), script=script) as d:
        started, go = asyncio.Event(), asyncio.Event()

        @d.root[Tools].tool
        async def wait() -> str:
            """Wait."""
            started.set()
            await go.wait()
            return "waited"

        stays, goes, changes = d.agent("stays"), d.agent("goes"), d.agent("changes")
        stays.followup(say("go"))
        await started.wait()
        loop = d.loop
        await d.edit(row("stays"), row("changes", maxTokens=9), row("comes"))
        await d.ready()
        await until(lambda: d.root[Agents].get(goes.id) is None)
        assert d.loop is loop and d.agent("stays") is stays and stays.status == "running"
        assert d.agent("changes") is not changes and d.agent("changes").options.max_tokens == 9
        assert d.agent("comes").status == "idle"
        assert [label for label, _ in d.loop.configured.sessions()] == ["stays", "changes", "comes"]
        go.set()
        await stays.when_idle()
        assert texts_of(stays.session) == ["go", "waited", "done"]


async def test_b69_a_changed_label_keeps_its_conversation(tmp_path: Path) -> None:
    async with deployment(row(), script=[text_reply("one"), text_reply("two")], store=tmp_path) as d:
        await d.run("a")
        before = d.agent()
        await d.edit(row(maxTokens=9))
        await d.ready()
        assert d.agent() is not before and d.agent().id == before.id
        await d.run("b")
        assert texts_of(d.agent().session) == ["a", "one", "b", "two"]
        await d.edit()
        await d.edit(row())  # gone and back: a new conversation
        await d.ready()
        assert d.session_id() != before.id


async def test_b69_a_reloaded_row_brings_its_labels_back_with_their_sessions(tmp_path: Path) -> None:
    async with deployment(row(), row("named", sessionId="n"), script=[text_reply("one")] * 3, store=tmp_path) as d:
        await d.run("a")
        await d.run("b", "named")
        ids = d.session_id(), d.session_id("named")
        await d.rows["loop"].restart()
        await d.ready()
        assert (d.session_id(), d.session_id("named")) == ids
        await d.run("c")
        assert texts_of(d.agent().session) == ["a", "one", "c", "one"]
        assert texts_of(d.agent("named").session) == ["b", "one"]
        assert d.failed == []


async def test_b69_an_agent_that_never_spoke_comes_back_under_its_id(tmp_path: Path) -> None:
    async with deployment(row(), store=tmp_path) as d:
        before = d.session_id()
        await d.rows["loop"].restart()
        await d.ready()
        assert d.session_id() == before and d.agent().id == before and d.failed == []


async def test_b69_starts_under_way_end_silently_when_the_loop_leaves(tmp_path: Path) -> None:
    async with deployment() as d:
        await d.edit(row(resumeSessionId="somewhere"))
        await d.rows["loop"].dispose()
        assert d.failed == [] and d.root[Agents].list() == []


async def test_a_launcher_may_leave_the_configured_agents_out() -> None:
    async with deployment(row(), values={"startConfiguredAgents": False}) as d:
        assert d.root[Agents].list() == []
        await d.edit(row(), row("more"))
        assert d.root[Agents].list() == []


# -- draining -----------------------------------------------------------------------------------------------------


async def test_a_removed_agent_ends_at_its_next_step_boundary_and_the_edit_does_not_wait() -> None:
    script: list[Entry] = [tool_reply(("wait", "{}")), text_reply("never")]
    async with deployment(row(), script=script) as d:
        started, go = asyncio.Event(), asyncio.Event()

        @d.root[Tools].tool
        async def wait(run: ToolRun) -> str:
            """Wait."""
            started.set()
            await go.wait()
            return f"aborted: {run.signal.aborted}"

        agent = d.agent()
        agent.followup(say("go"))
        await started.wait()
        agent.followup(say("queued"))
        await d.edit()
        assert agent.status == "running" and d.root[Agents].get(agent.id) is agent
        agent.steer(say("as well"))  # still taken, as pending input
        go.set()
        await until(lambda: d.root[Agents].get(agent.id) is None)
        assert texts_of(agent.session) == ["go", "aborted: False"]
        assert end(agent.session) == {"kind": "aborted", "reason": {"kind": "disposed"}} and balanced(agent.session)
        assert len(d.model.requests) == 1 and types(agent.session).count("turn/start") == 1
        assert len(agent.inbox.next_turn) == 1 and len(agent.inbox.next_step) == 1


async def test_a_removed_agent_that_reaches_no_boundary_is_ended_after_a_while(monkeypatch: Any) -> None:
    monkeypatch.setattr(configured_agents, "DRAIN_SECONDS", 0.05)
    async with deployment(row(), script=["hang"]) as d:
        agent = d.agent()
        agent.followup(say("go"))
        await d.model.hanging.wait()
        await d.edit()
        await until(lambda: d.root[Agents].get(agent.id) is None)
        assert of_type(agent.session, "assistant/message")[0]["interrupted"]
        assert end(agent.session) == {"kind": "aborted", "reason": {"kind": "disposed"}}


async def test_a_turn_that_ends_while_its_agent_drains_ends_as_it_would_have() -> None:
    go = asyncio.Event()

    async def slowly(request: Any) -> Any:
        await go.wait()
        return text_reply("the end")

    async with deployment(row(), script=[slowly]) as d:
        agent = d.agent()
        agent.followup(say("go"))
        await until(lambda: d.model.requests)
        agent.followup(say("queued"))
        await d.edit()
        go.set()
        await until(lambda: d.root[Agents].get(agent.id) is None)
        assert texts_of(agent.session) == ["go", "the end"] and end(agent.session) == {"kind": "completed"}
        assert types(agent.session).count("turn/start") == 1 and len(agent.inbox.next_turn) == 1


async def test_edits_in_quick_succession_overtake_starts_that_are_still_under_way(tmp_path: Path) -> None:
    async with deployment(row(sessionId="s"), script=[text_reply("ok")], store=tmp_path) as d:
        await d.run("hi")
        for number in range(1, 40):
            await d.edit(row(sessionId="s", maxTokens=number))
            for _ in range(number % 20):  # cut the start off at another place each time
                await asyncio.sleep(0.0005)
        await d.ready()
        assert d.agent().options.max_tokens == 39 and d.failed == []
        assert texts_of(d.agent().session) == ["hi", "ok"]


async def test_a_changed_agent_without_persistence_starts_once_the_old_one_has_left() -> None:
    async with deployment(row(sessionId="s"), script=["hang", text_reply("fresh")]) as d:
        old = d.agent()
        old.followup(say("go"))
        await d.model.hanging.wait()
        await d.edit(row(sessionId="s", maxTokens=5))
        assert d.loop.configured.agent("main") is None and d.root[Agents].get("s") is old
        old.cancel({"kind": "user"})
        await d.ready()
        assert d.agent() is not old and d.failed == []
        await d.run("hello")
        assert texts_of(d.agent().session) == ["hello", "fresh"]


async def test_a_changed_agent_with_a_stable_session_returns_after_the_old_one_drained(tmp_path: Path) -> None:
    script: list[Entry] = [tool_reply(("wait", "{}")), text_reply("after")]
    async with deployment(row(sessionId="s"), script=script, store=tmp_path) as d:
        started, go = asyncio.Event(), asyncio.Event()

        @d.root[Tools].tool
        async def wait() -> str:
            """Wait."""
            started.set()
            await go.wait()
            return "waited"

        old = d.agent()
        old.followup(say("go"))
        await started.wait()
        old.followup(say("queued"))
        await d.edit(row(sessionId="s", maxTokens=5))
        await d.edit(row(sessionId="s", maxTokens=6))  # once more, while the first change is still waiting
        assert d.root[Agents].get("s") is old and old.status == "running"
        go.set()
        await d.ready()
        new = d.agent()
        assert new is not old and new.options.max_tokens == 6 and d.failed == []
        assert [message["content"][0]["text"] for message in new.inbox.next_turn] == ["queued"]
        new.steer(say("wake"))
        await new.when_idle()
        assert texts_of(new.session) == ["go", "waited", "wake", "queued", "after"]


# -- rows that the loop stands on ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tools", "prompt", "llm", "agents", "sessions"])
async def test_a_restart_of_an_injected_row_ends_the_turn_and_the_agents_come_back(name: str, tmp_path: Path) -> None:
    rows = row(), row("named", sessionId="n")
    values = {"loader": object()}  # so that rows may come in any order
    async with deployment(*rows, script=["hang", "hang"], store=tmp_path, values=values) as d:
        old = d.agent(), d.agent("named")
        for agent in old:
            d.model.hanging.clear()
            agent.followup(say("go"))
            await d.model.hanging.wait()
            agent.followup(say("queued"))
        await d.rows[name].restart()
        await d.ready()
        new = d.agent(), d.agent("named")
        assert [agent.id for agent in new] == [agent.id for agent in old] and d.failed == []
        for before, after in zip(old, new, strict=True):
            assert after is not before and after.session is not before.session
            assert end(after.session) == {"kind": "aborted", "reason": {"kind": "disposed"}}
            assert [message["content"][0]["text"] for message in after.inbox.next_turn] == ["queued"]
        if name == "llm":
            d.root[Llm].register_adapter(["test"], d.model)
        d.model.script = [text_reply("better now")]
        new[0].steer(say("wake"))
        await new[0].when_idle()
        assert texts_of(new[0].session) == ["go", "partial", "wake", "queued", "better now"]


async def test_a_stuck_agent_holds_the_end_up_only_once(tmp_path: Path) -> None:
    script = [tool_reply(("stuck", "{}"))]
    async with deployment(row(), script=script, store=tmp_path, dispose_timeout=0.2) as d:
        started, go = asyncio.Event(), asyncio.Event()

        @d.root[Tools].tool
        async def stuck() -> str:
            """Does not stop."""
            started.set()
            await deaf(go)
            return "late"

        agent = d.agent()
        agent.followup(say("one"))
        await started.wait()
        loop = d.rows["loop"]
        fibers = [loop, *loop.children()]
        await loop.dispose()
        assert sum(fiber.leaks for fiber in fibers) == 1 and agent.status == "running"
        go.set()
        await agent.when_idle()


@pytest.mark.parametrize("loop_first", [True, False])
async def test_agents_and_persistence_that_leave_together_lose_no_event(loop_first: bool, tmp_path: Path) -> None:
    model = ScriptedAdapter(["hang-slow"])
    config = {"agents": [row(sessionId="s")]}

    def composition(ctx: Context) -> None:
        for module in (service, session_store, system_prompt, tools, agents):
            ctx.plugin(module)
        rows = [(agent_loop, config), (jsonl, {"root": str(tmp_path), "durability": "os"})]
        for module, given in rows if loop_first else reversed(rows):
            ctx.plugin(module, given)

    async with nothing_left(), Context() as root:
        root.provide("loader", object())
        fiber = await root.plugin(composition)
        await root.settle()
        root[Llm].register_adapter(["test"], model)
        await root[AgentLoop].configured.settled()
        agent = root[Agents].list()[0]
        agent.followup(say("go"))
        await model.hanging.wait()
        await fiber.dispose()  # its rows lie side by side and leave at the same time
    async with deployment(row(sessionId="s"), store=tmp_path) as d:
        assert types(d.agent().session) == [*types(agent.session), "session/end-seed"]
        assert end(d.agent().session) == {"kind": "aborted", "reason": {"kind": "disposed"}}
        assert texts_of(d.agent().session) == ["go", "partial"]


async def test_an_adapter_that_unloads_mid_stream_is_followed_by_its_successor_in_the_same_step() -> None:
    policy = {"backoff": {"initialDelayMs": 30, "maxDelayMs": 30}}

    class Patient(ScriptedAdapter):
        def provider_retry_policy(self, provider: str) -> RetryPolicy:
            return RetryPolicy.validate(policy)

    async with deployment(row(provider="own")) as d:
        await d.mount("retry", retry)
        first, second = Patient(["hang"]), Patient([text_reply("from the new one")])

        def plugin(model: ScriptedAdapter) -> Any:
            def apply(ctx: Context, config: Any, llm: Llm) -> None:
                llm.register_adapter(["own"], model)

            return apply

        await d.mount("adapter", plugin(first))
        agent = d.agent()
        agent.followup(say("go"))
        await first.hanging.wait()
        await d.rows["adapter"].dispose()
        await d.mount("adapter", plugin(second))
        await agent.when_idle()
        assert end(agent.session) == {"kind": "completed"}
        assert texts_of(agent.session) == ["go", "from the new one"]
        assert types(agent.session).count("step/start") == 1
        (failure,) = [data["failure"] for data in of_type(agent.session, "llm/retry")]
        assert failure["code"] == "TRANSPORT" and "unloaded while streaming" in failure["message"]
        reply = next(e for e in agent.session.events if e.type == "assistant/message")
        chunks = [e.seq for e in agent.session.events if e.type == "assistant/chunk"]
        assert list(reply.source_event_seqs or ()) == chunks[-len(text_reply("from the new one")) :]


async def test_the_first_usable_candidate_answers_and_is_chosen_anew_at_each_turn() -> None:
    class Keyed(ScriptedAdapter):
        reason: str | None = "no key"

        def usable(self, provider: str) -> str | None:
            return self.reason

    async with deployment({"id": "main"}, script=[text_reply("local"), text_reply("local")]) as d:
        keyed = Keyed([text_reply("remote")])
        d.root[Llm].register_adapter(["keyed"], keyed)
        candidates = [{"provider": name, "model": "m"} for name in ("absent", "keyed", "test")]
        await d.mount("default", default_model, {"candidates": candidates})
        await d.run("one")
        keyed.reason = None
        await d.run("two")
        assert texts_of(d.agent().session) == ["one", "local", "two", "remote"]


# -- leases -------------------------------------------------------------------------------------------------------


async def test_a_named_session_is_leased_before_its_agent_is_published_and_fresh_ones_stay_lazy(tmp_path: Path) -> None:
    async with deployment(row(sessionId="named"), row("lazy"), store=tmp_path) as d:
        assert d.agent().id == "named"
        lazy = d.session_id("lazy")
        async with deployment(row(sessionId="named"), store=tmp_path) as rival:
            assert rival.root[Agents].get("named") is None and rival.root[Sessions].list() == []
            assert [one.session_id for one in rival.failed] == ["named"]
        assert not [path for path in tmp_path.rglob("*") if lazy in path.name]
    async with deployment(row(sessionId="named"), store=tmp_path) as d:
        assert d.agent().id == "named" and d.failed == []


async def test_a_creation_that_comes_to_nothing_gives_its_lease_back(tmp_path: Path) -> None:
    from dsh.core.agent import CreateAgentOptions

    async with deployment(store=tmp_path) as d, deployment(store=tmp_path) as other:

        async def setup(ctx: Context) -> None:
            raise RuntimeError("no")

        options = CreateAgentOptions("named", {"cwd": "/tmp"}, setup=setup, reserve=True)
        with pytest.raises(RuntimeError, match="no"):
            await d.root[Agents].create(options)
        options.setup = None
        handle = await other.root[Agents].create(options)
        assert handle.agent.id == "named"
