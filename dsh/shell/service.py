"""The process and shell seams: starting programs, running command lines, and the variables a shell gets.

Providers subclass `Subprocess`, `Shell` and `ShellEnv`; everything else imports only this module.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from dsh.cordis import HarnessError, Service, owned
from dsh.cordis.records import record

if TYPE_CHECKING:
    import asyncio

    from dsh.cordis import AbortSignal, Context, Disposer

MAX_GRACE_MS = 2_147_483_647


class SpawnError(HarnessError):
    """A program that could not be started."""

    code = "SPAWN_FAILED"


@record
class Collect:
    """Keep the last `max_bytes` of a stream in memory; with `spill_max_bytes` the whole stream also goes to a file once
    it no longer fits, and that file is given up again when it would exceed this size."""

    max_bytes: int
    spill_max_bytes: int | None = None


Stdin = Literal["ignore", "pipe"] | bytes
OutputMode = Literal["pipe", "inherit"] | Collect


@record
class SpawnSpec:
    """What to start. No shell is involved and nothing is inherited but what is said here.

    `stdin` as bytes is the whole input. `env` is merged over the harness's own environment, from which secrets were
    taken; None removes a name. `grace_ms` (1 to 2147483647) is how long a process may take to leave after SIGTERM, and
    how long a stream that a left-over process holds open is waited for. `signal` terminates the whole tree.
    """

    argv: Sequence[str]
    cwd: str
    grace_ms: int
    stdin: Stdin = "ignore"
    stdout: OutputMode = "pipe"
    stderr: OutputMode = "pipe"
    env: Mapping[str, str | None] | None = None
    signal: AbortSignal | None = None


@record
class ExitStatus:
    """How a process ended: its exit code, or the name of the signal that killed it (`SIGKILL`)."""

    exit_code: int | None
    signal: str | None


@record
class CollectedText:
    """Output from one offset on. `lossy`: bytes between the asked offset and the beginning of `text` are gone from
    memory; `spill_path` names the file that has the whole stream so far, if there is one."""

    text: str
    next_offset: int
    lossy: bool
    spill_path: str | None = None


class CollectedStream(ABC):
    """A collected output stream; readable at any time, also after the process ended."""

    @abstractmethod
    def read_from(self, offset: int) -> CollectedText:
        """The output from byte `offset` on, as text (bytes that are not UTF-8, and NUL, become U+FFFD).

        Consumes nothing. While the process runs, a character that has only partly arrived is left for the next read.
        """


class ProcessInput(ABC):
    """The writable end of a child's stdin."""

    @abstractmethod
    async def write(self, data: bytes) -> None:
        """Hand `data` over, waiting while the pipe is full. Raises `BrokenPipeError` when the child stopped reading."""

    @abstractmethod
    def close(self) -> None:
        """End of input; idempotent."""


class ChildProcess(ABC):
    """One started program and whatever it starts itself."""

    pid: int | None
    """Process id; also the id of its session and process group. None when it did not start."""
    stdin: ProcessInput | None
    stdout: asyncio.StreamReader | None
    """There for mode "pipe"; likewise `stderr`."""
    stderr: asyncio.StreamReader | None
    collected: Mapping[Literal["stdout", "stderr"], CollectedStream]

    @abstractmethod
    async def done(self) -> ExitStatus:
        """Wait for the program itself, and at most `grace_ms` longer for its output streams. Raises `SpawnError` when
        it did not start, `AbortError` when its signal had fired before."""

    @property
    @abstractmethod
    def exit_status(self) -> ExitStatus | None:
        """What `done` answers, None before."""

    @property
    @abstractmethod
    def failure(self) -> BaseException | None:
        """What `done` raises, if it does."""

    @property
    @abstractmethod
    def left_processes(self) -> bool:
        """Whether processes that the program started outlive it. Meaningful once `done` returned."""

    @abstractmethod
    def terminate(self) -> None:
        """End the whole tree: SIGTERM, after `grace_ms` SIGKILL. Idempotent; works after the program itself is gone."""

    @abstractmethod
    async def wait_for_exit(self) -> None:
        """Wait until nothing of the tree is left. Ends nothing by itself."""


class Subprocess(Service, name="subprocess"):
    """Starts programs. Leaving, it terminates all of them and waits."""

    @abstractmethod
    def spawn(self, spec: SpawnSpec) -> ChildProcess:
        """Start a program. Never raises for a program that does not start: `done` tells. Raises `ValueError` for a spec
        that makes no sense (empty argv, grace out of range)."""

    @abstractmethod
    def resolve_executable(self, name: str) -> str:
        """The absolute path of a program: an absolute path as it is, a bare name from PATH. Raises `SpawnError` when
        there is none, and for a relative path with a slash."""


@record
class ShellRequest:
    """A command line to run. `workdir` may be relative to the executor's own directory; limits are filled in and
    capped by `Shell.resolve`. `stdin`, `env` and `stdout_max_bytes` are for plugins and never come from a model.
    `dsh_env` wins over `env`, and both over the executor's own variables."""

    command: str
    workdir: str | None = None
    timeout_ms: float | None = None
    stdout_max_bytes: int | None = None
    signal: AbortSignal | None = None
    stdin: bytes | None = None
    env: Mapping[str, str | None] | None = None
    dsh_env: Mapping[str, str] | None = None
    sandbox_policy: Any = None


@record
class ShellSpec:
    """A request with every limit filled in; times in milliseconds, sizes in bytes."""

    command: str
    cwd: str
    timeout_ms: float
    stdout_max_bytes: int
    stderr_max_bytes: int
    max_spill_bytes: int
    grace_ms: int
    signal: AbortSignal | None
    stdin: bytes | None
    env: Mapping[str, str | None]
    sandbox_policy: Any = None


@record
class ShellStream:
    """What a command printed on one stream: the end of it when `truncated`; `spill_path` then has it all, if any."""

    text: str
    truncated: bool
    spill_path: str | None = None


@record
class ShellResult:
    """How a command ended. At most one of `timed_out` and `aborted` is set: the first cause. `left_process` is the
    process group of children that outlive the command, None when there are none; `child` still controls them."""

    exit_code: int | None
    signal: str | None
    timed_out: bool
    aborted: bool
    timeout_ms: float
    stdout: ShellStream
    stderr: ShellStream
    left_process: int | None = None
    child: ChildProcess | None = None
    sandbox: Mapping[str, Any] | None = None


class ShellJob(ABC):
    """A command running in the background."""

    @property
    @abstractmethod
    def status(self) -> Literal["running", "completed", "killed"]:
        """Whether it runs, ended by itself, or was killed (a spawn failure counts as killed)."""

    @property
    @abstractmethod
    def exit(self) -> ExitStatus | None:
        """How it ended; None while it runs and after a spawn failure."""

    @abstractmethod
    def read_output(self) -> tuple[ShellStream, ShellStream]:
        """What stdout and stderr got since the last call; nothing is ever handed out twice."""

    @abstractmethod
    def kill(self) -> None:
        """End it and everything it started."""

    @abstractmethod
    async def wait(self) -> None:
        """Wait until it ended."""


class Shell(Service, name="shell"):
    """Runs command lines."""

    @property
    def sandbox_mode(self) -> str | None:
        """The mode this executor confines commands to; None = it does not confine."""
        return None

    @abstractmethod
    def resolve(self, request: ShellRequest) -> ShellSpec:
        """Fill in and cap what the request leaves open."""

    @abstractmethod
    async def run(self, spec: ShellSpec) -> ShellResult:
        """Run to the end, the time limit or the signal; after the latter two nothing of the command is left running.

        A signal that fired before starts nothing and gives `aborted`. Raises `SpawnError`.
        """

    @abstractmethod
    def start(self, spec: ShellSpec) -> ShellJob:
        """Run without a time limit, beside the caller."""


class ShellEnv(Service, name="shellEnv"):
    """The `DSH_*` variables that commands see."""

    @owned
    @abstractmethod
    def register(
        self, caller: Context, name: str, keys: Sequence[str], provide: Callable[[Any], Mapping[str, str]]
    ) -> Disposer:
        """Contribute variables `keys` (`DSH_` and capitals) under a unique `name`; `provide(agent)` gives the values it
        has. Leaves with the calling plugin.

        Raises `HarnessError` for a taken name or key, a reserved key, or a malformed one.
        """

    @abstractmethod
    def variables(self, agent: Any) -> dict[str, str]:
        """All variables for a command of `agent` (None: of nobody). Raises `HarnessError` when a contributor gives an
        undeclared key or a value that is no text."""
