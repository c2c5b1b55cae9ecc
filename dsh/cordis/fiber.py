"""Fibers: the life of one mount of a plugin, from waiting for its services to the last undo."""

from __future__ import annotations

import contextvars
import time
from collections.abc import Awaitable, Generator, Iterator
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from .body import Body
from .config import effective_config, update_fiber
from .effects import EffectStack
from .errors import FAILURES, CordisError, as_failure, error_chain
from .framework_events import PluginChanged, StatusChanged, TaskFailed
from .inspection import walk
from .plugins import PluginSpec
from .services import Implementation, StoreKey
from .tasks import OwnedTask, StartedWork, check_self_await
from .waiting import Eager, Latch

if TYPE_CHECKING:
    from .context import Context
    from .runtime import Runtime


class FiberState(IntEnum):
    """The numbers are a diagnostic contract."""

    PENDING = 0
    LOADING = 1
    ACTIVE = 2
    FAILED = 3
    DISPOSED = 4
    UNLOADING = 5

    @property
    def phase(self) -> str | None:
        """The word diagnostics print; `None` once disposed."""
        return None if self is FiberState.DISPOSED else self.name.lower()


PENDING, LOADING, ACTIVE, FAILED, DISPOSED, UNLOADING = FiberState


class Fiber:
    """One mounted plugin. `await fiber` waits until it is settled: active, waiting for services, or disposed.

    `config` is the validated config, `raw_config` what it was made from, `error` why it failed, `faults` how many of
    its background tasks broke, `leaks` how many undos were given up. `entry_id` and `generation` belong to the loader.
    """

    is_fiber = True

    def __init__(
        self,
        runtime: Runtime,
        base: Context,
        spec: PluginSpec | None,
        config: Any = None,
        needs: dict[str, dict[str, Any] | None] | None = None,
        entry_id: str | None = None,
    ) -> None:
        self.runtime = runtime
        self.spec = spec
        self.parent: Fiber | None = base.fiber if spec is not None else None
        self.uid: int | None = runtime.uids
        runtime.uids += 1
        self.entry_id = entry_id
        self.generation = 0
        self.raw_config = config
        self.config: Any = None
        self.instance: Any = None
        self.error: BaseException | None = None
        self.last_error: tuple[int, str] | None = None
        """When anything of the plugin went wrong last (ms since the epoch), and what."""
        self.faults = 0
        self.leaks = 0
        self.needs: dict[str, dict[str, Any] | None] = needs or {}
        self.state = PENDING if spec is not None else ACTIVE
        self.variables: contextvars.Context = (
            self.parent.variables if self.parent is not None else runtime.variables
        ).copy()
        self.provided: list[Implementation] = []
        self.committed: dict[str, Implementation] | None = None
        self.stack = EffectStack(self, base.stack if spec is not None else None)
        self.queued = False
        self.running = False
        self.unwinding = False
        self.update_turn: Latch | None = None
        self._body: Body | None = None
        self._broken = False
        self._failed_target: tuple[int, ...] | None = None
        self._gone = Latch()
        self._keys: tuple[StoreKey, ...] = ()
        self._restart = False
        self._retired = False
        self._settled = Latch()
        self.ctx: Context = base.for_fiber(self) if spec is not None else base
        if spec is not None:
            self._index()

    @property
    def name(self) -> str | None:
        """The plugin's display name, if it has one."""
        return self.spec.name if self.spec is not None else "root"

    @property
    def display_name(self) -> str:
        """The name, or that of the nearest ancestor that has one."""
        return next((fiber.name for fiber in self.lineage() if fiber.name), "root")

    @property
    def label(self) -> str:
        return f"plugin({self.name or 'anonymous'})"

    def describe(self) -> str:
        """How messages call it."""
        return "the root" if self.spec is None else f'plugin "{self.display_name}"'

    @property
    def is_active(self) -> bool:
        return self.state is ACTIVE

    @property
    def is_disposed(self) -> bool:
        return self.state is DISPOSED

    @property
    def is_retired(self) -> bool:
        """Whether its disposal was asked for."""
        return self._retired

    @property
    def is_settled(self) -> bool:
        return not (self.running or self.queued)

    def missing(self) -> list[str]:
        """Required services that have no available provider at this moment."""
        found = self.runtime.services.implementations
        return [
            key[0]
            for key in self._keys
            if (implementation := found.get(key)) is None or not implementation.available_to(self.ctx)
        ]

    def effects(self) -> list[Any]:
        """Labels of everything registered, oldest first; a nested stack is `{label: [...]}`."""
        return self.stack.tree()

    def lineage(self) -> Iterator[Fiber]:
        """This fiber and those it lies in, the nearest first."""
        fiber: Fiber | None = self
        while fiber is not None:
            yield fiber
            fiber = fiber.parent

    def children(self) -> list[Fiber]:
        """Child fibers, oldest first, those in groups and scopes included."""
        return list(_fibers_on(self.stack))

    def tasks(self) -> list[OwnedTask]:
        """The running tasks that the plugin spawned."""
        return [each for each in self.runtime.tasks.values() if each.fiber is self and each.kind == "task"]

    def __repr__(self) -> str:
        return f"<Fiber {self.uid} {self.display_name} {self.state.name}>"

    def __await__(self) -> Generator[Any, None, Fiber]:
        check_self_await(self.stack, "settling")
        owned = self.runtime.current_task()
        if owned is not None and self._body is not None and owned is self._body.task:
            raise CordisError("SELF_AWAIT", f"{self.describe()} awaits itself inside its own body")
        yield from self.until_settled().__await__()
        return self

    async def until_settled(self) -> None:
        """Wait until no transition runs or is due; raises the stored error of a failed fiber."""
        while not self.is_settled:
            await self._settled
        if self.state is FAILED and self.error is not None:
            raise self.error

    def dispose(self) -> Awaitable[None]:
        """Unload for good. Starts at once; the awaitable (for any number of callers) ends when it is gone.

        The work does not depend on the caller. Awaiting it from the fiber's own body or tasks cancels those; from
        its own undo code it raises `SELF_AWAIT`.
        """
        self._retire()
        self.refresh()
        return StartedWork(self.stack, "disposal", lambda: self._gone)

    def restart(self) -> Awaitable[None]:
        """Unload and load again with the same raw config; requests that come meanwhile share one more pass.

        The awaitable raises what makes the new activation fail.
        """
        self._restart = True
        self.refresh()
        return StartedWork(self.stack, "restart", self.until_settled)

    def update(self, raw: Any, *, no_save: bool = False) -> Awaitable[None]:
        """Change the config; updates of one fiber run one after another.

        A fiber that is not active takes `raw` for its next start. An active one validates first (a bad config raises
        and changes nothing), then: equal config, nothing; a listener of `internal/update` or the plugin's `on_update`
        took over; only live fields differ, they are swapped in place; otherwise the fiber restarts and the awaitable
        raises what makes that fail. Awaiting is optional. `no_save` tells the loader not to write the row.
        """
        return update_fiber(self, raw, no_save)

    def _index(self) -> None:
        keys = tuple((name, self.ctx.realm(name)) for name in self.needs)
        if keys != self._keys:
            self.runtime.services.unindex(self, self._keys)
            self.runtime.services.index(self, keys)
            self._keys = keys

    def _view(self) -> dict[str, Implementation] | None:
        """What the needs resolve to now; `None` if something is missing or the fiber shall go."""
        if self._retired:
            return None
        found = self.runtime.services.implementations
        view: dict[str, Implementation] = {}
        for key in self._keys:
            implementation = found.get(key)
            if implementation is None or not implementation.available_to(self.ctx):
                return None
            view[key[0]] = implementation
        return view

    def is_stale(self) -> bool:
        """Whether the running activation must end."""
        if self._retired or self._restart or self._broken:
            return True
        view = self._view()
        return view is None or self.committed is None or _serials(view) != _serials(self.committed)

    def refresh(self) -> None:
        """Something the fiber depends on changed: act if that changes what it should run on."""
        if self.running:
            if self.state is LOADING and self._body is not None and self.is_stale():
                self._body.cancel()
        elif not self.queued and self._has_work():
            self.runtime.schedule(self)

    def _has_work(self) -> bool:
        if self.state is DISPOSED:
            return False
        if self.spec is None:
            return self._retired
        if self.state is ACTIVE:
            return self.is_stale()
        return self._retired or self._restart or self._loadable() is not None

    def _loadable(self) -> dict[str, Implementation] | None:
        """What it would run on if it started now; `None` if it must not start."""
        view = self._view()
        if view is None or _serials(view) == self._failed_target:
            return None
        above = self.stack.parent
        return view if above is None or above.is_open else None

    def retry(self) -> None:
        """Forget an earlier failure, give up a running start, and try again when it can load."""
        self._failed_target = None
        if self.state in (FAILED, LOADING):
            self._restart = True
        self.refresh()

    def rebase(self, base: Context) -> list[Fiber]:
        """Stand under another context: other realms, intercepts, even another parent fiber; nothing else changes.

        Fibers of the subtree for which a name they need or provide now means another realm restart (or wait, or
        start); they are returned. Everybody else keeps running. Raises `INACTIVE_EFFECT` if `base` is unloading.
        Nothing happens to a fiber whose disposal was asked for.
        """
        if self._retired:
            return []
        if base.stack is not self.stack.parent:
            base.stack.check(self.label)
            if self.stack.parent is not None:
                self.stack.parent.items.pop(self, None)
            base.stack.items[self] = None
            self.stack.parent = base.stack
            self.parent = base.fiber
        self.ctx.rebase(base)
        self.runtime.shape += 1
        self.runtime.epoch += 1
        self.runtime.events.forget_plans()
        return [fiber for fiber in walk(self) if fiber.remap()]

    def remap(self) -> bool:
        """Look at the realms of everything needed and provided again; whether something changed. For `rebase`."""
        old = self._keys
        self._index()
        provides_elsewhere = any(each.ctx.realm(each.name) != each.realm for each in self.provided)
        if provides_elsewhere:
            self.restart()
        elif old != self._keys:
            self.refresh()
        return provides_elsewhere or old != self._keys

    async def run_transitions(self, run: Eager) -> None:
        """Load and unload until the fiber is where it should be."""
        while True:
            if self.state is ACTIVE:
                if not (self._retired if self.spec is None else self.is_stale()):
                    break
                await self._unload(run)
            elif self.state is DISPOSED:
                break
            elif self._retired:
                await self._unload(run)
            else:
                if self._restart:
                    self._restart = False
                    self._failed_target = None
                view = self._loadable()
                if view is None:
                    break
                await self._load(run, view)
        self.running = False
        settled, self._settled = self._settled, Latch()
        settled.set()
        self.runtime.end()

    async def _load(self, run: Eager, view: dict[str, Implementation]) -> None:
        assert self.spec is not None
        self.error = None
        self._broken = False
        self.committed = view
        for implementation in view.values():
            implementation.users[self] = None
        self._set_state(LOADING)
        error: BaseException | None = None
        if not self._retired:
            try:
                self.config = effective_config(self, self.raw_config)
                self._body = Body(self)
                error = await self._body.run(run, self.variables.run(self.spec.run, self.ctx, self.config))
            except FAILURES as raised:
                error = as_failure(raised)
            finally:
                self._body = None
        if error is not None and not self._retired:
            self._fail(error)
        if error is not None or self.is_stale():
            await self._unload(run)
        else:
            self._set_state(ACTIVE)
            self._notify_dependants()

    async def _unload(self, run: Eager) -> None:
        self._set_state(UNLOADING)
        self._notify_dependants()
        for implementation in list(self.provided):
            await run.wait(implementation.until_free())
        self.unwinding = True
        await self.stack.unwind(run)
        for implementation in reversed(self.provided[:]):
            self.runtime.services.withdraw(implementation)
        self.unwinding = False
        committed, self.committed = self.committed, None
        for implementation in (committed or {}).values():
            implementation.release(self)
        self.instance = None
        if self._retired:
            self._leave()
        elif self._broken or self.error is not None:
            self._set_state(FAILED)
        else:
            self._set_state(PENDING)

    def _leave(self) -> None:
        """Gone: out of the indexes, the registry and the parent's effects."""
        self.runtime.services.unindex(self, self._keys)
        if self.spec is not None:
            self.runtime.registry.remove(self)
        self._set_state(DISPOSED)
        if self.stack.parent is not None:
            self.stack.parent.items.pop(self, None)
        self._gone.set()

    def _set_state(self, state: FiberState) -> None:
        old, self.state = self.state, state
        self.stack.closed = self._retired or state in (UNLOADING, FAILED, DISPOSED)
        self.runtime.epoch += 1
        self.runtime.tell(StatusChanged(self, old))

    def _notify_dependants(self) -> None:
        for implementation in list(self.provided):
            self.runtime.services.notify(implementation.key)

    def _fail(self, error: BaseException) -> None:
        self.error = error
        self._failed_target = _serials(self.committed or {})
        if self.runtime.is_judged(self):
            self.remember(error, f"{self.label} failed")
            self.ctx.logger.info("%s failed", self.label, exc_info=error)
        else:
            self.runtime.report(self, error, "%s failed", self.label)

    def remember(self, error: BaseException, what: str) -> None:
        """Keep what went wrong last, for whoever looks."""
        self.last_error = time.time_ns() // 1_000_000, f"{what}: {error_chain(error)}"

    def task_failed(self, name: str, error: BaseException, *, critical: bool = False) -> None:
        """A background task raised: counted and told; a critical one makes the fiber fail."""
        self.faults += 1
        self.runtime.report(self, error, "task %s failed", name)
        self.runtime.tell(TaskFailed(self, name, error))
        if critical and self.state in (LOADING, ACTIVE):
            self.error = error
            self._failed_target = _serials(self.committed or {})
            self._broken = True
            self.refresh()

    def begin_undo(self) -> Latch:
        self._retire()
        if self.running:
            self.refresh()
        else:
            self.runtime.drive(self)
        return self._gone

    def _retire(self) -> None:
        if self._retired:
            return
        self._retired = True
        self.stack.closed = True
        self.uid = None
        if self.spec is not None:
            self.runtime.tell(PluginChanged(self))


def _serials(view: dict[str, Implementation]) -> tuple[int, ...]:
    return tuple(implementation.serial for implementation in view.values())


def _fibers_on(stack: EffectStack) -> Iterator[Fiber]:
    for item in stack.items:
        if isinstance(item, Fiber):
            yield item
        elif (inner := getattr(item, "inner", None)) is not None:
            yield from _fibers_on(inner)
