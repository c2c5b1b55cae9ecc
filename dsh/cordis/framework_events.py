"""Events of the runtime itself."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from .events import Emit, Waterfall

if TYPE_CHECKING:
    from .fiber import Fiber, FiberState


class PluginChanged(Emit, name="internal/plugin"):
    """A fiber was mounted, or its disposal was asked for (then `fiber.uid is None`)."""

    fiber: Fiber


class StatusChanged(Emit, name="internal/status"):
    """`fiber.state` is new; `old` is what it was."""

    fiber: Fiber
    old: FiberState


class ServiceChanged(Emit, name="internal/service"):
    """A binding appeared; `value` is `None` when it vanished."""

    name: str
    value: Any
    realm: Hashable


class ConfigResolve(Waterfall[Any], name="internal/config", sync=True):
    """Turns the raw config of a fiber into what its `Config` validates. Services are committed already."""

    fiber: Fiber
    raw: Any


class ConfigUpdate(Waterfall[None], name="internal/update"):
    """An update of an active fiber's config, heard by the fiber's own and by global listeners.

    A listener that does not call `next()` has taken the update over. `no_save` asks not to persist it.
    """

    fiber: Fiber
    config: Any
    no_save: bool


class Dispatching(Emit, name="internal/dispatch"):
    """Before any dispatch but of `internal/` events. Its listeners are guards: raising refuses the event."""

    mode: str
    name: str
    payload: Any
    scope: Any


class TaskFailed(Emit, name="internal/task-error"):
    """A background task of a fiber raised."""

    fiber: Fiber
    name: str
    error: BaseException
