"""One child process on this machine: its pipes, its end, and the end of everything it started."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping
from typing import Literal

from dsh.cordis import AbortError

from .child_env import os_bytes
from .collector import Collector, SpillDirectory
from .pipes import PipeReader, PipeWriter
from .process_tree import ProcessTree
from .service import ChildProcess, Collect, CollectedStream, ExitStatus, OutputMode, SpawnError, SpawnSpec

_FIRST_LOOK = 0.005
_LONGEST_LOOK = 0.05
_UNKILLABLE_AFTER = 5.0
"""Seconds after SIGKILL after which a process that still is there (stuck in the kernel) is no longer waited for."""


class LocalChild(ChildProcess):
    """Started by `start`; everything else happens in event-loop callbacks, so there is no task to own or to lose.

    `on_gone` is called once, when nothing of the tree is left.
    """

    def __init__(self, spec: SpawnSpec, directory: SpillDirectory, on_gone: Callable[[LocalChild], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._spec = spec
        self._grace = spec.grace_ms / 1000
        self._directory = directory
        self._on_gone = on_gone
        self.pid = None
        self.stdin = None
        self.stdout = None
        self.stderr = None
        self.collected: dict[Literal["stdout", "stderr"], CollectedStream] = {}
        self._collectors: list[Collector] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._tree: ProcessTree | None = None
        self._readers: list[PipeReader] = []
        self._open_streams = 0
        self._status: ExitStatus | None = None
        self._failure: BaseException | None = None
        self._done = asyncio.Event()
        self._gone = asyncio.Event()
        self._escaped = False
        self._stream_timer: asyncio.TimerHandle | None = None
        self._look_timer: asyncio.TimerHandle | None = None
        self._look_delay = _FIRST_LOOK
        self._kill_at: float | None = None
        self._give_up_at: float | None = None
        self._forget_signal: Callable[[], None] | None = None
        self._waiters = 0

    # -- start -----------------------------------------------------------------------------------------------------

    def start(self, environment: Mapping[bytes, bytes], marker: str) -> None:
        """Start the program from the calling thread (a confining runner may die with the thread that started it)."""
        spec = self._spec
        if spec.signal is not None and spec.signal.aborted:
            self._fail(AbortError(reason=spec.signal.reason))
            return
        ours: list[int] = []  # descriptors that close when starting fails
        theirs: list[int] = []  # descriptors that close once the child has them
        try:
            stdin, writer = _stdin(spec, ours, theirs)
            stdout, out = _output(spec.stdout, ours, theirs)
            stderr, err = _output(spec.stderr, ours, theirs)
            argv = [os_bytes(argument) for argument in spec.argv]
            if any(b"\0" in argument for argument in argv) or "\0" in spec.cwd:
                raise SpawnError("an argument or the working directory holds a NUL character")
            self._process = subprocess.Popen(
                argv,
                cwd=os_bytes(spec.cwd),
                env=environment,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
        except (OSError, ValueError, SpawnError) as error:
            for fd in ours:
                os.close(fd)
            self._fail(error if isinstance(error, SpawnError) else SpawnError(_spawn_message(spec, error)))
            return
        finally:
            for fd in theirs:
                os.close(fd)
        self.pid = self._process.pid
        self._tree = ProcessTree(self.pid, marker)
        self.stdin = PipeWriter(self._loop, writer) if writer is not None else None
        if out is not None:
            self._connect("stdout", spec.stdout, out)
        if err is not None:
            self._connect("stderr", spec.stderr, err)
        self._watch_exit()
        if spec.signal is not None:
            self._forget_signal = spec.signal.on_abort(self.terminate)

    def _connect(self, name: Literal["stdout", "stderr"], mode: OutputMode, fd: int) -> None:
        self._open_streams += 1
        if isinstance(mode, Collect):
            collector = Collector(mode, self._directory)
            self.collected[name] = collector
            self._collectors.append(collector)
            self._readers.append(PipeReader(self._loop, fd, collector.feed, self._stream_ended))
            return
        stream = asyncio.StreamReader(loop=self._loop)

        def ended() -> None:
            stream.feed_eof()
            self._stream_ended()

        reader = PipeReader(self._loop, fd, stream.feed_data, ended)
        stream.set_transport(reader)
        self._readers.append(reader)
        setattr(self, name, stream)

    def _fail(self, error: BaseException) -> None:
        self._failure = error
        self._done.set()
        self._gone.set()
        self._on_gone(self)

    # -- end of the program ----------------------------------------------------------------------------------------

    def _watch_exit(self) -> None:
        process = self._process
        assert process is not None
        try:
            fd = os.pidfd_open(process.pid)
        except (AttributeError, OSError):  # not Linux, or a kernel before 5.3

            def wait() -> None:
                process.wait()
                with contextlib.suppress(RuntimeError):  # the loop has closed meanwhile
                    self._loop.call_soon_threadsafe(self._exited)

            threading.Thread(target=wait, name=f"dsh-wait-{process.pid}", daemon=True).start()
            return

        def ready() -> None:
            self._loop.remove_reader(fd)
            os.close(fd)
            self._exited()

        self._loop.add_reader(fd, ready)

    def _exited(self) -> None:
        assert self._process is not None and self._tree is not None
        code = self._process.wait()
        self._status = ExitStatus(code, None) if code >= 0 else ExitStatus(None, _signal_name(-code))
        self._tree.leader_reaped()
        if self._open_streams:
            self._stream_timer = self._loop.call_later(self._grace, self._cut_off_streams)
        self._settle()
        self._look()

    def _cut_off_streams(self) -> None:
        """Somebody else still holds a pipe; what has arrived is all there will be."""
        self._escaped = self._gone.is_set()
        for reader in self._readers:
            reader.drain()
            reader.close()

    def _stream_ended(self) -> None:
        self._open_streams -= 1
        self._settle()

    def _settle(self) -> None:
        if self._status is None or self._open_streams:
            return
        if self._stream_timer is not None:
            self._stream_timer.cancel()
        if isinstance(self.stdin, PipeWriter):
            self.stdin.close()
        for collector in self._collectors:
            collector.finish()
        self._done.set()

    # -- end of the tree -------------------------------------------------------------------------------------------

    def terminate(self) -> None:
        if self._kill_at is not None or self._tree is None or self._gone.is_set():
            return
        self._kill_at = self._loop.time() + self._grace
        self._tree.signal(signal.SIGTERM)
        self._look_delay = _FIRST_LOOK
        self._look()

    def _look(self) -> None:
        """Is anything left? The kernel tells when a child ends but not when a group empties, so this looks again."""
        if self._look_timer is not None:
            self._look_timer.cancel()
            self._look_timer = None
        tree = self._tree
        if tree is None or self._gone.is_set():
            return
        now = self._loop.time()
        if self._kill_at is not None and now >= self._kill_at and not tree.empty:
            tree.signal(signal.SIGKILL)
            self._give_up_at = self._give_up_at or now + _UNKILLABLE_AFTER
        gone = self._status is not None and (tree.empty or not tree.alive())
        if gone or (self._give_up_at is not None and now >= self._give_up_at):
            self._finish()
            return
        if self._kill_at is not None or self._waiters:
            self._look_timer = self._loop.call_later(self._look_delay, self._look)
            self._look_delay = min(self._look_delay * 2, _LONGEST_LOOK)

    def _finish(self) -> None:
        if self._forget_signal is not None:
            self._forget_signal()
        self._gone.set()
        self._on_gone(self)

    async def wait_for_exit(self) -> None:
        self._waiters += 1
        try:
            if not self._gone.is_set() and self._look_timer is None:
                self._look_delay = _FIRST_LOOK
                self._look()
            await self._gone.wait()
        finally:
            self._waiters -= 1

    # -- questions -------------------------------------------------------------------------------------------------

    async def done(self) -> ExitStatus:
        await self._done.wait()
        if self._failure is not None:
            raise self._failure
        assert self._status is not None
        return self._status

    @property
    def exit_status(self) -> ExitStatus | None:
        return self._status if self._done.is_set() else None

    @property
    def failure(self) -> BaseException | None:
        return self._failure

    @property
    def left_processes(self) -> bool:
        # Whoever holds a pipe although the tree is empty has escaped from it for good.
        return self._status is not None and (self._escaped or not self._gone.is_set())

    def recheck(self) -> None:
        """Look once whether the tree has emptied by itself."""
        if self._status is not None:
            self._look()

    def kill_now(self) -> None:
        """SIGKILL everything at once; for the end of the harness, when no loop runs any more."""
        if self._tree is not None and not self._gone.is_set():
            self._tree.signal(signal.SIGKILL)


def _stdin(spec: SpawnSpec, ours: list[int], theirs: list[int]) -> tuple[int, int | None]:
    """What the child gets as fd 0, and our end of it for mode "pipe"."""
    if spec.stdin == "ignore":
        return subprocess.DEVNULL, None
    if spec.stdin == "pipe":
        read, write = os.pipe()
        theirs.append(read)
        ours.append(write)
        return read, write
    assert isinstance(spec.stdin, bytes)
    # A file instead of a pipe: nobody has to feed it, and a child that does not read breaks nothing.
    with tempfile.TemporaryFile() as file:
        file.write(spec.stdin)
        file.flush()
        fd = os.dup(file.fileno())
    os.lseek(fd, 0, os.SEEK_SET)
    theirs.append(fd)
    return fd, None


def _output(mode: OutputMode, ours: list[int], theirs: list[int]) -> tuple[int | None, int | None]:
    """What the child gets as output (None = ours), and our end of the pipe."""
    if mode == "inherit":
        return None, None
    read, write = os.pipe()
    theirs.append(write)
    ours.append(read)
    return write, read


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def _spawn_message(spec: SpawnSpec, error: Exception) -> str:
    if isinstance(error, OSError) and not os.path.isdir(os_bytes(spec.cwd)):
        return f'the working directory "{spec.cwd}" does not exist'
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return f'cannot start "{spec.argv[0]}": {reason}'
