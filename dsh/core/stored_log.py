"""Reading a stored log: what stands between parsed rows and a session.

Rows are unpacked, old shapes are translated, unknown event types refused, message shapes checked; in this order.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dsh.core.event_types import refuse_unknown_types
from dsh.core.legacy import import_legacy
from dsh.core.message_shape import check_message_event
from dsh.core.session_event import SURFACE_TYPES, SessionEvent


def interpret_events(
    session_id: str, events: Sequence[SessionEvent], extra_types: Collection[str] = ()
) -> list[SessionEvent]:
    """The events of an unpacked log (or of a tail of one) as this build understands them.

    extra_types: names that plugins registered beside the built-in ones. Raises LegacyLogError, UnknownEventTypeError,
    or SessionError for a message event of the wrong shape.
    """
    read = import_legacy(session_id, events)
    refuse_unknown_types(session_id, read, extra_types)
    for event in read:
        if event.type in SURFACE_TYPES:
            check_message_event(event.type, event.data, f"session event at seq {event.seq}")
    return read
