"""The state behind one root context: its loop, tasks, clock, and the queue that drives fibers."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from .channels import EventBus
from .clock import Clock, LoopClock
from .errors import FAILURES, CordisError, as_failure
from .logger import LogHub
from .plugins import PluginRegistry
from .services import ServiceStore
from .tasks import OwnedTask, TaskKind
from .waiting import Eager, Latch, run_at_once

if TYPE_CHECKING:
    from .context import Context
    from .events import Emit
    from .fiber import Fiber


class Runtime:
    """Everything that the contexts of one tree share. Plugins never see it."""

    def __init__(self, root: Context, *, dispose_timeout: float, clock: Clock | None, debug: bool) -> None:
        self.root = root
        self.dispose_timeout = dispose_timeout
        self.debug = debug
        self.clock: Clock = clock or LoopClock()
        self.variables = contextvars.copy_context()
        self.tasks: dict[asyncio.Task[Any], OwnedTask] = {}
        self.epoch = 0
        """Counts whatever may change what a service read returns."""
        self.shape = 0
        """Counts changes of the realms or intercepts of an existing context."""
        self.uids = 0
        self.logs = LogHub()
        self.events = EventBus(self)
        self.services = ServiceStore(self)
        self.registry = PluginRegistry()
        self.crash: BaseException | None = None
        self.is_judged: Callable[[Fiber], bool] = lambda fiber: False
        """Whether somebody else tells if a fiber fails in the end; its failure is no error of its own then."""
        self._host: asyncio.Task[Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.get_ident()
        self._busy = 0
        self._quiet: Latch | None = None
        self._ready: deque[Fiber] = deque()
        self._pumping = False

    def attach(self) -> None:
        """Bind to the running loop; its current task hears of a crash of the runtime itself."""
        self._loop = asyncio.get_running_loop()
        self._host = asyncio.current_task()
        self._thread = threading.get_ident()
        self._wake()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop

    def check_thread(self, what: str) -> None:
        """In debug mode, raise `OFF_LOOP` when called from another thread than the loop's."""
        if self.debug and threading.get_ident() != self._thread:
            raise CordisError("OFF_LOOP", f"{what}: called outside the event loop's thread; use ctx.from_thread")

    def schedule(self, fiber: Fiber) -> None:
        """Let the fiber look at its target on the next turn of the loop."""
        if fiber.queued or fiber.running:
            return
        fiber.queued = True
        self.begin()
        self._ready.append(fiber)
        self._wake()

    def _wake(self) -> None:
        if self._pumping or not self._ready:
            return
        if self._loop is None:
            try:
                self._loop = asyncio.get_running_loop()
            except RuntimeError:
                return  # mounted before the loop runs; `async with root` starts the queue
        self._pumping = True
        self._loop.call_soon(self._pump, context=self.variables)

    def _pump(self) -> None:
        self._pumping = False
        ready, self._ready = self._ready, deque()
        for fiber in ready:
            if fiber.queued:
                self.drive(fiber)

    def drive(self, fiber: Fiber) -> None:
        """Run the fiber's transitions now, as far as they need no waiting."""
        if fiber.running:
            return
        if fiber.queued:
            fiber.queued = False
        else:
            self.begin()
        fiber.running = True
        self.eagerly(fiber.run_transitions, f"host of {fiber.label}")

    def begin(self) -> None:
        """Something unsettled started."""
        self._busy += 1

    def end(self) -> None:
        """Something unsettled ended."""
        self._busy -= 1
        if not self._busy and self._quiet is not None:
            self._quiet.set()
            self._quiet = None

    async def settle(self) -> None:
        while self._busy:
            self._quiet = self._quiet or Latch()
            await self._quiet

    def start(
        self,
        coroutine: Coroutine[Any, Any, Any],
        fiber: Fiber | None,
        kind: TaskKind,
        name: str,
        variables: contextvars.Context,
    ) -> OwnedTask:
        """Start an owned task in the given variables."""
        code = coroutine if fiber is None else _contained(coroutine)
        task = self.loop.create_task(code, name=name, context=variables)
        owned = self.tasks[task] = OwnedTask(task, coroutine, fiber, kind, name)
        task.add_done_callback(self._task_done, context=self.variables)
        return owned

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        owned = self.tasks.pop(task)
        owned.coroutine.close()  # one that was cancelled before its first step has never begun
        if not task.cancelled():
            task.exception()  # whoever needs it asks again; asyncio shall not print it
        owned.done.set()

    def current_task(self) -> OwnedTask | None:
        """The owned task we are running in."""
        task = asyncio.current_task()
        return self.tasks.get(task) if task is not None else None

    def supervise(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        """Run the runtime's own code in a task; an exception in it is a crash of the root."""
        owned = self.start(coroutine, None, "host", name, self.variables.copy())
        owned.task.add_done_callback(self._host_done)

    def _host_done(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)

    def eagerly(self, make: Callable[[Eager], Coroutine[Any, Any, None]], name: str) -> None:
        """Run framework code written for `Eager`, moving it to a task where it first waits."""
        try:
            rest = run_at_once(make(Eager()))
        except Exception as error:
            self.fail(error)
        else:
            if rest is not None:
                self.supervise(rest, name)

    def fail(self, error: BaseException) -> None:
        """A bug in the runtime: cancel whoever holds the root open; leaving the root raises the error."""
        if self.crash is None:
            self.crash = error
            self.logs.framework.error("the plugin runtime failed", exc_info=error)
            if self._host is not None and not self._host.done():
                self._host.cancel()

    async def close(self) -> None:
        """Wait for what is still running after the root was disposed, within `dispose_timeout`."""
        left = {task for task in self.tasks if task is not asyncio.current_task()}
        if left:
            _, left = await asyncio.wait(left, timeout=self.dispose_timeout)
        for task in left:
            task.cancel()
        if left:
            _, left = await asyncio.wait(left, timeout=min(1.0, self.dispose_timeout))
        for task in left:
            self.logs.framework.error("task %s survives the root", task.get_name())
        self.logs.close()

    def raise_crash(self) -> None:
        """Raise what broke the runtime, if anything did."""
        if self.crash is not None:
            if self._host is not None and self._host is asyncio.current_task():
                self._host.uncancel()
            raise self.crash

    def tell(self, event: Emit) -> None:
        """Emit an event of the runtime itself; whatever a listener raises is contained."""
        self.root.prepare(event).run()

    def report(self, fiber: Fiber, error: BaseException, message: str, *args: object) -> None:
        """Log an exception that was contained, under the plugin it belongs to, which remembers it."""
        fiber.remember(error, message % args)
        fiber.ctx.logger.error(message, *args, exc_info=as_failure(error) if isinstance(error, FAILURES) else error)


async def _contained(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Code of a plugin. asyncio carries `SystemExit` past every awaiting task, straight out of the loop."""
    try:
        return await coroutine
    except (SystemExit, KeyboardInterrupt) as error:
        raise as_failure(error) from error
