"""What a run came to, read from its session: final text, usage, how the last turn ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from dsh.cordis import HarnessError, describe_error
from dsh.cordis.jsonio import encode
from dsh.cordis.records import struct
from dsh.llm.content import text_of

from .stdout import LineOutput, say

if TYPE_CHECKING:
    from dsh.core.session import Session
    from dsh.core.session_event import SessionEvent


@struct
class Outcome:
    """The result of the turns since ``from_seq``.

    ``status`` is the kind of the last ``turn/end`` (``disposed`` for a turn that a shutdown ended), ``none`` when no
    turn ended; ``usage`` sums the reported token counts; ``error`` is ``{message, code, …}`` of a failed turn; ``why``
    tells what cut a turn short, if anybody said.
    """

    session_id: str | None
    output: str = ""
    status: str = "none"
    turns: int = 0
    usage: dict[str, int] = field(default_factory=dict)
    error: dict[str, Any] | None = None
    why: str | None = None

    @property
    def exit_code(self) -> int:
        """0 for a completed run, 1 for anything else."""
        return 0 if self.status == "completed" else 1

    def to_wire(self) -> dict[str, Any]:
        """The JSON object of ``--output json``."""
        wire: dict[str, Any] = {
            "sessionId": self.session_id,
            "output": self.output,
            "status": self.status,
            "usage": self.usage,
            "turns": self.turns,
        }
        if self.error is not None:
            wire["error"] = self.error
        return wire


def outcome_of(session: Session, from_seq: int = 0) -> Outcome:
    """Fold the events of ``session`` from ``from_seq`` on."""
    events = session.events
    return outcome_from(session.id, (events[seq] for seq in range(from_seq, len(events))))


def outcome_from(session_id: str, events: Iterable[SessionEvent]) -> Outcome:
    """Fold events of one session."""
    outcome = Outcome(session_id)
    samples: Samples = {}
    for event in events:
        kind, data = event.type, event.data
        _note_usage(samples, kind, data)
        if kind == "assistant/message":
            if text := text_of(data["message"]["content"]):
                outcome.output = text
        elif kind == "turn/end":
            outcome.turns += 1
            outcome.status = end_name(data["reason"])
            outcome.error = data["reason"].get("error")
            cause = data["reason"].get("reason")
            outcome.why = cause.get("reason") if isinstance(cause, Mapping) else None
    outcome.usage = _sum_of(samples)
    return outcome


Samples = dict[tuple[int, int], Mapping[str, int]]
"""The last usage that was reported of each step, by turn and step."""


def _note_usage(samples: Samples, kind: str, data: Any) -> None:
    if kind == "assistant/chunk" and data["chunk"]["type"] == "usage":
        samples[data["turn"], data["step"]] = data["chunk"]["usage"]
    elif kind == "assistant/message" and "usage" in data:
        samples[data["turn"], data["step"]] = data["usage"]


def _sum_of(samples: Samples) -> dict[str, int]:
    usage: dict[str, int] = {}
    for sample in samples.values():
        for name, count in sample.items():
            usage[name] = usage.get(name, 0) + count
    return usage


def unended(session: Session, from_seq: int, why: str) -> Outcome:
    """The outcome of a run that is left although its turn, aborted for the reason `why`, has not ended."""
    outcome = outcome_of(session, from_seq)
    calls: dict[str, str] = {}
    for event in session.events[from_seq:]:
        if event.type == "tool/call":
            calls[event.data["callId"]] = event.data["name"]
        elif event.type == "tool/result":
            calls.pop(event.data["message"]["source"]["callId"], None)
    names = sorted(set(calls.values()))
    deaf = f"the tool{'s' * (len(names) > 1)} {', '.join(names)}" if names else "the turn"
    outcome.status, outcome.why = "aborted", f"{why}; {deaf} did not stop"
    return outcome


def report(out: LineOutput, form: str, outcome: Outcome) -> None:
    """Write the result to standard output in the form asked for, and to standard error why it failed."""
    if form == "text":
        out.write(outcome.output + "\n")
    else:
        write_result(out, form, outcome)
    if outcome.error is not None:
        say(f"{outcome.error['code']}: {outcome.error['message']}")
    elif outcome.exit_code:
        why = f": {outcome.why}" if outcome.why else ""
        say(f"the turn ended as {outcome.status}{why}")


def report_failure(out: LineOutput, form: str, error: Exception, outcome: Outcome | None = None) -> None:
    """Report a run that raised; `outcome` is what had come of it by then, if it had begun."""
    code = error.code if isinstance(error, HarnessError) else type(error).__name__
    message = describe_error(error)
    say(f"{code}: {message}")
    outcome = outcome or Outcome(None)
    outcome.status, outcome.error = "error", {"message": message, "code": code}
    write_result(out, form, outcome)


def write_event(out: LineOutput, session_id: str, event: SessionEvent) -> None:
    """Write one event of a session as a line of ``stream-json``, made when the reader has room for it."""

    def line() -> bytes:
        return encode({"type": "session_event", "sessionId": session_id, "event": event.to_wire()}) + b"\n"

    if not out.concluded:  # nothing follows the result of a run
        out.write_later(line)


def write_result(out: LineOutput, form: str, outcome: Outcome) -> None:
    """Write the last line of a run's output for programs; nothing in the form for people."""
    if form == "text":
        return
    wire = outcome.to_wire()
    if form == "stream-json":
        reason = wire.pop("status")
        del wire["turns"]
        wire = {"type": "result", **wire, "reason": reason}
    out.write_json(wire)
    out.concluded = True


def end_name(reason: Any) -> str:
    """How a person reads a turn's end."""
    kind: str = reason["kind"]
    if kind == "aborted" and reason.get("reason", {}).get("kind") == "disposed":
        return "disposed"
    return kind
