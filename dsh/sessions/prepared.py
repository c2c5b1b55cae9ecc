"""Sessions loaded from disk and not yet live: one reserved per opening, some kept warm after they were given back."""

from __future__ import annotations

from collections import OrderedDict

from dsh.cordis.records import identity_struct, struct
from dsh.core.session import Session
from dsh.sessions.backend import Hold


@identity_struct
class Reservation:
    """The exclusive right to bring one session to life. stored: events of it that are on disk.

    fresh: it was taken for a new session instead of a stored one.
    """

    session: Session
    hold: Hold
    stored: int
    revision: str | None = None
    fresh: bool = False


@struct
class Warm:
    """A loaded session that nobody uses. seq: its length when it was loaded; revision: of the log behind it."""

    session: Session
    stored: int
    seq: int
    revision: str

    @property
    def untouched(self) -> bool:
        """Nobody appended to it while it was out."""
        return self.session.seq == self.seq and self.session.publication is None


class WarmSessions:
    """The most recently used loaded sessions, `size` of them."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._kept: OrderedDict[str, Warm] = OrderedDict()

    def put(self, warm: Warm) -> None:
        """Keep a session, dropping the one unused for longest."""
        self._kept[warm.session.id] = warm
        self._kept.move_to_end(warm.session.id)
        while len(self._kept) > self.size:
            self._kept.popitem(last=False)

    def take(self, session_id: str, revision: str | None) -> Warm | None:
        """Take a session out, if its log is still the one it was loaded from."""
        warm = self.peek(session_id, revision)
        self.drop(session_id)
        return warm

    def peek(self, session_id: str, revision: str | None) -> Warm | None:
        """Look at a session that stays where it is."""
        warm = self._kept.get(session_id)
        return warm if warm is not None and warm.revision == revision and warm.untouched else None

    def drop(self, session_id: str) -> None:
        """Forget a session."""
        self._kept.pop(session_id, None)
