"""What the rest of the process hears about leases."""

from __future__ import annotations

from dsh.cordis import Emit
from dsh.core.session import Session
from dsh.sessions.errors import SessionFencedError


class SessionLeaseLost(Emit, name="session/lease-lost"):
    """Another process took a live session over; nothing of it is written any more. Its agent is being cancelled."""

    session: Session
    error: SessionFencedError
