"""How agents come and go: creation as one transaction, teardown as one quiet point, and on whose behalf code runs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dsh.cordis import AbortController, AbortError, Context, CordisError, HarnessError
from dsh.core import agents as agents_row
from dsh.core import driver
from dsh.core.agent import Agent, AgentOptions, CreateAgentOptions, ResumeAgentOptions
from dsh.core.agent_events import AgentCreated, AgentDisposed, AgentPreStep, AgentSessionStart, AgentStatus
from dsh.core.agents import Agents
from dsh.core.seams import SessionPersistence
from dsh.core.session_store import SessionCreated, SessionDisposed, SessionPreparation
from dsh.core.tools import ToolRun
from tests.core.kit import Spine, deaf, of_type, spine, text_reply, tool_reply, types
from tests.core.test_loop_errors_cancel import balanced, end
from tests.core.test_loop_turns import add_tool, say, texts_of

ROUTE = AgentOptions("test", "m")


def options(session_id: str = "a", **more: Any) -> CreateAgentOptions:
    return CreateAgentOptions(session_id, {"cwd": "/tmp"}, agent_options=ROUTE, **more)


def record(s: Spine) -> list[str]:
    """What is announced about agents and sessions, in order."""
    seen: list[str] = []
    s.root.on(SessionCreated, lambda e: seen.append(f"session/created {e.session.id}"), global_=True)
    s.root.on(AgentCreated, lambda e: seen.append(f"agent/created {e.agent.id}"), global_=True)
    s.root.on(AgentSessionStart, lambda e: seen.append(f"agent/session-start {e.source}"), global_=True)
    s.root.on(AgentDisposed, lambda e: seen.append(f"agent/disposed {e.agent.id}"), global_=True)
    s.root.on(SessionDisposed, lambda e: seen.append(f"session/disposed {e.session.id}"), global_=True)
    return seen


async def owner_of(s: Spine) -> Context:
    """The context of a plugin that needs the registry alone."""
    kept: list[Context] = []
    await s.root.inject([Agents], lambda ctx: kept.append(ctx))
    return kept[0]


class Gate:
    """A setup that waits: `entered` when it runs, `go` lets it end."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.go = asyncio.Event()

    async def __call__(self, ctx: Context) -> None:
        self.entered.set()
        await self.go.wait()


def nothing_there(s: Spine, session_id: str = "a") -> bool:
    return s.agents.get(session_id) is None and s.sessions.get(session_id) is None and s.agents.list() == []


# -- creation -----------------------------------------------------------------------------------------------------


async def test_b54_nothing_is_visible_before_setup_is_done_then_all_of_it_in_order() -> None:
    async with spine() as s:
        seen = record(s)
        found: list[bool] = []
        s.root.on(SessionCreated, lambda e: found.append(s.agents.get("a") is not None and e.session.id == "a"))
        gate = Gate()
        creating = asyncio.create_task(s.agents.create(options(setup=gate)))
        await gate.entered.wait()
        assert nothing_there(s) and seen == []
        gate.go.set()
        handle = await creating
        assert seen == ["session/created a", "agent/created a", "agent/session-start startup"]
        assert found == [True]  # listeners of the first announcement already find both
        assert s.agents.get("a") is handle.agent and s.sessions.get("a") is handle.agent.session


async def test_b54_what_setup_registered_is_the_agents_own_and_a_commit_runs_before_publication() -> None:
    async with spine() as s:
        at_commit: list[bool] = []

        class Later:
            def commit(self) -> None:
                at_commit.append(nothing_there(s))

        def setup(ctx: Context) -> Later:
            ctx["systemPrompt"].section("own", 1, "Mine.")
            return Later()

        handle = await s.agents.create(options(setup=setup))
        assert at_commit == [True]
        assert handle.agent.ctx.agent is handle.agent and s.root.agent is None


async def test_b55_a_raising_setup_leaves_nothing_and_keeps_its_cause() -> None:
    async with spine([text_reply("ok")]) as s:
        seen = record(s)

        async def setup(ctx: Context) -> None:
            try:
                raise KeyError("why")
            except KeyError as error:
                raise RuntimeError("setup broke") from error

        with pytest.raises(RuntimeError, match="setup broke") as caught:
            await s.agents.create(options(setup=setup))
        assert isinstance(caught.value.__cause__, KeyError)
        assert nothing_there(s) and seen == [] and s.loop.lifecycles == set()
        agent = (await s.agents.create(options())).agent
        agent.followup(say("hi"))
        await agent.when_idle()
        assert texts_of(agent.session) == ["hi", "ok"]


async def test_b55_an_aborted_signal_stops_creation_with_its_reason() -> None:
    async with spine() as s:
        for reason in (ValueError("enough"), {"kind": "user"}):
            gate, abort = Gate(), AbortController()
            creating = asyncio.create_task(s.agents.create(options(setup=gate, signal=abort.signal)))
            await gate.entered.wait()
            abort.abort(reason)
            with pytest.raises(Exception) as caught:
                await creating
            if isinstance(reason, Exception):
                assert caught.value is reason
            else:
                assert isinstance(caught.value, AbortError) and caught.value.reason == reason
                assert str(caught.value) == 'agent "a" creation aborted'
            assert nothing_there(s)
        # aborted before it began: the setup is not even asked
        gate, abort = Gate(), AbortController()
        abort.abort(ValueError("never"))
        with pytest.raises(ValueError, match="never"):
            await s.agents.create(options(setup=gate, signal=abort.signal))
        assert not gate.entered.is_set() and nothing_there(s)


async def test_b55_the_signal_matters_during_creation_only() -> None:
    async with spine() as s:
        abort = AbortController()
        handle = await s.agents.create(options(signal=abort.signal))
        abort.abort("too late")
        assert s.agents.get("a") is handle.agent


async def test_b55_an_owner_that_unloads_aborts_setup() -> None:
    async with spine() as s:
        owner, gate = await owner_of(s), Gate()
        creating = asyncio.create_task(owner["agents"].create(options(setup=gate)))
        await gate.entered.wait()
        await owner.fiber.dispose()
        with pytest.raises(HarnessError, match='agent "a" setup aborted: owner disposed during setup'):
            await creating
        assert nothing_there(s)
        await s.agents.create(options())


async def test_b55_a_loop_that_unloads_aborts_setup() -> None:
    async with spine() as s:
        gate = Gate()
        creating = asyncio.create_task(s.agents.create(options(setup=gate)))
        await gate.entered.wait()
        await s.loop.ctx.fiber.restart()
        with pytest.raises(HarnessError, match="agent loop is not active"):
            await creating
        assert nothing_there(s)
        await s.agents.create(options())


async def test_b55_bad_seeds_and_metadata_leave_no_trace() -> None:
    async with spine() as s:
        for bad in ({"meta": {"cwd": "relative"}}, {"seed": ["no event"]}):
            with pytest.raises(HarnessError):
                await s.agents.create(CreateAgentOptions("a", agent_options=ROUTE, **bad))  # type: ignore[arg-type]
        with pytest.raises(HarnessError, match="agent maxTokens must be a positive safe integer"):
            AgentOptions("test", "m", max_tokens=0)
        assert nothing_there(s) and s.loop.lifecycles == set()


async def test_b55_without_a_factory_the_caller_is_told_which_row_is_missing() -> None:
    async with Context() as root:
        await root.plugin(agents_row)
        with pytest.raises(HarnessError, match=r"no agent factory registered \(load an agent-loop plugin\)"):
            await root[Agents].create(options())


@pytest.mark.parametrize("event", [SessionCreated, AgentCreated])
async def test_b56_a_refused_announcement_is_followed_by_its_counterpart(event: Any) -> None:
    async with spine() as s:
        seen = record(s)

        def refuse(_: Any) -> None:
            raise RuntimeError("not this one")

        undo = s.root.on(event, refuse)
        with pytest.raises(RuntimeError, match="not this one"):
            await s.agents.create(options())
        expected = ["session/created a", "session/disposed a"]
        if event is AgentCreated:
            expected[1:1] = ["agent/created a", "agent/disposed a"]
        assert seen == expected and nothing_there(s)
        undo()
        await s.agents.create(options())
        with pytest.raises(HarnessError, match="already exists"):
            s.agent("a")


@pytest.mark.parametrize("event", [SessionCreated, AgentCreated, AgentSessionStart])
async def test_b57_a_listener_that_disposes_meanwhile_sees_entries_live_and_creation_raises(event: Any) -> None:
    async with spine() as s:
        owner = await owner_of(s)
        seen = record(s)
        live: list[bool] = []

        def leave(_: Any) -> None:
            owner.fiber.dispose()

        s.root.on(event, leave)
        s.root.on(event, lambda _: live.append(s.agents.get("a") is not None and s.sessions.get("a") is not None))
        with pytest.raises(HarnessError, match="owner disposed during setup"):
            await owner["agents"].create(options())
        assert live == [True] and nothing_there(s)
        created = [one for one in seen if "created" in one]
        disposed = [one for one in seen if "disposed" in one]
        assert [one.replace("created", "disposed") for one in reversed(created)] == disposed


# -- teardown -----------------------------------------------------------------------------------------------------


async def test_b58_the_agent_leaves_before_its_session_and_after_its_registrations() -> None:
    async with spine() as s:
        handle = await s.agents.create(options())
        agent = handle.agent

        async def own() -> str:
            """Own."""
            return "x"

        agent.ctx["tools"].tool(own)
        assert s.tools.get("own", agent) is not None
        at_disposal: list[Any] = []
        s.root.on(
            AgentDisposed,
            lambda e: at_disposal.append((s.sessions.get("a") is agent.session, s.tools.get("own", agent))),
        )
        seen = record(s)
        await asyncio.gather(handle.dispose(), handle.dispose())
        await handle.dispose()
        assert at_disposal == [(True, None)]
        assert seen == ["agent/disposed a", "session/disposed a"] and nothing_there(s)


async def test_b58_racing_disposals_wait_for_the_same_quiet_point() -> None:
    async with spine([tool_reply(("work", "{}"))]) as s:
        started, go = asyncio.Event(), asyncio.Event()

        async def body() -> None:
            started.set()
            await go.wait()

        add_tool(s, "work", body)
        owner = await owner_of(s)
        handle = await owner["agents"].create(options())
        handle.agent.followup(say("go"))
        await started.wait()
        waiting = [asyncio.ensure_future(one) for one in (handle.dispose(), handle.dispose(), owner.fiber.dispose())]
        cancelled = asyncio.create_task(handle.dispose())
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert s.agents.get("a") is handle.agent  # the id stays taken until all is quiet
        go.set()
        await asyncio.gather(*waiting)
        assert nothing_there(s)


async def test_b58_the_loop_leaving_ends_the_turn_before_the_agents_registrations_go() -> None:
    async with spine([tool_reply(("own", "{}"))]) as s:
        agent = s.agent()
        started, go = asyncio.Event(), asyncio.Event()

        async def own(run: ToolRun) -> str:
            """Own."""
            started.set()
            await go.wait()
            return "done"

        agent.ctx["tools"].tool(own)
        agent.followup(say("go"))
        await started.wait()
        leaving = s.loop.ctx.fiber.dispose()
        for _ in range(20):
            await asyncio.sleep(0)
        assert agent.status == "running" and s.tools.get("own", agent) is not None
        go.set()
        await leaving
        assert s.tools.get("own", agent) is None and balanced(agent.session)
        assert end(agent.session) == {"kind": "aborted", "reason": {"kind": "disposed"}}


async def test_b59_disposal_mid_turn_ends_it_as_disposed_and_starts_nothing_queued() -> None:
    async with spine(["hang", text_reply("never")]) as s:
        handle = await s.agents.create(options())
        agent = handle.agent
        agent.followup(say("one"))
        agent.followup(say("two"))
        await s.model.hanging.wait()
        await handle.dispose()
        assert end(agent.session) == {"kind": "aborted", "reason": {"kind": "disposed"}}
        assert [d["turn"] for d in of_type(agent.session, "turn/start")] == [1] and balanced(agent.session)
        assert len(s.model.requests) == 1
        assert [m["content"][0]["text"] for m in agent.inbox.next_turn] == ["two"]  # in the log, for a resume
        with pytest.raises(CordisError) as caught:
            agent.ctx.on(AgentStatus, lambda e: None)
        assert caught.value.code == "INACTIVE_EFFECT"
        with pytest.raises(HarnessError, match='agent "a" is disposed'):
            agent.followup(say("three"))


async def test_b59_input_that_comes_while_an_agent_ends_is_kept_and_starts_nothing() -> None:
    async with spine(["hang", text_reply("never")]) as s:
        handle = await s.agents.create(options())
        agent = handle.agent
        s.root.on(AgentStatus, lambda e: e.status == "idle" and agent.followup(say("late")))
        agent.followup(say("one"))
        await s.model.hanging.wait()
        await handle.dispose()
        assert types(agent.session).count("turn/start") == 1
        assert [m["content"][0]["text"] for m in agent.inbox.next_turn] == ["late"]


async def test_b59_disposal_gives_the_input_of_an_unstarted_step_back() -> None:
    async with spine() as s:
        handle = await s.agents.create(options())
        agent = handle.agent
        waiting = asyncio.Event()

        async def slow(event: AgentPreStep, proceed: Any) -> Any:
            waiting.set()
            await event.signal.wait()
            return await proceed()

        s.root.on(AgentPreStep, slow)
        agent.followup(say("one"))
        await waiting.wait()
        await handle.dispose()
        assert [m["content"][0]["text"] for m in agent.inbox.next_turn] == ["one"]
        assert types(agent.session)[-2:] == ["agent/inbox/spliced", "turn/end"]


async def test_b59_disposing_an_agent_whose_maintenance_fails_ends_all_the_same() -> None:
    async with spine() as s:
        handle = await s.agents.create(options())

        async def job(signal: Any) -> None:
            await signal.wait()
            raise RuntimeError("maintenance broke")

        running = handle.agent.run_maintenance(job)
        await handle.dispose()
        with pytest.raises(RuntimeError, match="maintenance broke"):
            await running
        assert nothing_there(s)


async def test_a_body_that_never_ends_holds_disposal_up_no_longer_than_the_runtime_allows() -> None:
    go = asyncio.Event()
    async with spine([tool_reply(("stuck", "{}"))], dispose_timeout=0.2) as s:
        agent = s.agent()
        started = asyncio.Event()

        async def body() -> None:
            started.set()
            await deaf(go)

        add_tool(s, "stuck", body)
        agent.followup(say("go"))
        await started.wait()
        fiber = s.loop.ctx.fiber
        await fiber.dispose()
        assert fiber.leaks == 1 and agent.status == "running"  # still awaited, but nobody is held up
        go.set()
        await agent.when_idle()
        assert end(agent.session) == {"kind": "aborted", "reason": {"kind": "disposed"}}


# -- streams that do not stop -------------------------------------------------------------------------------------


async def test_a_stream_that_ignores_the_abort_is_cut_off_after_a_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "ABORT_GRACE", 0.05)
    async with spine([text_reply("after")]) as s:
        silent, closed = asyncio.Event(), asyncio.Event()

        class Deaf(type(s.model)):  # type: ignore[misc]
            async def stream(self, request: Any) -> Any:
                try:
                    for chunk in text_reply("half a reply")[:2]:
                        yield chunk
                    silent.set()
                    await asyncio.Event().wait()
                finally:
                    closed.set()

        s.llm.register_adapter(["deaf"], Deaf([]))
        agent = s.agent(provider="deaf")
        agent.followup(say("go"))
        await silent.wait()
        agent.cancel({"kind": "user"})
        async with asyncio.timeout(5):
            await agent.when_idle()
        assert closed.is_set()
        assert end(agent.session) == {"kind": "aborted", "reason": {"kind": "user"}} and balanced(agent.session)
        reply = of_type(agent.session, "assistant/message")[0]
        assert reply["interrupted"] and reply["message"]["content"] == [{"type": "text", "text": "half a"}]


async def test_a_stream_that_talks_on_after_the_abort_is_closed_at_its_next_chunk() -> None:
    async with spine() as s:
        talking = asyncio.Event()

        class Chatty(type(s.model)):  # type: ignore[misc]
            async def stream(self, request: Any) -> Any:
                yield {"type": "block-start", "index": 0, "blockType": "text"}
                while True:
                    yield {"type": "text-delta", "index": 0, "text": "x"}
                    talking.set()
                    await asyncio.sleep(0)

        s.llm.register_adapter(["chatty"], Chatty([]))
        agent = s.agent(provider="chatty")
        agent.followup(say("go"))
        await talking.wait()
        before = len(agent.session.events)
        agent.cancel({"kind": "user"})
        await agent.when_idle()
        assert [e.type for e in agent.session.events[before:]] == ["assistant/message", "step/end", "turn/end"]


async def test_middleware_that_raises_on_abort_does_not_lose_what_arrived() -> None:
    from dsh.llm.service import LlmStream

    async with spine(["hang"]) as s:

        def strict(event: LlmStream, proceed: Any) -> Any:
            async def chunks() -> Any:
                async for chunk in proceed():
                    if event.request.signal.aborted:
                        raise AbortError("stopped here")
                    yield chunk

            return chunks()

        s.root.on(LlmStream, strict)
        agent = s.agent()
        agent.followup(say("go"))
        await s.model.hanging.wait()
        agent.cancel({"kind": "user"})
        await agent.when_idle()
        assert of_type(agent.session, "assistant/message")[0]["interrupted"]
        assert end(agent.session)["kind"] == "aborted"


async def test_a_stray_cancellation_is_a_failure_of_its_step_like_any_other() -> None:
    async with spine([text_reply("ok")]) as s:
        agent = s.agent()

        async def stray(event: AgentPreStep, proceed: Any) -> Any:
            other = asyncio.ensure_future(asyncio.sleep(60))
            other.cancel()
            await other

        undo = s.root.on(AgentPreStep, stray)
        agent.followup(say("one"))
        await agent.when_idle()
        assert end(agent.session) == {"kind": "error", "error": {"message": "CancelledError", "code": "UNKNOWN"}}
        undo()
        agent.steer(say("wake"))
        await agent.when_idle()
        assert texts_of(agent.session) == ["wake", "one", "ok"]


async def test_a_host_that_ends_the_drivers_task_finds_the_log_balanced() -> None:
    async with spine(["hang"]) as s:
        agent = s.agent()
        agent.followup(say("go"))
        await s.model.hanging.wait()
        (task,) = [task for task in asyncio.all_tasks() if task.get_name() == "agent a"]
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert agent.status == "idle" and balanced(agent.session)
        assert end(agent.session) == {"kind": "aborted", "reason": {"kind": "disposed"}}


async def test_a_pre_step_listener_that_answers_nonsense_fails_the_turn_and_keeps_the_input() -> None:
    async with spine([text_reply("ok")]) as s:
        agent = s.agent()

        async def forgot(event: AgentPreStep, proceed: Any) -> Any:
            await proceed()

        undo = s.root.on(AgentPreStep, forgot)
        agent.followup(say("one"))
        await agent.when_idle()
        assert end(agent.session)["error"]["message"] == "agent/pre-step must answer Enter or Reject, not NoneType"
        undo()
        agent.steer(say("wake"))
        await agent.when_idle()
        assert texts_of(agent.session) == ["wake", "one", "ok"]


# -- ownership and initiators -------------------------------------------------------------------------------------


async def test_b60_a_child_belongs_to_the_agent_whose_context_made_it() -> None:
    async with spine() as s:
        parent = await s.agents.create(options("parent"))
        initiators: list[Any] = []

        async def setup(ctx: Context) -> None:
            await asyncio.sleep(0)
            initiators.append(s.agents.current_initiator())

        child = (await parent.agent.ctx["agents"].create(options("child", setup=setup))).agent
        assert initiators == [parent.agent]
        assert s.agents.roots() == [parent.agent] and s.agents.list() == [parent.agent, child]
        assert s.agents.is_owned_by("child", parent.agent) and not s.agents.is_owned_by("parent", child)
        seen = record(s)
        await parent.dispose()
        assert seen == [f"{what}/disposed {one}" for one in ("child", "parent") for what in ("agent", "session")]


async def test_b60_a_root_is_set_up_on_nobodys_behalf() -> None:
    async with spine([tool_reply(("spawn", "{}")), text_reply("ok")]) as s:
        initiators: list[Any] = []

        async def body() -> None:
            initiators.append(s.agents.require_initiator())
            await s.agents.create(options("b", setup=lambda ctx: initiators.append(s.agents.current_initiator())))

        add_tool(s, "spawn", body)
        agent = s.agent()
        agent.followup(say("go"))
        await agent.when_idle()
        assert initiators == [agent, None] and s.agents.roots() == [agent, s.agents.get("b")]
        with pytest.raises(HarnessError, match="no initiating agent is active"):
            s.agents.require_initiator()


async def test_b61_overlapping_drivers_each_see_their_own_initiator_after_every_await() -> None:
    async with spine([tool_reply(("work", "{}"))] * 2 + [text_reply("ok")] * 2) as s:
        seen: dict[str, set[str]] = {"a": set(), "b": set()}
        inside: list[str] = []

        async def work(run: ToolRun) -> str:
            """Work."""
            inside.append(run.agent.id)
            for _ in range(10):
                await asyncio.sleep(0)
                seen[run.agent.id].add(s.agents.require_initiator().id)
                await asyncio.create_task(asyncio.sleep(0))
            return "done"

        s.tools.tool(work)
        first, second = s.agent("a"), s.agent("b")
        first.followup(say("go"))
        second.followup(say("go"))
        assert s.agents.current_initiator() is None
        await asyncio.gather(first.when_idle(), second.when_idle())
        assert seen == {"a": {"a"}, "b": {"b"}} and sorted(inside) == ["a", "b"]


async def test_b61_scopes_pass_results_through_and_are_restored_after_a_raise() -> None:
    async with spine() as s:
        one, two = s.agent("a"), s.agent("b")
        marker = object()

        def nested() -> object:
            assert s.agents.without_initiator(s.agents.current_initiator) is None
            with pytest.raises(ZeroDivisionError):
                s.agents.with_initiator(two, lambda: 1 / 0)
            assert s.agents.current_initiator() is one
            return marker

        assert s.agents.with_initiator(one, nested) is marker
        assert s.agents.current_initiator() is None

        async def rejects() -> None:
            await asyncio.sleep(0)
            assert s.agents.current_initiator() is two
            raise ValueError("rejected")

        with pytest.raises(ValueError, match="rejected"):
            await s.agents.with_initiator(two, rejects)
        assert s.agents.current_initiator() is None


class Raw:
    """The registry as an object that outlives its own plugin."""

    def __init__(self, root: Context) -> None:
        kept: list[Agents] = []

        class Kept(Agents):
            def __init__(self, ctx: Context, config: object = None) -> None:
                super().__init__(ctx, config)
                kept.append(self)

        self.fiber = root.plugin(Kept)
        self._kept = kept

    @property
    def agents(self) -> Agents:
        return self._kept[0]


class Someone:
    id = "someone"


async def test_b61_boundaries_stay_readable_while_they_drain_and_new_ones_are_refused() -> None:
    async with Context() as root:
        raw = Raw(root)
        await raw.fiber
        agents, someone, go = raw.agents, Someone(), asyncio.Event()
        seen: list[Any] = []

        async def operation() -> None:
            await go.wait()
            seen.append(agents.current_initiator())
            with pytest.raises(HarnessError, match="agent initiator scope is disposed"):
                agents.with_initiator(someone, lambda: None)  # type: ignore[arg-type]

        running = agents.with_initiator(someone, operation)  # type: ignore[arg-type]
        disposal = asyncio.ensure_future(raw.fiber.dispose())
        for _ in range(20):
            await asyncio.sleep(0)
        assert not disposal.done()
        go.set()
        await running
        await disposal
        assert seen == [someone]
        with pytest.raises(HarnessError, match="agent initiator scope is disposed"):
            agents.current_initiator()


@pytest.mark.parametrize("what", ["itself", "the plugin it lives in"])
async def test_b61_a_teardown_started_inside_a_boundary_does_not_wait_for_it(what: str) -> None:
    async with Context(dispose_timeout=30) as root:
        raws: list[Raw] = []
        outer = await root.plugin(lambda ctx: raws.append(Raw(ctx)) and None)
        await root.settle()
        raw = raws[0]
        target = raw.fiber if what == "itself" else outer
        agents, someone = raw.agents, Someone()

        async def operation() -> str:
            await agents.without_initiator(target.dispose)
            return "torn down"

        async with asyncio.timeout(5):
            assert await agents.with_initiator(someone, operation) == "torn down"  # type: ignore[arg-type]


async def test_b62_of_two_creations_of_one_id_the_second_loses_and_harms_nobody() -> None:
    async with spine([text_reply("ok")]) as s:
        seen = record(s)
        slow = Gate()
        losing = asyncio.create_task(s.agents.create(options(setup=slow)))
        await slow.entered.wait()
        winner = (await s.agents.create(options())).agent
        slow.go.set()
        with pytest.raises(HarnessError, match='session "a" already exists'):
            await losing
        assert s.agents.get("a") is winner and s.sessions.get("a") is winner.session
        assert seen == ["session/created a", "agent/created a", "agent/session-start startup"]
        winner.followup(say("hi"))
        await winner.when_idle()
        assert texts_of(winner.session) == ["hi", "ok"]


async def test_b62_the_registry_refuses_foreign_and_repeated_ids() -> None:
    async with spine() as s:
        agent = s.agent()
        with pytest.raises(HarnessError, match='agent "a" is already registered'):
            s.agents.enter(agent, None)
        with pytest.raises(HarnessError, match='agent "a" was already announced'):
            s.agents.announce(agent)

        class Stranger:
            id = "x"
            session = agent.session

        stranger: Agent = Stranger()  # type: ignore[assignment]
        with pytest.raises(HarnessError, match='agent id "x" does not match session id "a"'):
            s.agents.enter(stranger, None)
        with pytest.raises(HarnessError, match='agent "x" is not live in this registry'):
            s.agents.announce(stranger)


async def test_b62_a_stale_detach_cannot_remove_a_successor() -> None:
    async with spine() as s:

        class Fake:
            def __init__(self) -> None:
                self.id = "f"
                self.session = self

        old, new = Fake(), Fake()
        detach = s.agents.enter(old, None)  # type: ignore[arg-type]
        detach()
        s.agents.enter(new, None)  # type: ignore[arg-type]
        detach()
        assert s.agents.get("f") is new


class SlowPersistence(SessionPersistence):
    """Loads when it is told to, whatever its caller wants meanwhile."""

    inject = ["sessions"]

    def __init__(self, ctx: Context, config: Any) -> None:
        self.loading = asyncio.Event()
        self.go = asyncio.Event()
        self.released: list[str] = []

    async def prepare(self, session_id: str, signal: Any = None) -> SessionPreparation:
        async def load() -> SessionPreparation:
            self.loading.set()
            await self.go.wait()
            return self.ctx["sessions"].prepare(session_id, seed=[], release=lambda: self.released.append(session_id))

        task = asyncio.create_task(load())
        while not task.done():
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError:
                continue
        return task.result()


SlowPersistence.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]


async def test_b63_a_resume_load_that_ends_after_it_was_given_up_is_released() -> None:
    async with spine() as s:
        await s.root.plugin(SlowPersistence)
        persistence: Any = s.root[SessionPersistence]
        abort = AbortController()
        resuming = asyncio.create_task(s.agents.resume(ResumeAgentOptions("a", ROUTE, signal=abort.signal)))
        await persistence.loading.wait()
        abort.abort(ValueError("changed my mind"))
        with pytest.raises(ValueError, match="changed my mind"):
            await resuming
        assert persistence.released == [] and nothing_there(s)
        persistence.go.set()
        async with asyncio.timeout(5):
            while not persistence.released:
                await asyncio.sleep(0)
        assert persistence.released == ["a"] and nothing_there(s)
        handle = await s.agents.resume(ResumeAgentOptions("a", ROUTE))
        assert handle.agent.session.id == "a"


async def test_b63_resuming_without_a_backend_says_what_is_missing() -> None:
    async with spine() as s:
        with pytest.raises(HarnessError) as caught:
            await s.agents.resume(ResumeAgentOptions("a", ROUTE))
        assert str(caught.value) == (
            "cannot resume: session persistence is not configured (load a dsh-session-persistence backend)"
        )
