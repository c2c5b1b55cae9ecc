"""The same for programs that are not asynchronous: a harness in a thread with an event loop of its own.

    from dsh.sdk.sync import Harness

    with Harness("cordis.yml") as harness:
        run = harness.session("main").prompt("What does this folder hold?")
        for event in run:
            print(event.type)
        print(run.result().output)

Every call waits for its answer and may come from any thread but the harness's own, in which callbacks are called.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from dsh.cordis import HarnessError

from . import harness as asynchronous
from .backend import AgentInfo
from .events import Event
from .harness import PathLike
from .run import Result
from .run import Run as AsyncRun
from .session import Content
from .session import Session as AsyncSession

P = ParamSpec("P")
T = TypeVar("T")


def _takes(same: Callable[P, Any]) -> Callable[[Callable[..., T]], Callable[Concatenate[Any, P], T]]:
    """Give a method the parameters of ``same``, to which it passes them on."""

    def change(method: Callable[..., T]) -> Callable[Concatenate[Any, P], T]:
        own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
        shown = inspect.Signature([own, *inspect.signature(same).parameters.values()])
        method.__signature__ = shown  # type: ignore[attr-defined]
        return method

    return change


class _Thread:
    """An event loop in a thread, for calls from others."""

    def __init__(self) -> None:
        self._ready: concurrent.futures.Future[asyncio.AbstractEventLoop] = concurrent.futures.Future()
        self._end = asyncio.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="dsh-sdk", daemon=True)
        self._thread.start()
        self._loop = self._ready.result()

    async def _serve(self) -> None:
        self._ready.set_result(asyncio.get_running_loop())
        await self._end.wait()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine; an interrupt of the wait cancels it."""
        if threading.current_thread() is self._thread:  # which would wait for itself
            work.close()
            raise HarnessError("a callback cannot wait for the harness that called it", code="OWN_THREAD")
        if self._loop.is_closed():  # what is known of a run that is over stays known
            return asyncio.run(work)
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def call(self, function: Callable[..., T], *args: Any) -> T:
        """The result of a function that must run in the loop's thread."""

        async def work() -> T:
            return function(*args)

        return self.wait(work())

    def stop(self) -> None:
        """End the loop and its thread."""
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()


class Harness:
    """A running composition; arguments and errors are those of ``dsh.sdk.Harness``."""

    @_takes(asynchronous.Harness)
    def __init__(self, *args: Any, **options: Any) -> None:
        self._use(asynchronous.Harness(*args, **options))

    @classmethod
    @_takes(asynchronous.Harness.spawn)
    def spawn(cls, *args: Any, **options: Any) -> Self:
        """The same with the composition in a process of its own."""
        harness = cls.__new__(cls)
        harness._use(asynchronous.Harness.spawn(*args, **options))
        return harness

    def _use(self, harness: asynchronous.Harness) -> None:
        self._harness = harness
        self._started: _Thread | None = None

    @property
    def _thread(self) -> _Thread:
        if self._started is None:
            raise HarnessError("the harness is not running", code="NOT_RUNNING")
        return self._started

    def __enter__(self) -> Self:
        if self._started is not None:
            raise HarnessError("the harness runs already", code="RUNNING")
        self._started = _Thread()
        try:
            self._thread.wait(self._harness.__aenter__())
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._thread.wait(self._harness.__aexit__(None, None, None))
        finally:
            self._stop()

    def _stop(self) -> None:
        thread, self._started = self._thread, None
        thread.stop()

    def agents(self) -> Sequence[AgentInfo]:
        """The live agents, those of the composition first."""
        return self._thread.wait(self._harness.agents())

    def session(self, name: str | None = None) -> Session:
        """The session of a live agent, by label or id; without a name the first one's."""
        return Session(self._thread, self._thread.wait(self._harness.session(name)))

    def new_session(
        self, *, session_id: str | None = None, cwd: PathLike | None = None, model: str | None = None
    ) -> Session:
        """A fresh session with an agent of its own."""
        made = self._harness.new_session(session_id=session_id, cwd=cwd, model=model)
        return Session(self._thread, self._thread.wait(made))

    def resume(self, session_id: str) -> Session:
        """A stored session, live again."""
        return Session(self._thread, self._thread.wait(self._harness.resume(session_id)))

    @property
    def settings(self) -> Settings:
        """The user's settings."""
        return Settings(self._thread, self._harness)


class Session:
    """One conversation; see ``dsh.sdk.Session``."""

    def __init__(self, thread: _Thread, session: AsyncSession) -> None:
        self.id = session.id
        self._thread = thread
        self._session = session

    def prompt(self, content: Content) -> Run:
        """Give the agent a prompt; returns at once."""
        return Run(self._thread, self._thread.call(self._session.prompt, content))

    def steer(self, content: Content) -> Run:
        """Put a message into the running turn; returns at once."""
        return Run(self._thread, self._thread.call(self._session.steer, content))

    def cancel(self) -> None:
        """Stop the running turn and empty the queue."""
        self._thread.call(self._session.cancel)

    def history(self, from_seq: int = 0) -> list[Event]:
        """The events so far."""
        return self._thread.wait(self._session.history(from_seq))

    def close(self) -> None:
        """End the agent; the log stays."""
        self._thread.wait(self._session.close())


class Run:
    """A prompt on its way: iterate over its events, or wait for its result. Leaving it as a block cancels it."""

    def __init__(self, thread: _Thread, run: AsyncRun) -> None:
        self._thread = thread
        self._run = run
        self.message_id = run.message_id

    @property
    def done(self) -> bool:
        """Whether it is known what came of the prompt."""
        return self._run.done

    @property
    def status(self) -> str:
        """``queued``, ``running``, or a ``Result.status`` once done."""
        return self._run.status

    def __iter__(self) -> Iterator[Event]:
        count = 0
        while batch := self._thread.wait(self._run._after(count)):
            yield from batch
            count += len(batch)

    def result(self, timeout: float | None = None) -> Result:
        """Wait for the end; what came of it. Raises ``TimeoutError`` after ``timeout`` seconds; the turn goes on."""

        async def work() -> Result:
            async with asyncio.timeout(timeout):
                return await self._run.result()

        return self._thread.wait(work())

    def cancel(self) -> None:
        """Take the prompt out of the queue, or stop its turn."""
        self._thread.call(self._run.cancel)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.wait(self._run.__aexit__(None, None, None))


class Settings:
    """The user's settings; see ``dsh.sdk.settings``."""

    def __init__(self, thread: _Thread, harness: asynchronous.Harness) -> None:
        self._thread = thread
        self._settings = harness.settings

    def get(self, key: str | None = None) -> Any:
        """The value in force: of one setting, of a section, or of all sections."""
        return self._thread.wait(self._settings.get(key))

    def set(self, key: str, value: Any) -> None:
        """Store one value."""
        self._thread.wait(self._settings.set(key, value))

    def unset(self, key: str) -> None:
        """Forget one value."""
        self._thread.wait(self._settings.unset(key))

    def watch(self, key: str, callback: Callable[[Any], Any]) -> Callable[[], object]:
        """Call ``callback(value)`` in the harness's thread whenever the setting changes; returns the undo."""
        return self._thread.call(self._settings.watch, key, callback)
