"""What else is seen: prompts and steers, reasoning, waiting, retries, errors with advice, notes, the status line."""

from __future__ import annotations

from typing import Any

import pytest

from dsh.llm.prices import Prices
from tests.interfaces.display.kit import Session, message


def test_reasoning_streams_in_the_live_region_and_leaves_one_line() -> None:
    session = Session(width=40)
    session.transcript.reasoning_hint = "; Ctrl-O shows it"
    session.thinks("The user wants ", "something that I have to think about ", "for a while, so I think and think.")
    assert session.text == "" and session.live().endswith("I think and\nthink.")
    assert len(session.live().split("\n")) == 3
    session.now += 3.2
    session.chunk("block-end")
    assert session.text == "∴ thought for 3.2 s, 18 words; Ctrl-O\nshows it" and session.live() == ""
    session.transcript.expand("reasoning")
    assert session.text.endswith("something that I have to\nthink about for a while, so I think and\nthink.")


def test_reasoning_is_printed_whole_where_that_is_wished() -> None:
    session = Session()
    session.transcript.open_reasoning = True
    session.thinks("step one\n", "step two")
    session.says("So.")
    assert session.text == "step one\nstep two"


def test_the_rows_of_long_reasoning_stay_where_they_are() -> None:
    session = Session(width=40)
    session.thinks("word " * 300)
    first = session.live()
    session.thinks("more")
    assert first.split("\n")[:2] == session.live().split("\n")[:2]


def test_waiting_for_the_model_shows_for_how_long() -> None:
    session = Session()
    session.event("step/start")
    session.now += 65
    assert session.live().endswith("waiting for the model, 1 min 05 s") and session.transcript.ticking
    session.says("Here.")
    assert session.live() == "Here." and not session.transcript.ticking


def test_a_reply_that_goes_on_after_a_while_is_waited_for() -> None:
    session = Session()
    session.thinks("hm")
    session.chunk("block-end")
    assert session.live() == ""
    session.now += 3
    assert session.live().endswith("waiting for the model, 2 s")
    session.chunk("finish")
    assert session.live() == ""


def test_a_retry_counts_down_with_its_reason() -> None:
    session = Session()
    session.says("Half an ans")
    failure = {"message": "the server is overloaded", "code": "SERVER"}
    session.event("llm/retry", retry=2, maxRetries=5, delayMs=8000, failure=failure)
    assert session.text == "Half an ans"
    assert session.live() == "↻ retry 2 of 5 in 8 s: the server is overloaded"
    session.now += 5
    assert session.live().startswith("↻ retry 2 of 5 in 3 s") and session.transcript.ticking
    session.event("llm/retry-started", retry=2)
    assert session.text == (
        "Half an ans\n\nretry 2 of 5, after 8.0 s: the server is overloaded; what\nstands above comes again"
    )
    assert "waiting for the model" in session.live()
    session.ends(kind="aborted", reason={"kind": "user"})
    assert session.live() == "" and not session.transcript.ticking


def test_prompts_are_shown_when_they_enter_and_steers_are_told_from_them() -> None:
    session = Session()
    session.user("first line\nsecond line")
    session.event("agent/inbox/spliced", target="next-step", start=0, inserted=[message("to the left", "s")])
    session.event("agent/inbox/spliced", target="next-step", start=0, removedCount=1, inserted=[])
    session.user("to the left", "s")
    assert session.text == "> first line\n  second line\n» to the left"


def test_only_notices_of_what_plugins_tell_the_model_are_shown() -> None:
    session = Session()
    snapshot = {**message("context", "a"), "source": {"kind": "plugin", "plugin": "system-prompt", "form": "snapshot"}}
    notice = {**message("Job 3 ended.\nOutput: …", "b"), "source": {"kind": "job", "form": "notice"}}
    session.event("user/message", **snapshot)
    session.event("user/message", **notice)
    assert session.text == "job: Job 3 ended."


@pytest.mark.parametrize(
    ("reason", "lines"),
    [
        (
            {"kind": "error", "error": {"code": "QUOTA", "message": "HTTP 402"}},
            "QUOTA: HTTP 402\n  the account has no credit left: top it up, or switch to another model",
        ),
        (
            {"kind": "error", "error": {"code": "AUTH", "message": "no key (store it with `dsh credentials set X`)"}},
            "AUTH: no key (store it with `dsh credentials set X`)",
        ),
        ({"kind": "max-tokens"}, "turn ended: max-tokens\n  the answer reached maxTokens: raise it, or ask to go on"),
        (
            {"kind": "aborted", "reason": {"kind": "hook", "reason": "turn limit: 3 steps"}},
            "turn ended: aborted (turn limit: 3 steps)",
        ),
        ({"kind": "aborted", "reason": {"kind": "disposed"}}, "turn ended: disposed"),
        ({"kind": "completed"}, ""),
    ],
)
def test_a_turn_that_went_wrong_says_so_and_what_to_do(reason: dict[str, object], lines: str) -> None:
    session = Session(width=100)
    session.ends(**reason)
    assert session.text == lines


def test_what_happens_beside_the_conversation_is_one_quiet_line() -> None:
    session = Session(colour=True)
    session.event("approval/asked", toolName="bash", reason="writes outside of the workspace")
    session.event("approval/decided", outcome="allowed-once")
    todos = [{"content": "a", "status": "completed"}, {"content": "b", "status": "in_progress"}]
    session.event("todo/write", todos=todos)
    session.transcript.note("config applied: bash")
    assert session.text.split("\n") == [
        "bash asks for approval: writes outside of the workspace",
        "approval: allowed-once",
        "todo 1/2: b",
        "config applied: bash",
    ]
    assert session.screen.printed[-1] == "\x1b[2mconfig applied: bash\x1b[0m"


def used(session: Session, sent: int, received: int, step: int = 1) -> None:
    usage = {"inputTokens": sent, "outputTokens": received}
    session.event("assistant/chunk", step=step, chunk={"type": "usage", "usage": usage})
    session.event("assistant/message", step=step, message={"content": []}, usage=usage)


def test_the_status_line_tells_agent_model_context_use_and_cap() -> None:
    session = Session(width=100)
    cap = 10
    session.transcript.follow("main", cap=lambda: cap)
    assert session.status() == "main · 10 at once"
    session.event("request/context", provider="p", model="deepseek-flash", contextWindow=128_000)
    used(session, 12_000, 300)
    used(session, 14_000, 500, step=2)
    session.ends()
    cap = 4
    assert session.status() == "main · deepseek-flash · context 14.5k/128k (11%) · 26.0k in, 800 out · 4 at once"
    assert session.status(60) == "main · deepseek-flash · context 14.5k/128k (11%) · 4 at once"
    assert session.status(34) == "main · context 14.5k/128k (11%)"
    assert session.status(24) == "main · deepseek-flash"
    assert session.status(4) == "main"
    assert session.status(3) == "ma…"


def test_the_status_line_tells_the_cost_as_soon_as_a_price_is_known_and_keeps_it_longer_than_the_tokens() -> None:
    session = Session(width=100)
    rates: dict[str, Prices] = {}
    session.transcript.bar.rates = lambda: rates
    session.transcript.follow("main")
    session.event("request/context", provider="p", model="m")
    used(session, 12_000, 300)
    assert session.status() == "main · m · context 12.3k · 12.0k in, 300 out"
    rates["p/m"] = Prices(input=0.3, cached_input=0.006, output=1.2)
    assert session.status() == "main · m · context 12.3k · 12.0k in, 300 out · $0.0040"
    session.event("request/context", provider="p", model="other")
    used(session, 3000, 100, step=2)
    assert session.status(75) == "main · other · context 3.1k · $0.0040 + 3.1k tokens without a price"
    assert session.status(30) == "main · other · context 3.1k"


def test_the_status_line_knows_the_past_of_a_session_and_forgets_the_one_before() -> None:
    session = Session(width=100)
    used(session, 999, 999)
    usage = {"inputTokens": 5, "cacheReadTokens": 2, "outputTokens": 1}
    past = [
        ("request/context", {"model": "m"}),
        ("assistant/message", {"turn": 1, "step": 1, "usage": usage}),
        ("turn/end", {"reason": {"kind": "completed"}}),
    ]
    session.transcript.follow("other", past)
    assert session.status() == "other · m · context 8 · 7 in, 1 out"
    assert session.text == ""


def test_the_tools_that_run_when_one_comes_to_a_session_are_seen() -> None:
    session = Session()
    past = [
        ("tool/call", {"callId": "a", "name": "bash", "arguments": '{"command": "make"}'}),
        ("tool/call", {"callId": "b", "name": "read", "arguments": "{}"}),
        ("tool/result", {"message": {"content": [{"type": "tool-result", "toolCallId": "b", "content": []}]}}),
    ]
    session.transcript.follow("main", past)
    assert session.live().endswith("bash make · 0 s") and session.text == ""
    session.transcript.follow("main", [*past, ("turn/end", {"reason": {"kind": "completed"}})])
    assert session.live() == ""


def test_a_nearly_full_context_stands_out() -> None:
    session = Session(width=100, colour=True)
    session.event("request/context", model="m", contextWindow=1000)
    used(session, 900, 50)
    assert "\x1b[33mcontext 950/1.0k (95%)\x1b[0m" in session.transcript.status(100)


def test_signs_that_an_encoding_lacks_are_spelled_in_ascii() -> None:
    session = Session(encoding="iso-8859-1")
    session.thinks("hm")
    session.chunk("block-end")
    session.call("a", "bash", command="echo " + "x" * 100)
    session.live().encode("ascii")
    session.result("a", "out")
    session.call("b", "read", file_path="b")
    session.result("b", "no", failed=True)
    assert session.text.split("\n")[0] == "* thought, 1 word"
    assert session.text.split("\n")[2].startswith("x read b - no")
    session.text.encode("ascii")


def test_a_turn_that_the_end_of_its_process_cut_off_is_told_with_the_calls_that_were_lost() -> None:
    call: list[tuple[str, Any]] = [
        ("turn/start", {}),
        ("tool/call", {"callId": "a", "name": "bash"}),
        ("tool/result", {"message": {"source": {"callId": "a"}}, "error": {"code": "TOOL_OUTCOME_UNKNOWN"}}),
    ]
    cut, done = ("turn/end", {"reason": {"kind": "interrupted"}}), ("turn/end", {"reason": {"kind": "completed"}})
    for events, told in (
        ([*call, cut], ("bash: the process ended", "ended in the middle")),
        (call[1:] + [cut], ("bash: the process ended", "ended in the middle")),  # the last page of a log
        ([done, cut], ("ended in the middle",)),
        (
            [
                done,
                *(("assistant/chunk", {"chunk": {"type": "text-delta", "text": t}}) for t in ("half ", "of it")),
                cut,
            ],
            ("half of it", "ended in the middle"),
        ),
        ([*call, cut, *call, done], ()),
        (call, ()),
        ([], ()),
    ):
        session = Session(width=200)
        session.transcript.broken_off(reversed(events))
        assert len(session.screen.printed) == len(told), events
        for text in told:
            assert text in session.text
