"""From a stored log to events and to a session, with every fault turned into an error that names session and file."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

from dsh.core.event_types import UnknownEventTypeError
from dsh.core.legacy import LegacyLogError, import_legacy
from dsh.core.repair import interrupted_turn_closers
from dsh.core.session import Session
from dsh.core.session_event import SessionError, SessionEvent
from dsh.core.stored_log import interpret_events
from dsh.sessions.errors import SessionFormatUnsupportedError, SessionPersistenceCorruptionError
from dsh.sessions.log_file import StoredLog


@contextmanager
def faults_named(session_id: str, path: str | None) -> Iterator[None]:
    """Turn what the session log refuses into errors about a stored session."""
    try:
        yield
    except UnknownEventTypeError as error:
        raise SessionFormatUnsupportedError(str(error), path) from error
    except LegacyLogError as error:
        refused = SessionFormatUnsupportedError(str(error))
        refused.location = path
        raise refused from error
    except (SessionError, KeyError, TypeError, AttributeError) as error:
        # The closers read shapes that only a session's own checks guarantee.
        why = str(error) if isinstance(error, SessionError) else f"malformed event data ({error!r})"
        raise SessionPersistenceCorruptionError(session_id, why) from error


def understand(log: StoredLog, extra_types: Collection[str]) -> list[SessionEvent]:
    """The events of a log, old shapes translated and unknown types refused."""
    with faults_named(log.header.id, log.path):
        return interpret_events(log.header.id, log.events, extra_types)


def understand_from(log: StoredLog, seq: int, extra_types: Collection[str]) -> list[SessionEvent]:
    """The events from number `seq` on; only they are judged."""
    tail = log.events[seq:]
    with faults_named(log.header.id, log.path):
        if any(_needs_prefix(event) for event in tail):
            tail = import_legacy(log.header.id, log.events)[seq:]
        return interpret_events(log.header.id, tail, extra_types)


def repaired(log: StoredLog, extra_types: Collection[str]) -> tuple[list[SessionEvent], list[SessionEvent]]:
    """(events, closers): the log as it would be resumed, and which events are to be added to it for that."""
    events = understand(log, extra_types)
    with faults_named(log.header.id, log.path):
        closers = interrupted_turn_closers(events, log.header.seed_length or 0)
    return events, closers


def to_session(log: StoredLog, extra_types: Collection[str]) -> tuple[Session, list[SessionEvent]]:
    """An unpublished session over the repaired log, and the closers that are still to be stored.

    Safe on a worker thread. Raises SessionFormatUnsupportedError and SessionPersistenceCorruptionError.
    """
    events, closers = repaired(log, extra_types)
    with faults_named(log.header.id, log.path):
        session = Session(log.header.id, header=log.header, seed=[*events, *closers], seed_source="persistence")
    return session, closers


def is_prefix(stored: Sequence[SessionEvent], events: Sequence[SessionEvent]) -> bool:
    """Whether a log is the beginning of a session's events."""
    return len(stored) <= len(events) and all(a == b for a, b in zip(stored, events, strict=False))


def _needs_prefix(event: SessionEvent) -> bool:
    """An old result rewrite takes its message id from the result it replaces."""
    return (
        event.type == "tool/result"
        and isinstance(event.surface_op, Mapping)
        and isinstance(event.data, Mapping)
        and "message" not in event.data
    )
