"""Checking stored logs without writing: what opening each would find, mend or refuse.

Every check that a resume makes is made, plus those that a resume can afford to skip.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import field

from dsh.cordis.errors import describe_error
from dsh.cordis.records import struct
from dsh.sessions.errors import SessionPersistenceCorruptionError, SessionPersistenceError
from dsh.sessions.lease import LeaseState, probe
from dsh.sessions.loading import to_session
from dsh.sessions.log_file import StoredLog, read_log
from dsh.sessions.paths import decode_id
from dsh.sessions.stored import check_place, find_artifact, list_stored, reason_of


@struct
class VerifyReport:
    """What was found in one log.

    problems: why it cannot be opened. repairs: what opening it would mend. notes: worth knowing, nothing wrong.
    turns, events: as stored. lease: who holds or held it.
    """

    id: str | None
    path: str
    events: int = 0
    turns: int = 0
    problems: list[str] = field(default_factory=list)
    repairs: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    lease: LeaseState | None = None

    @property
    def ok(self) -> bool:
        """The session can be opened."""
        return not self.problems


def verify_log(path: str, extra_types: Collection[str] = frozenset()) -> VerifyReport:
    """Check one log file. extra_types: event types that plugins of the composition add. Never raises."""
    directory = os.path.dirname(path)
    named = decode_id(os.path.basename(directory))
    report = VerifyReport(named, path)
    report.lease = probe(directory)
    if report.lease.locked:
        report.notes.append(f"open in pid {report.lease.record.pid} on {report.lease.record.host}")
    try:
        log = read_log(path, named or os.path.basename(directory))
        report.id = log.header.id
        _describe(report, log)
        check_place(path, log.header)
        _, closers = to_session(log, extra_types)
        if closers:
            report.repairs.append(f"an interrupted turn is closed with {len(closers)} events")
    except SessionPersistenceCorruptionError as error:
        report.problems.append(error.why)
    except OSError as error:
        report.problems.append(reason_of(error))
    except SessionPersistenceError as error:
        report.problems.append(describe_error(error))
    return report


def verify_stored(
    root: str, session_id: str | None = None, extra_types: Collection[str] = frozenset()
) -> Iterator[VerifyReport]:
    """Check one session of a root, or all of them and whatever else stands among them."""
    if session_id is not None:
        try:
            path = find_artifact(root, session_id)
        except SessionPersistenceCorruptionError as error:
            yield VerifyReport(session_id, root, problems=[error.why])
            return
        if path is None:
            yield VerifyReport(session_id, root, problems=["not found"])
        else:
            yield verify_log(path, extra_types)
        return
    listing = list_stored(root)
    for entry in listing.sessions:
        yield verify_log(entry.path, extra_types)
    for bad in listing.unreadable:
        yield VerifyReport(bad.id, bad.path, problems=[bad.reason])


def _describe(report: VerifyReport, log: StoredLog) -> None:
    report.events = len(log.events)
    report.turns = sum(event.type == "turn/start" for event in log.events)
    if log.torn:
        recovered = len(log.events) - log.rewrite
        kept = f", {recovered} events in it are kept" if recovered else ""
        report.repairs.append(f"{log.size - log.keep} bytes of an interrupted write are cut{kept}")
    last = 0
    backwards = 0
    for event in log.events:
        backwards += event.time < last
        last = event.time
    if backwards:
        report.notes.append(f"the clock went backwards {backwards} times")
