"""What an adapter gets to see of a conversation, and that each message is looked at once."""

from __future__ import annotations

from typing import Any

from dsh.cordis.jsonio import FrozenDict
from dsh.core.agent import AgentOptions, CreateAgentOptions
from dsh.llm.call_config import CallConfig
from dsh.llm.message import create_assistant_message, create_user_message, freeze_message
from dsh.llm.outgoing import OutgoingHistory
from dsh.llm.types import LlmRequest, Message
from tests.core.kit import spine, text_reply

CONFIG = CallConfig("own", "m")


class Owners:
    """Providers that belong to the adapter, and every question about one."""

    def __init__(self, *own: str) -> None:
        self.own = set(own)
        self.asked: list[str] = []

    def __call__(self, provider: str) -> bool:
        self.asked.append(provider)
        return provider in self.own


def noted(provider: str, text: str) -> Message:
    content: Any = [{"type": "text", "text": text}]
    return freeze_message(create_assistant_message(content, provider, "m", {"response": {"id": text}}))


def image() -> Message:
    content: Any = [{"type": "image", "attachment": {"attachmentId": "sha256:0123456789"}}]
    return freeze_message(create_user_message(content))


def request(messages: Any, session_id: str | None = "s") -> LlmRequest:
    return LlmRequest(CONFIG, tuple(messages), session_id=session_id)


def test_own_notes_stay_foreign_ones_go_and_untouched_messages_are_the_same_objects() -> None:
    history = OutgoingHistory(Owners("own"))
    messages = [freeze_message(create_user_message("hi")), noted("own", "a"), noted("other", "b")]
    sent = history.prepare(request(messages), images=True)
    assert sent[0] is messages[0] and sent[1] is messages[1]
    assert "replayState" not in sent[2]["source"] and sent[2]["id"] == messages[2]["id"]
    given = request(messages[:2], "t")
    assert history.prepare(given, images=True) is given.messages


def test_a_session_that_goes_on_is_looked_at_only_where_it_is_new() -> None:
    owners = Owners("own")
    history = OutgoingHistory(owners)
    messages = [noted("other", "0")]
    for number in range(1, 50):
        sent = history.prepare(request(messages), images=False)
        assert len(sent) == number and "replayState" not in sent[0]["source"]
        messages.append(noted("own", str(number)))
    assert len(owners.asked) == 49


def test_a_closed_session_leaves_nothing_behind() -> None:
    history = OutgoingHistory(Owners("own"))
    for session_id in ("s", "other"):
        for images in (True, False):
            history.prepare(request([freeze_message(create_user_message("hi"))], session_id), images=images)
    history.forget("s")
    assert [key[0] for key in history._seen] == ["other", "other"]


async def test_the_service_hears_of_a_session_that_is_closed() -> None:
    async with spine([text_reply("ok")]) as s:
        handle = await s.agents.create(CreateAgentOptions("a", agent_options=AgentOptions("test", "m")))
        handle.agent.followup(create_user_message("hi"))
        await handle.agent.when_idle()
        (registration,) = s.llm._registrations
        assert registration.history._seen
        await handle.dispose()
        assert not registration.history._seen


def test_a_rewritten_history_is_looked_at_anew() -> None:
    history = OutgoingHistory(Owners("own"))
    first, second = noted("other", "a"), noted("other", "b")
    history.prepare(request([first, second]), images=True)
    summary = freeze_message(create_user_message("summary"))
    sent = history.prepare(request([summary, second]), images=True)
    assert sent[0] is summary and "replayState" not in sent[1]["source"]
    assert history.prepare(request([summary]), images=True) == (summary,)


def test_owners_that_change_are_asked_again_once_told_to_forget() -> None:
    owners = Owners()
    history = OutgoingHistory(owners)
    messages = [noted("other", "a")]
    assert "replayState" not in history.prepare(request(messages), images=True)[0]["source"]
    owners.own.add("other")
    history.clear()
    assert history.prepare(request(messages), images=True)[0] is messages[0]


def test_models_of_one_adapter_differ_in_the_images_they_take() -> None:
    history = OutgoingHistory(Owners("own"))
    messages = [image()]
    for _ in range(2):
        assert history.prepare(request(messages), images=True)[0] is messages[0]
        (text,) = history.prepare(request(messages), images=False)[0]["content"]
        assert text["text"].startswith("[image omitted")


def test_messages_that_may_still_change_are_not_remembered() -> None:
    history = OutgoingHistory(Owners())
    message: Any = {**noted("other", "a")}
    assert type(message) is not FrozenDict
    history.prepare(request([message]), images=True)
    message["content"] = [{"type": "text", "text": "edited"}]
    assert history.prepare(request([message]), images=True)[0]["content"][0]["text"] == "edited"


def test_calls_without_a_session_are_not_mixed_up() -> None:
    history = OutgoingHistory(Owners())
    one, two = noted("other", "a"), noted("other", "b")
    for message in (one, two, one):
        (sent,) = history.prepare(request([message], None), images=True)
        assert sent["id"] == message["id"]
