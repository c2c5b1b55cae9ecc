"""`fs-observation-policy`: a session changes only what it has read, and only the version it has read.

It keeps what each session saw in memory alone: a resumed session reads again before it writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from dsh.cordis import Context

from . import texts
from .service import (
    CreateIfAbsent,
    FsEditIntent,
    FsError,
    FsObserved,
    FsWriteIntent,
    Observation,
    Present,
    ReplaceIfVersion,
    WriteExpectation,
)

if TYPE_CHECKING:
    from dsh.core.session import Session
    from dsh.core.tools import ToolRun

name = "fs-observation-policy"


def apply(ctx: Context, config: Any = None) -> None:
    """Decide every write and edit; later deciders are not asked."""
    seen: WeakKeyDictionary[Session, dict[str, Observation]] = WeakKeyDictionary()

    def look_up(event: FsWriteIntent | FsEditIntent) -> Observation | None:
        session = _session_of(event.actor)
        return None if session is None else seen.get(session, {}).get(event.target.target_key)

    @ctx.on(FsObserved)
    def remember(event: FsObserved) -> None:
        session = _session_of(event.actor)
        if session is not None:
            seen.setdefault(session, {})[event.target.target_key] = event.observation

    @ctx.on(FsWriteIntent)
    async def before_write(event: FsWriteIntent, next: Any) -> WriteExpectation:
        observation = look_up(event)
        return ReplaceIfVersion(observation.version) if isinstance(observation, Present) else CreateIfAbsent()

    @ctx.on(FsEditIntent)
    async def before_edit(event: FsEditIntent, next: Any) -> ReplaceIfVersion | None:
        observation = look_up(event)
        if isinstance(observation, Present):
            return ReplaceIfVersion(observation.version)
        path = event.target.display_path
        if observation is None:
            raise FsError("FS_NOT_OBSERVED", texts.unread_edit(path))
        raise FsError("FS_NOT_FOUND", texts.not_found("edit", path))


def _session_of(actor: ToolRun | None) -> Session | None:
    agent = None if actor is None else actor.agent
    session: Session | None = None if agent is None else agent.session
    return session
