"""What a session is called, and when its title is written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dsh.cordis import ConfigError, HarnessError
from dsh.core.agent import Agent, AgentOptions, CreateAgentOptions
from dsh.core.agent_events import AgentPreStep, Enter
from dsh.llm.message import create_user_message
from dsh.sessions import projection, title
from dsh.sessions.projection import SessionProjections
from dsh.sessions.title import ProposedTitle, SessionTitle, SessionTitleInvalidError, TitleJob
from dsh.sessions.title_text import clean, cut
from tests.core.kit import Entry, Spine, of_type, spine, text_reply, types
from tests.sessions.test_checkpoint_policy import ask

ROUTE = AgentOptions(provider="test", model="m")
CONFIG = {"fallbackMaxWords": 5, "fallbackMaxBytes": 40, "maxTitleBytes": 80}


@asynccontextmanager
async def titled(script: list[Entry], **config: Any) -> AsyncIterator[Spine]:
    async with spine(script) as s:
        await s.root.plugin(title, {**CONFIG, **config})
        yield s


class Provider:
    """Answers what a test tells it to; `jobs` are what it was asked."""

    name = "test-titles"

    def __init__(self, answer: Callable[[TitleJob], Awaitable[ProposedTitle | None]]) -> None:
        self.answer = answer
        self.jobs: list[TitleJob] = []

    def propose(self, job: TitleJob) -> Awaitable[ProposedTitle | None]:
        self.jobs.append(job)
        return self.answer(job)


def proposing(text: str) -> Provider:
    async def answer(job: TitleJob) -> ProposedTitle:
        return ProposedTitle(text, tuple(seq for seq, _ in job.messages), {"provider": "p", "model": "m"})

    return Provider(answer)


def held() -> tuple[Provider, asyncio.Event]:
    gate = asyncio.Event()

    async def answer(job: TitleJob) -> ProposedTitle:
        await gate.wait()
        return ProposedTitle(f"late {len(job.messages)}", tuple(seq for seq, _ in job.messages))

    return Provider(answer), gate


async def settled(s: Spine, agent: Agent) -> None:
    """Nothing runs any more, background title jobs included."""
    await agent.when_idle()
    for _ in range(20):
        await asyncio.sleep(0)


def titles(agent: Agent) -> list[dict[str, Any]]:
    return of_type(agent.session, "session/title")


async def test_b21a_the_fallback_stands_between_the_input_of_a_step_and_its_request() -> None:
    async with titled([text_reply("one"), text_reply("two")]) as s:

        @s.root.on(AgentPreStep)
        async def add_context(event: AgentPreStep, next: Callable[[], Awaitable[Any]]) -> Any:
            decision = await next()
            extra = create_user_message("a hint", {"kind": "plugin", "plugin": "hints"})
            return Enter((*decision.messages, extra)) if event.turn == 1 else decision

        agent = s.agent()
        await ask(agent, "Reply with exactly the word: PONG. Do not use any tools.")
        order = [one for one in types(agent.session) if one != "assistant/chunk"]
        at = order.index("session/title")
        assert order[at - 2 : at + 2] == ["user/message", "user/message", "session/title", "request/header"]
        said = next(event.seq for event in agent.session.events if event.type == "user/message")
        assert titles(agent) == [
            {"title": "Reply with exactly the word:", "messageSeqs": [said], "source": {"kind": "fallback"}}
        ]
        await ask(agent, "Another prompt")
        assert len(titles(agent)) == 1


async def test_b21b_only_what_a_person_wrote_gives_a_title() -> None:
    async with titled([text_reply("one"), text_reply("two")]) as s:
        agent = s.agent()
        agent.followup(create_user_message("You have mail", {"kind": "plugin", "plugin": "mail"}))
        await agent.when_idle()
        assert titles(agent) == []
        await ask(agent, "and now me")
        assert [one["title"] for one in titles(agent)] == ["and now me"]


async def test_b21c_a_message_without_text_leaves_the_title_to_the_next_one() -> None:
    async with titled([text_reply("one"), text_reply("two")]) as s:
        agent = s.agent()
        await ask(agent, "\x1b[2J \u202e\n")
        assert titles(agent) == []
        await ask(agent, "words")
        assert [one["title"] for one in titles(agent)] == ["words"]


async def test_b21d_an_untitled_history_is_titled_by_its_first_message() -> None:
    async with titled([text_reply("one")]) as s:
        source = s.sessions.create("old")
        source.append("user/message", create_user_message("How it began"), "append")
        seed = list(source.events)
        options = CreateAgentOptions("a", {"cwd": "/tmp"}, agent_options=ROUTE, seed=seed)
        agent = (await s.agents.create(options)).agent
        await ask(agent, "go on")
        assert [(one["title"], one["messageSeqs"]) for one in titles(agent)] == [("How it began", [0])]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Start one continuable background subagent and wait", "Start one continuable background subagen"),
        (
            "Read nested/task.txt, then read scope</system-reminder>/task.txt",
            "Read nested/task.txt, then read scope</s",
        ),
        ("one two three four five six", "one two three four five"),
        ("  spread\n\n over\tlines\u2028and more ", "spread over lines and more"),
        ("ééééééééééééééééééééé", "é" * 20),
        ("x" + "é" * 30, "x" + "é" * 19),
        ("日本語の長い題名をここに書きます", "日本語の長い題名をここに書"),
        ("😀" * 11, "😀" * 10),
        ("\u202eevil\u202c \u2066name\u2069", "evil name"),
        ("\x1b]0;owned\x07real \x1b[31mred\x1b[0m \x9b1mbold \x1bcreset", "real red bold reset"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bPq#0\x1b\\after \x1b_hidden\x9cshown", "after shown"),
        ("nul\x00 bell\x07 del\x7f half\ud83d", "nul bell del half"),
    ],
)
def test_b21e_a_title_is_clean_and_never_ends_in_half_a_character(text: str, expected: str) -> None:
    shown = cut(clean(text), 40, 5)
    assert shown == expected
    assert len(shown.encode()) <= 40


async def test_b21f_a_provider_is_asked_when_the_request_leaves_and_may_answer_after_the_turn() -> None:
    async with titled([text_reply("one"), text_reply("two")]) as s:
        provider, gate = held()
        s.root[SessionTitle].register(provider)
        agent = s.agent()
        await ask(agent, "first words")
        (job,) = provider.jobs
        assert [text for _, text in job.messages] == ["first words"]
        gate.set()
        await settled(s, agent)
        order = types(agent.session)
        assert order.index("turn/end") < len(order) - 1 - order[::-1].index("session/title")
        assert titles(agent)[-1] == {
            "title": "late 1",
            "messageSeqs": [job.messages[0][0]],
            "source": {"kind": "provider", "provider": "test-titles"},
        }


async def test_b21g_what_a_provider_logs_at_once_stands_before_the_reply() -> None:
    async with titled([text_reply("one")]) as s:

        def answer(job: TitleJob) -> Awaitable[ProposedTitle | None]:
            job.session.append("session/title-llm-request", {"titleProvider": "test-titles"})
            return held()[0].propose(job)

        s.root[SessionTitle].register(Provider(answer))
        agent = s.agent()
        await ask(agent)
        order = [event.type for event in agent.session.events]
        at = order.index("session/title-llm-request")
        assert order[at - 1] == "request/context" and order[at + 1] == "assistant/chunk"


async def test_b21h_a_persons_choice_beats_a_late_provider() -> None:
    async with titled([text_reply("one"), text_reply("two")]) as s:
        provider, gate = held()
        service = s.root[SessionTitle]
        service.register(provider)
        agent = s.agent()
        await ask(agent, "first words")
        assert service.rename(agent.session, " My \x1b[1mown ").title == "My own"
        assert provider.jobs[0].signal.aborted
        gate.set()
        await ask(agent, "second")
        await settled(s, agent)
        assert len(provider.jobs) == 1
        assert await service.refresh(agent.session) == service.get(agent.session)
        assert titles(agent)[-1] == {"title": "My own", "messageSeqs": [], "source": {"kind": "user"}}
        with pytest.raises(SessionTitleInvalidError):
            service.rename(agent.session, "\x1b[31m \u202e")


async def test_b21i_a_newer_prompt_supersedes_the_job_of_the_one_before() -> None:
    async with titled([text_reply("one"), text_reply("two")]) as s:
        provider, gate = held()
        s.root[SessionTitle].register(provider)
        agent = s.agent()
        await ask(agent, "first")
        await ask(agent, "second")
        assert [job.signal.aborted for job in provider.jobs] == [True, False]
        gate.set()
        await settled(s, agent)
        assert [one["title"] for one in titles(agent)] == ["first", "late 2"]


async def test_b21j_an_aborted_turn_wants_no_title() -> None:
    async with titled(["hang"]) as s:
        provider, gate = held()
        s.root[SessionTitle].register(provider)
        agent = s.agent()
        agent.followup(create_user_message("first"))
        await s.model.hanging.wait()
        agent.cancel({"kind": "user"})
        gate.set()
        await settled(s, agent)
        assert provider.jobs[0].signal.aborted
        assert [one["title"] for one in titles(agent)] == ["first"]


async def test_b21j_a_session_that_left_gets_no_title() -> None:
    async with titled([text_reply("one")]) as s:
        provider, gate = held()
        s.root[SessionTitle].register(provider)
        handle = await s.agents.create(CreateAgentOptions("a", {"cwd": "/tmp"}, agent_options=ROUTE))
        await ask(handle.agent, "first")
        await handle.dispose()
        assert provider.jobs[0].signal.aborted
        gate.set()
        await settled(s, handle.agent)
        assert [one["title"] for one in titles(handle.agent)] == ["first"]


async def test_b21k_a_failing_or_empty_answer_leaves_the_fallback() -> None:
    async def fails(job: TitleJob) -> ProposedTitle:
        raise HarnessError("no model", "X")

    def fails_at_once(job: TitleJob) -> Awaitable[ProposedTitle | None]:
        raise HarnessError("no route", "X")

    for provider in (Provider(fails), Provider(fails_at_once), proposing("\x1b[2J")):
        async with titled([text_reply("one")]) as s:
            s.root[SessionTitle].register(provider)
            agent = s.agent()
            await ask(agent, "first")
            await settled(s, agent)
            assert len(provider.jobs) == 1
            assert [one["source"]["kind"] for one in titles(agent)] == ["fallback"]


async def test_b21l_there_is_one_provider_at_a_time() -> None:
    async with titled([text_reply("one")]) as s:
        service = s.root[SessionTitle]
        held_by = service.register(proposing("A"))
        with pytest.raises(HarnessError, match="is registered already"):
            service.register(proposing("B"))
        held_by()
        service.register(proposing("C" * 100))
        agent = s.agent()
        await ask(agent, "first")
        await settled(s, agent)
        assert titles(agent)[-1]["title"] == "C" * 80
        assert titles(agent)[-1]["source"]["model"] == {"provider": "p", "model": "m"}


async def test_a_resumed_history_is_not_titled_again_but_can_be_refreshed() -> None:
    async with titled([text_reply("one"), text_reply("two")]) as s:
        first = s.agent("first")
        await ask(first, "How it began")
        provider = proposing("Better")
        service = s.root[SessionTitle]
        service.register(provider)
        options = CreateAgentOptions("a", {"cwd": "/tmp"}, agent_options=ROUTE, seed=list(first.session.events))
        agent = (await s.agents.create(options)).agent
        assert service.get(agent.session) == service.get(first.session)
        assert provider.jobs == []
        refreshed = await service.refresh(agent.session)
        assert refreshed is not None and refreshed.title == "Better"


async def test_the_title_is_a_projection_where_projections_are_kept() -> None:
    async with titled([text_reply("one")]) as s:
        agent = s.agent()
        await s.root.plugin(projection)
        assert s.root[SessionProjections].snapshot(agent.session).values["title"] is None
        await ask(agent, "Say it")
        assert s.root[SessionProjections].snapshot(agent.session).values["title"] == "Say it"


async def test_a_fallback_longer_than_a_title_is_refused() -> None:
    with pytest.raises(ConfigError, match="fallbackMaxBytes"):
        title.Config.validate({**CONFIG, "fallbackMaxBytes": 81})
    with pytest.raises(ConfigError, match="maxTitleBytes"):
        title.Config.validate({"fallbackMaxWords": 5, "fallbackMaxBytes": 40})
