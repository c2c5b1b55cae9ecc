"""Whatever a log holds, its transcript is shown: nothing raises, nothing hidden reaches the terminal, rows fit."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsh.core.event_types import KNOWN_EVENT_TYPES
from dsh.interfaces.display import markdown
from dsh.interfaces.screen import PlainScreen
from dsh.interfaces.transcript import Transcript
from tests.conformance.corpus import Case, decode_log, label, logs_with_facts
from tests.interfaces.display.kit import HIDDEN, Session, plain

WIDTHS = (1, 2, 20, 57, 200)

# What breaks displays: wide, joined and combining characters, control sequences, surrogates, markdown half begun.
TEXTS = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        ["中文字符" * 10, "👩\u200d👩\u200d👧❤\ufe0f", "a\u0301\u0301", "\x1b[2J\x1b]0;t\x07", "\ud800", "\U000e0067",
         "| a | b |\n|--", "|\n| c |", "```py\n", "\n```\n", "\n\n", "- x\n", "    y", "**b", "<b>&#27;[8m", "\r\n",
         "x" * 300, "\t", "1. ", "~~~", "# ", "> ", "***\n", "[a](b)", "![i](j)", ""]
    ),
)  # fmt: skip
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-5, 10**12), st.floats(allow_nan=False), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=6,
)
IDS = st.sampled_from(["a", "b", "c"])


def blocks() -> st.SearchStrategy[Any]:
    text = st.fixed_dictionaries({"type": st.just("text"), "text": TEXTS})
    call = st.fixed_dictionaries({"type": st.just("tool-call"), "id": IDS, "name": TEXTS, "arguments": TEXTS})
    return st.lists(st.one_of(text, call, st.just({"type": "image"})), max_size=3)


def shaped(kind: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[str, Any]]:
    where = {"turn": st.integers(1, 3), "step": st.integers(1, 3)}
    return st.tuples(st.just(kind), st.fixed_dictionaries({**where, **fields}))


CHUNKS = st.one_of(
    st.fixed_dictionaries({"type": st.sampled_from(["text-delta", "reasoning-delta"]), "text": TEXTS}),
    st.fixed_dictionaries({"type": st.just("tool-call-delta"), "id": IDS, "name": TEXTS, "argumentsDelta": TEXTS}),
    st.fixed_dictionaries({"type": st.sampled_from(["block-end", "finish", "other"])}),
    st.fixed_dictionaries({"type": st.just("usage"), "usage": st.just({"inputTokens": 5, "outputTokens": 2})}),
)
RESULTS = st.fixed_dictionaries({"toolCallId": IDS, "content": blocks(), "isError": st.booleans()})
DIFFS = st.lists(st.fixed_dictionaries({"path": TEXTS, "oldText": TEXTS, "newText": TEXTS}), max_size=3)
SHAPED = st.one_of(
    shaped("assistant/chunk", chunk=CHUNKS),
    shaped("assistant/chunk", chunk=CHUNKS),
    shaped("assistant/message", message=st.fixed_dictionaries({"content": blocks()})),
    shaped("tool/call", callId=IDS, name=TEXTS, arguments=st.one_of(TEXTS, st.just('{"command": "ls"}'))),
    shaped(
        "tool/result",
        message=st.fixed_dictionaries({"content": st.tuples(RESULTS)}),
        meta=st.one_of(st.fixed_dictionaries({"diffs": DIFFS}), VALUES),
    ),
    shaped(
        "llm/retry",
        retry=st.integers(0, 9),
        delayMs=st.floats(0, 1e6),
        failure=st.fixed_dictionaries({"message": TEXTS, "code": TEXTS}),
    ),
    shaped("user/message", id=IDS, source=st.sampled_from([{"kind": "user"}, {"kind": "x"}]), content=blocks()),
    shaped("request/context", model=TEXTS, contextWindow=st.integers(0, 200_000)),
    shaped("turn/end", reason=st.sampled_from([{"kind": "completed"}, {"kind": "aborted"}, {"kind": "error"}])),
)
ANY = st.tuples(st.sampled_from(sorted(KNOWN_EVENT_TYPES)), VALUES)


def check(session: Session, events: list[tuple[str, Any]]) -> None:
    session.transcript.follow("中文 agent\x1b[2J", cap=lambda: 10)
    for kind, data in events:
        session.transcript.event(kind, data)
        session.now += 0.3
        for width in WIDTHS:
            live = session.live(width)
            assert not HIDDEN.search(live), live
            session.status(width)
    session.transcript.follow("again", events)
    session.live()
    session.transcript.expand("reasoning")
    session.transcript.expand("tool")
    assert not HIDDEN.search(session.text), session.text


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(SHAPED, ANY), max_size=12), st.booleans(), st.sampled_from(["utf-8", "ascii"]))
def test_no_log_raises_or_is_wider_than_the_screen(events: list[tuple[str, Any]], colour: bool, encoding: str) -> None:
    markdown.rendered("", 10, Session().transcript._ink.glyphs)  # imported before, so that the region is rendered, too
    check(Session(colour=colour, encoding=encoding), events)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(SHAPED, ANY), max_size=12), st.sampled_from(["utf-8", "ascii"]))
def test_no_log_breaks_a_pipe(events: list[tuple[str, Any]], encoding: str) -> None:
    raw = io.BytesIO()
    transcript = Transcript(PlainScreen(io.TextIOWrapper(raw, encoding)))
    for kind, data in events:
        transcript.event(kind, data)
    assert not HIDDEN.search(raw.getvalue().decode(encoding))


@pytest.mark.parametrize(("case", "path"), logs_with_facts(), ids=label)
def test_recorded_logs_are_shown(case: Case, path: Path) -> None:
    events = [(event.type, event.data) for event in decode_log(path).read()]
    session = Session(colour=True)
    check(session, events)
    assert "cannot be shown" not in session.text
    calls = [data["name"] for kind, data in events if kind == "tool/call"]
    shown = [line for line in session.text.split("\n") if line[:1] in "✓✗⊘" and line[1:2] == " "]
    assert len(shown) >= len(calls)
    for kind, data in events:
        if kind == "assistant/message":
            for block in data["message"]["content"]:
                if block["type"] == "text" and block["text"].isalnum():
                    assert block["text"] in plain(session.text)
