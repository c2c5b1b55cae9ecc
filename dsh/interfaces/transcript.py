"""A session's events as a person reads them: prompts, streamed answers, one line for each tool call, what went wrong.

On a screen with a live region an answer is printed block by block as each becomes complete, and what goes on just now
stands in the region: `display` has the parts. On any other screen text is written as it comes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, Literal

from dsh.llm.content import text_of
from dsh.sessions.cut_reply import CutReply

from .display import markdown
from .display.answer import Answer
from .display.cells import wrapped
from .display.happenings import told
from .display.ink import BOLD, DIM, RED, YELLOW, Ink
from .display.model_wait import ModelWait
from .display.paper import Paper
from .display.reasoning import Reasoning
from .display.status_line import StatusLine
from .display.steers import Steers
from .display.tool_calls import ToolCalls
from .display.turn_end import told_end
from .outcome import end_name
from .screen import Screen
from .terminal_text import visible

LIVE_ROWS: Final = 14
"""Rows of the live region; of more the last ones."""

EXPANDED: Final = 100_000
"""Characters of a tool result that `Transcript.expand` shows."""

OUTCOME_UNKNOWN: Final = "TOOL_OUTCOME_UNKNOWN"
"""The code of a result that was put into a log instead of one that was lost."""

ODD: Final = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
"""What events of other builds of this log may lead to: a display must not break on them."""


class Transcript:
    """Shows events on a screen, whose live region it is.

    reasoning_hint: what is said behind the line about finished reasoning, such as the key that shows it.
    open_reasoning: print all of it instead.
    """

    def __init__(self, screen: Screen, clock: Callable[[], float] = time.monotonic) -> None:
        self._screen = screen
        self._clock = clock
        self._ink = Ink(screen.style)
        self._paper = Paper(screen)
        self._answer = Answer(self._ink)
        self._reasoning = Reasoning(self._ink)
        self._calls = ToolCalls(self._ink)
        self._wait = ModelWait(self._ink)
        self._streamed = False
        self._retry_line: str | None = None
        self._last_result: Sequence[Any] = ()
        self._steers = Steers()
        self.bar = StatusLine(self._ink)
        self.reasoning_hint = ""
        self.open_reasoning = False

    # -- the live region ------------------------------------------------------------------------------------------

    @property
    def ticking(self) -> bool:
        """See `Region`."""
        return self._calls.running or self._wait.running

    def live(self, width: int) -> list[str]:
        """See `Region`."""
        now = self._clock()
        going_on = [*self._reasoning.live(width), *self._answer.live(width), *self._calls.live(width, now)]
        return (going_on or self._wait.live(width, now))[-LIVE_ROWS:]

    def status(self, width: int) -> str:
        """See `Region`."""
        return self.bar.line(width)

    # -- sessions -------------------------------------------------------------------------------------------------

    def follow(
        self, agent: str, past: Iterable[tuple[str, Any]] = (), cap: Callable[[], int | None] = lambda: None
    ) -> None:
        """The events to come are of this agent's session, whose past the status line counts in.

        agent: its label. cap: asks how many tools may run at once.
        """
        self._finish_streams()
        self._calls.forget()
        self._wait.done()
        self.bar.forget(agent, cap)
        for kind, data in past:
            self.recall(kind, data)
        self._screen.changed()

    def recall(self, kind: str, data: Any) -> None:
        """Take from an event of the past what stays known, without showing it."""
        with suppress(*ODD):
            self._known(kind, data)
            self._calls.past(kind, data, self._clock())

    def expand(self, kind: Literal["reasoning", "tool"]) -> None:
        """Print all of the last reasoning, or of the last tool result."""
        text = self._reasoning.text if kind == "reasoning" else visible(text_of(self._last_result))
        shown = text if len(text) <= EXPANDED else f"{text[:EXPANDED]}\n{self._ink.glyphs.ellipsis}"
        if shown.strip():
            self._print("work", self._ink(DIM, self._wrapped(shown)))
        else:
            self.note(f"there is no {'reasoning' if kind == 'reasoning' else 'tool result'} to show yet")

    # -- what happens ---------------------------------------------------------------------------------------------

    def event(self, kind: str, data: Any) -> None:
        """Show one event, if it is one for people."""
        try:
            self._event(kind, data)
            self._known(kind, data)
        except ODD:
            self.note(f"an event {kind} that cannot be shown")
        self._screen.changed()

    def pause(self) -> None:
        """Print what has come of a reply by now: its rest will not be seen."""
        self._finish_streams()

    def message(self, kind: str, data: Any) -> None:
        """Show a message of the past as a whole: the data of a `user/message` or `assistant/message`."""
        message = data if kind == "user/message" else data["message"]
        text = visible(text_of(message["content"]))
        if not text:
            return
        if kind == "user/message":
            self._prompt(">", text)
        elif self._screen.live:
            self._show_answer(text)
            self._finish_streams()
        else:
            self._print("answer", text)

    def broken_off(self, backwards: Iterable[tuple[str, Any]]) -> None:
        """Say that the last turn, whose end was shown to nobody, was cut off. backwards: the events, last first."""
        calls: list[str] = []
        lost: set[str] = set()
        cut_off = False
        pieces: list[tuple[str, Any]] = []
        with suppress(*ODD):
            for kind, data in backwards:
                if kind == "turn/end":
                    if cut_off or data["reason"]["kind"] != "interrupted":
                        break
                    cut_off = True
                elif kind == "turn/start":
                    break
                elif kind == "tool/result" and data.get("error", {}).get("code") == OUTCOME_UNKNOWN:
                    lost.add(data["message"]["source"]["callId"])
                elif kind == "tool/call" and data["callId"] in lost:
                    calls.append(data["name"])
                pieces.append((kind, data))
            if not cut_off:
                return
            reply = CutReply()
            for kind, data in reversed(pieces):
                reply.event(kind, data)
            if text := visible(reply.take()):
                self._show_answer(text)
                self._finish_streams()
            for name in reversed(calls):
                self.note(f"{name}: the process ended before it had a result; what it did is not known", YELLOW)
            self.note("the process ended in the middle of this turn; ask to go on", YELLOW)

    def note(self, text: str, colour: str = DIM) -> None:
        """A line about what happens."""
        self._print("note", self._ink(colour, self._wrapped(visible(text))))

    def error(self, text: str) -> None:
        """A line about what went wrong."""
        self.note(text, RED)

    def config_applied(self, rows: Sequence[str]) -> None:
        """An edit of the configuration is in force, which touched these rows."""
        self.note(f"config applied: {', '.join(rows) or 'no row changed'}")

    def code_reloaded(self, rows: Sequence[str]) -> None:
        """The code of these rows' plugins was reloaded."""
        self.note(f"reloaded: {', '.join(rows)}")

    def _event(self, kind: str, data: Any) -> None:
        match kind:
            case "assistant/chunk":
                self._chunk(data["chunk"])
            case "assistant/message":
                self._reply(data["message"]["content"])
            case "user/message":
                self._user(data)
            case "step/start":
                self._streamed = False
                self._wait.ask(self._clock())
            case "turn/start":
                if self._screen.live:
                    markdown.preload()
            case "tool/call":
                self._call(data["callId"], data["name"], data["arguments"])
            case "tool/result":
                block = data["message"]["content"][0]
                self._result(block["toolCallId"], data, block["content"], bool(block.get("isError")))
            case "tool/code-dispatch-start":
                self._call(data["subCallId"], data["name"], data["arguments"], data["parentCallId"])
            case "tool/code-dispatch":
                self._result(data["subCallId"], data, data["content"], bool(data.get("isError")))
            case "llm/retry":
                self._retry(data)
            case "llm/retry-started":
                self._tell_retry()
                self._wait.ask(self._clock())
            case "turn/end":
                self._turn_end(data["reason"])
            case _:
                if (text := told(kind, data)) is not None:
                    self.note(text)

    def _known(self, kind: str, data: Any) -> None:
        self.bar.event(kind, data)
        if kind == "agent/inbox/spliced":
            self._steers.spliced(data)

    # -- the model ------------------------------------------------------------------------------------------------

    def _chunk(self, chunk: Any) -> None:
        kind = chunk["type"]
        if kind == "text-delta":
            self._wait.done()
            self._finish_reasoning()
            self._streamed = True
            self._show_answer(chunk["text"])
        elif kind == "reasoning-delta":
            self._wait.done()
            self._finish_answer()
            self._streamed = True
            self._reasoning.feed(chunk["text"], self._clock())
            if not self._screen.live:
                self._paper.stream("work", self._ink(DIM, visible(chunk["text"])))
        elif kind == "tool-call-delta":
            self._wait.done()
            self._finish_streams()
            self._calls.written(chunk, self._clock())
        elif kind in ("block-end", "finish"):
            self._finish_streams()
            if kind == "block-end":
                self._wait.go_on(self._clock())
            else:
                self._wait.done()

    def _show_answer(self, text: str) -> None:
        if not self._screen.live:
            self._paper.stream("answer", visible(text))
        else:
            begun = self._answer.begun
            self._print_answer(self._answer.feed(text, self._screen.width), begun)

    def _reply(self, blocks: Sequence[Any]) -> None:
        if not self._streamed:  # a log without the pieces, or of which only the end was heard
            for block in blocks:
                if block["type"] in ("text", "reasoning"):
                    self._chunk({"type": f"{block['type']}-delta", "text": block["text"]})
        self._finish_streams()
        self._wait.done()
        self._streamed = False
        self._calls.announced({block["id"]: block["name"] for block in blocks if block["type"] == "tool-call"})

    def _finish_streams(self) -> None:
        self._paper.close()
        self._finish_reasoning()
        self._finish_answer()

    def _finish_answer(self) -> None:
        begun = self._answer.begun
        self._print_answer(self._answer.finish(self._screen.width), begun)

    def _print_answer(self, text: str | None, begun: bool) -> None:
        if text is not None:
            self._paper.print("answer", text, apart=not begun)

    def _finish_reasoning(self) -> None:
        line = self._reasoning.finish(self._clock(), whole=self.open_reasoning, hint=self.reasoning_hint)
        if line is not None and self._screen.live:
            self._paper.print("work", self._ink(DIM, self._wrapped(line)))

    def _retry(self, data: Any) -> None:
        self._finish_streams()
        self._calls.announced({})
        broke_off, self._streamed = self._streamed, False
        line = self._wait.retry(data, self._clock())
        self._retry_line = f"{line}{'; what stands above comes again' if broke_off else ''}"
        if not self._screen.live:
            self._tell_retry()

    def _tell_retry(self) -> None:
        """Print what was counted down in the live region until now."""
        if self._retry_line is not None:
            self.note(self._retry_line, YELLOW)
            self._retry_line = None

    # -- tools ----------------------------------------------------------------------------------------------------

    def _call(self, id: str, name: str, arguments: Any, parent: str | None = None) -> None:
        self._finish_streams()
        call = self._calls.start(id, name, arguments, self._clock(), parent)
        if not self._screen.live:
            self._print("work", self._calls.begun(call, self._screen.width))

    def _result(self, id: str, data: Any, content: Any, failed: bool) -> None:
        self._finish_streams()
        self._last_result = content
        shown = self._calls.end(id, data, content, failed, self._clock(), self._screen.width)
        self._print("work", shown)

    # -- turns ----------------------------------------------------------------------------------------------------

    def _user(self, message: Any) -> None:
        text = text_of(message["content"])
        steer = self._steers.entered(message)
        source = message["source"]
        if source["kind"] == "user" and text:
            self._prompt(self._ink.glyphs.steer if steer else ">", visible(text))
        elif source.get("form") in ("notice", "relay") and text:
            first = str(source.get("summary") or text_of(message["content"][:1])).strip().split("\n", 1)[0]
            self.note(f"{source.get('plugin', source['kind'])}: {first}")

    def _turn_end(self, reason: Any) -> None:
        self._finish_streams()
        self._tell_retry()
        self._wait.done()
        self._streamed = False
        for line in self._calls.abandon(self._clock(), self._screen.width):
            self._print("work", line)
        for colour, line in told_end(end_name(reason), reason):
            self.note(line, colour)

    # -- printing -------------------------------------------------------------------------------------------------

    def _prompt(self, sign: str, text: str) -> None:
        below = " " * (len(sign) + 1)
        rows = self._wrapped(text.rstrip("\n"), len(below)).split("\n")
        self._print("prompt", self._ink(BOLD, f"{sign} " + f"\n{below}".join(rows)))

    def _wrapped(self, text: str, margin: int = 0) -> str:
        """Broken at words where the screen ends; a pipe has no end."""
        return "\n".join(wrapped(text, max(1, self._screen.width - margin))) if self._screen.live else text

    def _print(self, kind: Literal["prompt", "answer", "work", "note"], text: str) -> None:
        """Something that stands by itself; an answer that is still coming goes on below it."""
        self._paper.close()
        self._paper.print(kind, text)
