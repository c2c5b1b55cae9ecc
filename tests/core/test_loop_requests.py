"""What a request holds, when its header is logged, and what is sent again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsh.cordis.jsonio import encode
from dsh.core.agent import AgentOptions, CreateAgentOptions
from dsh.core.agent_events import AgentPreStep, AgentRequest, Enter
from dsh.core.seams import AgentDefaultModel
from dsh.core.session import Session
from dsh.llm.call_config import CallConfig
from dsh.llm.message import create_user_message
from dsh.llm.service import LlmStream
from tests.core.kit import ScriptedAdapter, of_type, spine, text_reply, tool_reply
from tests.core.test_loop_turns import add_tool, say, texts_of


def prompts(request: Any) -> list[str]:
    return [b["text"] for m in request.messages for b in m["content"] if b["type"] == "text"]


async def run(agent: Any, text: str) -> None:
    agent.followup(say(text))
    await agent.when_idle()


async def test_b35_each_request_extends_the_previous_one_and_is_frozen() -> None:
    async with spine([tool_reply(("work", "{}")), text_reply("a"), text_reply("b")]) as s:
        add_tool(s, "work")
        agent = s.agent()
        await run(agent, "one")
        await run(agent, "two")
        first, second, third = s.model.requests
        for earlier, later in ((first, second), (second, third)):
            assert list(later.messages[: len(earlier.messages)]) == list(earlier.messages)
        with pytest.raises(TypeError):
            first.messages[0]["content"].append({"type": "text", "text": "x"})
        with pytest.raises(TypeError):
            first.tools[0]["parameters"]["x"] = 1


async def test_b36_a_stable_prompt_logs_one_header_and_a_changed_one_says_so() -> None:
    async with spine([text_reply("a")] * 4) as s:
        agent = s.agent()
        await run(agent, "one")
        await run(agent, "two")
        assert [d["reason"] for d in of_type(agent.session, "request/header")] == ["initial"]
        s.prompt.section("extra", 10, "More.")
        await run(agent, "three")
        add_tool(s, "work")
        await run(agent, "four")
        assert [d["reason"] for d in of_type(agent.session, "request/header")] == ["initial", "change", "change"]


async def test_b37_input_added_while_a_request_is_built_joins_the_next_one() -> None:
    async with spine([text_reply("a"), text_reply("b")]) as s:
        agent = s.agent()
        once = [True]

        async def inject(event: AgentRequest, proceed: Any) -> CallConfig:
            if once:
                once.pop()
                event.agent.inject(say("extra"))
            return await proceed()

        s.root.on(AgentRequest, inject)
        await run(agent, "one")
        assert [prompts(r) for r in s.model.requests] == [["one"], ["one", "a", "extra"]]


class Informed(ScriptedAdapter):
    """A model with an advertised effort, cap and window."""

    window: int | None = 1000

    async def resolve_model(self, provider: str, model: str, signal: Any = None) -> Any:
        efforts = [{"id": "low", "name": "Low"}, {"id": "high", "name": "High"}]
        info = {
            "provider": provider,
            "id": model,
            "name": model,
            "defaultMaxTokens": 77,
            "reasoning": {"efforts": efforts, "defaultEffort": "high"},
        }
        return {**info, "context": {"contextWindow": self.window}} if self.window else info


async def test_b38_adapter_defaults_are_marked_and_resolved_anew_explicit_caps_are_kept() -> None:
    async with spine() as s:
        model = Informed([text_reply("a")] * 3)
        s.llm.register_adapter(["informed", "informed-2"], model)
        agent = s.agent(provider="informed", max_tokens=50)
        route = ["informed"]

        async def switch(event: AgentRequest, proceed: Any) -> CallConfig:
            return replace(await proceed(), provider=route[0])

        s.root.on(AgentRequest, switch)
        await run(agent, "one")
        header = of_type(agent.session, "request/header")[-1]["header"]
        assert header["config"] == {
            "provider": "informed",
            "model": "m",
            "reasoningEffort": "high",
            "maxTokens": 50,
        }
        assert header["adapterDefaults"] == {"reasoningEffort": True}
        route[0] = "informed-2"
        await run(agent, "two")
        header = of_type(agent.session, "request/header")[-1]["header"]
        assert header["config"]["provider"] == "informed-2" and header["config"]["maxTokens"] == 50
        assert header["adapterDefaults"] == {"reasoningEffort": True}


async def test_b39_a_resumed_instance_restores_the_effort_only_on_the_same_route() -> None:
    async with spine() as s:
        model = Informed([text_reply("ok")] * 4)
        s.llm.register_adapter(["informed", "other"], model)
        agent = s.agent("first", provider="informed")

        async def low(event: AgentRequest, proceed: Any) -> Any:
            return replace(await proceed(), reasoning_effort="low")

        undo = s.root.on(AgentRequest, low)
        agent.followup(say("one"))
        await agent.when_idle()
        undo()
        seed = list(agent.session.events)

        for name, route, effort in (("same", "informed", "low"), ("elsewhere", "other", "high")):
            options = CreateAgentOptions(name, seed=seed, agent_options=AgentOptions(route, "m"))
            handle = await s.agents.create(options)
            handle.agent.followup(say("two"))
            await handle.agent.when_idle()
            assert s.model.requests == [] and model.requests[-1].config.reasoning_effort == effort
            assert of_type(handle.agent.session, "request/header")[-1]["reason"] == "resume"


async def test_b39_an_effort_that_the_adapter_chose_is_resolved_anew() -> None:
    async with spine() as s:
        s.llm.register_adapter(["informed"], Informed([text_reply("ok")] * 2))
        agent = s.agent("first", provider="informed")
        agent.followup(say("one"))
        await agent.when_idle()
        options = CreateAgentOptions(
            "next", seed=list(agent.session.events), agent_options=AgentOptions("informed", "m")
        )
        again = (await s.agents.create(options)).agent
        again.followup(say("two"))
        await again.when_idle()
        header = of_type(again.session, "request/header")[-1]["header"]
        assert header["adapterDefaults"] == {"maxTokens": True, "reasoningEffort": True}


async def test_b40_the_context_window_is_logged_once_per_change() -> None:
    async with spine() as s:
        model = Informed([text_reply("a")] * 4)
        s.llm.register_adapter(["informed"], model)
        agent = s.agent(provider="informed")
        await run(agent, "one")
        await run(agent, "two")
        model.window = 2000
        await run(agent, "three")
        model.window = None
        await run(agent, "four")
        contexts = of_type(agent.session, "request/context")
        assert [c.get("contextWindow") for c in contexts] == [1000, 2000, None]
        assert agent.session.request_context() == {"provider": "informed", "model": "m"}


async def test_b41_stream_middleware_serves_a_route_without_adapter() -> None:
    async with spine() as s:
        agent = s.agent(provider="nowhere")

        def serve(event: LlmStream, proceed: Any) -> Any:
            async def chunks() -> Any:
                for chunk in text_reply("served"):
                    yield chunk

            return chunks()

        s.root.on(LlmStream, serve)
        await run(agent, "one")
        assert texts_of(agent.session) == ["one", "served"]


@settings(max_examples=15, deadline=None)
@given(plan=st.lists(st.sampled_from(["prompt", "tool", "section", "context"]), min_size=1, max_size=6))
async def test_b42_every_request_can_be_rebuilt_from_the_log_alone(plan: list[str]) -> None:
    script = [r for _ in plan for r in (tool_reply(("work", "{}")), text_reply("done"))]
    async with spine(script) as s:
        add_tool(s, "work")
        agent = s.agent()
        rebuilt: list[bool] = []

        def check(event: LlmStream, proceed: Any) -> Any:
            request = event.request
            copy = Session(agent.id, header=agent.session.header, seed=list(agent.session.events))
            header = copy.request_header()
            assert header is not None
            same_messages = encode(list(request.messages)) == encode(copy.derive_messages())
            same_header = (
                request.config.to_wire() == header["config"]
                and (request.system or "") == header.get("system", "")
                and encode(list(request.tools or [])) == encode(header.get("tools", []))
            )
            rebuilt.append(same_messages and same_header)
            return proceed()

        s.root.on(LlmStream, check)
        for number, action in enumerate(plan):
            if action == "section":
                s.prompt.section(f"s{number}", number, f"Section {number}.")
            elif action == "context":
                s.prompt.context(f"c{number}", number, f"Context {number}.")
            await run(agent, f"prompt {number}")
        assert rebuilt and all(rebuilt)


async def test_b43_runtime_context_is_sent_when_it_changes_and_only_then() -> None:
    async with spine([text_reply(str(n)) for n in range(8)]) as s:
        agent = s.agent()
        value = ["v1"]
        context = s.prompt.context("state", 1, lambda scope: value[0])
        intro = "Current runtime context. This snapshot supersedes earlier runtime-context snapshots."
        await run(agent, "one")
        await run(agent, "two")
        assert texts_of(agent.session).count(f"{intro}\n\nv1") == 1
        value[0] = "v2"
        await run(agent, "three")
        assert prompts(s.model.requests[-1])[-1] == f"{intro}\n\nv2"
        message = of_type(agent.session, "user/message")[-1]
        assert message["source"] == {
            "kind": "plugin",
            "plugin": "@deepseek-ai/dsh-system-prompt",
            "form": "snapshot",
            "sections": [{"name": "state", "text": "v2"}],
        }
        # a replacement that covers the retained message has it sent again; another one does not
        node = next(e.seq for e in agent.session.events if e.type == "user/message" and e.data["id"] == message["id"])
        short = create_user_message("compacted", {"kind": "plugin", "plugin": "compact"})
        agent.session.append("user/message", short, {"op": "replace", "start": node, "end": node}, [node])
        await run(agent, "four")
        assert prompts(s.model.requests[-1])[-1] == f"{intro}\n\nv2"
        first = agent.session.surface.nodes[0]
        agent.session.append("user/message", say("x"), {"op": "replace", "start": first, "end": first}, [first])
        await run(agent, "five")
        assert prompts(s.model.requests[-1])[-1] == "five"
        context()
        await run(agent, "six")
        assert prompts(s.model.requests[-1])[-1] == (
            "Current runtime context: none. Earlier runtime-context snapshots no longer apply."
        )
        await run(agent, "seven")
        assert prompts(s.model.requests[-1])[-1] == "seven"


async def test_b43_a_retained_snapshot_that_is_no_single_text_counts_as_different() -> None:
    async with spine([text_reply("a"), text_reply("b")]) as s:
        agent = s.agent()
        s.prompt.context("state", 1, "v1")

        async def split(event: AgentPreStep, proceed: Any) -> Any:
            decision = await proceed()
            if event.turn > 1:
                return decision
            messages = [
                {**m, "content": [*m["content"], {"type": "text", "text": "more"}]}
                if m["source"]["kind"] == "plugin"
                else m
                for m in decision.messages
            ]
            return Enter(tuple(messages))

        s.root.on(AgentPreStep, split)
        await run(agent, "one")
        await run(agent, "two")
        snapshots = [m for m in of_type(agent.session, "user/message") if m["source"]["kind"] == "plugin"]
        assert len(snapshots) == 2


async def test_an_agent_without_a_route_asks_the_default_model_at_each_turn() -> None:
    class Fixed(AgentDefaultModel):
        route = {"provider": "test", "model": "one"}

        def current_selection(self) -> Any:
            return self.route

    async with spine([text_reply("a"), tool_reply(("work", "{}")), text_reply("b")]) as s:
        chooser = Fixed(s.root)
        s.root.provide(chooser)
        agent = s.agent(provider=None, model=None)

        async def switch() -> None:
            chooser.route = {"provider": "test", "model": "three"}

        add_tool(s, "work", switch)
        await run(agent, "one")
        chooser.route = {"provider": "test", "model": "two"}
        await run(agent, "two")
        assert [r.model for r in s.model.requests] == ["one", "two", "two"]
