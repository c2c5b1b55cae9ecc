"""Messages derived from the surface."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsh.core.derivation import derive_event_message
from dsh.core.session import Session
from dsh.core.surface import fold_surface
from tests.core.session_helpers import (
    assistant,
    called,
    chunk,
    finished_turn,
    header,
    replace,
    result,
    say,
    text,
    tool_call,
    user,
)


def test_b22_messages_come_verbatim_and_in_order() -> None:
    session = Session("s")
    finished_turn(session)
    session.append("todo/write", {"todos": []})
    messages = session.derive_messages()
    assert messages == [
        user("prompt 1", "u-2"),
        assistant(text("hello"), tool_call("c1"))["message"],
        result("c1")["message"],
    ]
    by_type = {event.type: event for event in session.events}
    assert messages[0] is by_type["user/message"].data
    assert messages[1] is by_type["assistant/message"].data["message"]
    assert messages[2] is by_type["tool/result"].data["message"]
    for type_ in ("assistant/chunk", "turn/start", "step/end", "todo/write", "request/header", "tool/call"):
        assert derive_event_message(by_type[type_]) is None


def test_b23_an_empty_assistant_message_is_a_node_but_no_message() -> None:
    session = Session("s")
    say(session, "a")
    anchor = session.append("assistant/message", assistant(), "append", [])
    say(session, "b")
    assert session.surface.nodes == (0, anchor.seq, 2)
    assert [message["id"] for message in session.derive_messages()] == ["u-0", "u-2"]


def test_b24_equal_calls_share_messages_but_not_the_list() -> None:
    session = Session("s")
    say(session, "a", "b")
    first, second = session.derive_messages(), session.derive_messages()
    assert first is not second
    assert all(one is two for one, two in zip(first, second, strict=True))
    say(session, "c")
    first.append(None)  # type: ignore[arg-type]
    assert len(second) == 2
    assert len(session.derive_messages()) == 3
    assert session.derive_messages()[0] is second[0]


def test_b24_after_a_replacement_the_remaining_messages_are_the_same_objects() -> None:
    session = Session("s")
    say(session, "a", "b", "c")
    before = session.derive_messages()
    session.append("user/message", user("sum"), replace(0, 1), [0, 1])
    assert session.derive_messages()[1] is before[2]


step = st.sampled_from(["user", "assistant", "empty", "result", "chunk", "header", "derive", "replace", "rewrite"])


@settings(deadline=None)
@given(st.lists(st.tuples(step, st.integers(0, 99), st.integers(0, 99)), max_size=40))
def test_b25_incremental_derivation_equals_that_of_a_fresh_session(steps: list[tuple[str, int, int]]) -> None:
    session = Session("s")
    for kind, one, two in steps:
        nodes = session.surface.nodes
        match kind:
            case "user":
                say(session, f"text {one}")
            case "assistant":
                session.append("assistant/message", assistant(text(str(one)), id=f"a{session.seq}"), "append")
            case "empty":
                session.append("assistant/message", assistant(id=f"a{session.seq}"), "append", [])
            case "result":
                session.append("tool/result", result(f"c{one}"), "append")
            case "chunk":
                session.append("assistant/chunk", chunk(str(one)))
            case "header":
                session.append("request/header", header(model=f"m{one}"))
            case "derive":
                session.derive_messages()
            case "replace" if nodes:
                first, last = sorted((one % len(nodes), two % len(nodes)))
                run = nodes[first : last + 1]
                session.append("user/message", user("sum", f"s{session.seq}"), replace(run[0], run[-1]), run)
            case "rewrite":
                for seq in nodes:
                    target: Any = session.events[seq]
                    if target.type == "tool/result":
                        call = target.data["message"]["source"]["callId"]
                        session.append("tool/result", result(call, f"new {one}"), replace(seq, seq), [seq])
                        break
    fresh = Session("fresh", seed=session.events)
    assert session.derive_messages() == fresh.derive_messages()
    assert session.surface.nodes == fresh.surface.nodes == fold_surface(session.events)[0]
    assert session.request_header() == fresh.request_header()


def test_b26_a_plugin_sourced_message_is_an_ordinary_user_message() -> None:
    session = Session("s")
    source = {"kind": "plugin", "plugin": "@x/y", "form": "notice", "summary": "s"}
    session.append("user/message", user("<note> as is", source=source), "append")
    (message,) = session.derive_messages()
    assert message["role"] == "user"
    assert message["content"] == [text("<note> as is")]


def test_b27_a_derived_message_cannot_be_changed() -> None:
    session = Session("s")
    finished_turn(session)
    before = [event.to_wire() for event in session.events]
    for message in session.derive_messages():
        record: Any = message
        with pytest.raises(TypeError):
            record["role"] = "system"
        with pytest.raises(TypeError):
            record["content"].append(text("x"))
        with pytest.raises(TypeError):
            record["content"][0]["type"] = "image"
    assert [event.to_wire() for event in session.events] == before


def test_b22_other_events_do_not_become_messages_whatever_they_hold() -> None:
    session = Session("s")
    session.append("plugin/event", user())
    session.append("tool/call", called("c"))
    assert session.derive_messages() == []
