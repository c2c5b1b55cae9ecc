"""An agent's pending input: two lists, every change one logged splice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from dsh.cordis import HarnessError
from dsh.cordis.records import identity_struct

from .agent_events import InboxClaimed, InboxDiscarded, InboxInserted
from .message_shape import whole_user_message

if TYPE_CHECKING:
    from dsh.llm.types import Message

    from .agent import Agent, InboxTarget
    from .session import Session
    from .session_event import SessionEvent

TARGETS: tuple[InboxTarget, InboxTarget] = ("next-step", "next-turn")
SPLICED = "agent/inbox/spliced"


@identity_struct
class Claim:
    """What one step took out of the inbox, kept until the step starts so that it can go back."""

    _taken: dict[InboxTarget, list[Message]] = field(default_factory=dict)

    def add(self, target: InboxTarget, messages: list[Message]) -> None:
        """Record ``messages`` taken from the list ``target``."""
        self._taken[target] = messages

    @property
    def messages(self) -> tuple[Message, ...]:
        """Everything taken, in delivery order."""
        return tuple(message for target in TARGETS for message in self._taken.get(target, ()))

    def items(self) -> list[tuple[InboxTarget, list[Message]]]:
        """What came from which list."""
        return [(target, messages) for target, messages in self._taken.items() if messages]

    def settle(self) -> None:
        """The step took the messages over: nothing is left to give back."""
        self._taken.clear()


class Inbox:
    """Pending messages of one agent, a projection of the log's splices.

    ``next-turn`` holds prompts, one a turn; ``next-step`` holds what joins the next step together.
    Each mutation validates, appends its event, then changes the lists, then notifies.
    """

    def __init__(self, session: Session, agent: Agent, notify: Callable[[Any], None]) -> None:
        self._session = session
        self._agent = agent
        self._notify = notify
        self._lists = pending_in(session.events, session.header.seed_length or 0)

    @property
    def next_turn(self) -> tuple[Message, ...]:
        """Prompts that wait for a turn of their own."""
        return tuple(self._lists["next-turn"])

    @property
    def next_step(self) -> tuple[Message, ...]:
        """Messages that join the next step."""
        return tuple(self._lists["next-step"])

    @property
    def has_next_step(self) -> bool:
        """Whether anything waits for the next step boundary."""
        return bool(self._lists["next-step"])

    @property
    def has_pending(self) -> bool:
        """Whether anything waits at all."""
        return bool(self._lists["next-step"] or self._lists["next-turn"])

    def append(self, target: InboxTarget, message: Message) -> None:
        """Put ``message`` at the end of ``target``."""
        self.splice(target, len(self._lists[target]), 0, [message])

    def prepend(self, target: InboxTarget, message: Message) -> None:
        """Put ``message`` at the front of ``target``."""
        self.splice(target, 0, 0, [message])

    def replace(self, message_id: str, message: Message) -> bool:
        """Put ``message`` where the pending message ``message_id`` stands; False when nothing has that id."""
        return self._edit(message_id, [message])

    def remove(self, message_id: str) -> bool:
        """Discard the pending message ``message_id``; False when nothing has that id."""
        return self._edit(message_id, [])

    def clear(self) -> None:
        """Discard everything."""
        for target in TARGETS:
            self.splice(target, 0, len(self._lists[target]), [])

    def splice(self, target: InboxTarget, start: int, delete: int, inserted: Sequence[Message]) -> list[Message]:
        """Remove ``delete`` messages at ``start`` and insert others there; returns the removed ones.

        A negative ``start`` counts from the end; both numbers are clamped to the list. Raises ``HarnessError``
        (``DUPLICATE_MESSAGE``) when an inserted id is pending already, ``SessionError`` for what is no user message.
        """
        return self._commit(target, start, delete, inserted, canceled=True)

    def claim(self, target: InboxTarget, turn: int, claim: Claim) -> Claim:
        """Take all of ``next-step`` and, for ``next-turn``, its first message into ``claim``."""
        for source in TARGETS if target == "next-turn" else TARGETS[:1]:
            count = len(self._lists[source]) if source == "next-step" else 1
            claim.add(source, self._commit(source, 0, count, [], canceled=False))
        for message in claim.messages:
            self._notify(InboxClaimed(agent=self._agent, message=message, turn=turn))
        return claim

    def _edit(self, message_id: str, inserted: list[Message]) -> bool:
        for target in TARGETS:
            for index, pending in enumerate(self._lists[target]):
                if pending["id"] == message_id:
                    self.splice(target, index, 1, inserted)
                    return True
        return False

    def _commit(
        self, target: InboxTarget, start: int, delete: int, inserted: Sequence[Message], *, canceled: bool
    ) -> list[Message]:
        pending = self._lists[target]
        start = max(0, len(pending) + start) if start < 0 else min(start, len(pending))
        delete = max(0, min(delete, len(pending) - start))
        if not delete and not inserted:
            return []
        removed = pending[start : start + delete]
        inserted = [whole_user_message(message, "agent/inbox") for message in inserted]
        self._refuse_duplicates(inserted, removed)
        data: dict[str, Any] = {"target": target, "start": start}
        if delete:
            data["removedCount"] = delete
        data["inserted"] = inserted
        if delete and canceled:
            data["outcome"] = "canceled"
        self._session.append(SPLICED, data)
        pending[start : start + delete] = inserted
        if canceled:
            for message in removed:
                self._notify(InboxDiscarded(agent=self._agent, message=message))
        for message in inserted:
            self._notify(InboxInserted(agent=self._agent, message=message))
        return removed

    def _refuse_duplicates(self, inserted: Sequence[Message], removed: list[Message]) -> None:
        if not inserted:
            return
        leaving = {message["id"] for message in removed}
        taken = {message["id"] for target in TARGETS for message in self._lists[target]} - leaving
        for message in inserted:
            if message["id"] in taken:
                raise HarnessError(f'message "{message["id"]}" is already pending', code="DUPLICATE_MESSAGE")
            taken.add(message["id"])


def pending_in(events: Sequence[SessionEvent], inherited: int) -> dict[InboxTarget, list[Message]]:
    """What waits at the end of a log, from its splices; input pending in a fork's parent is not inherited.

    inherited: events at the log's beginning that are the parent's. Raises HarnessError (``INVALID_INBOX``).
    """
    lists: dict[InboxTarget, list[Message]] = {"next-turn": [], "next-step": []}
    for seq in range(inherited, len(events)):
        event = events[seq]
        if event.type != SPLICED:
            continue
        data = event.data
        try:
            pending = lists[data["target"]]
            start, count, inserted = data["start"], data.get("removedCount", 0), data["inserted"]
            if not (type(start) is int and type(count) is int and min(start, count) >= 0):
                raise ValueError
            if start + count > len(pending) or not all(isinstance(message["id"], str) for message in inserted):
                raise ValueError
            pending[start : start + count] = inserted
        except (KeyError, TypeError, ValueError):
            text = f"invalid persisted inbox splice at session seq {event.seq}"
            raise HarnessError(text, code="INVALID_INBOX") from None
    return lists
