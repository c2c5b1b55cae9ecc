"""The commands' side of the control API: which daemons there are, one request to one of them, its live events.

Imports nothing of the runtime, and httpx only once there is a daemon to ask.
"""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

from .run_folder import Entry, find_entries, has_lost_socket, is_gone, why_unseen, working_folder

if TYPE_CHECKING:
    import httpx

ANSWER_SECONDS: Final = 3.0
"""How long a daemon may take to say who it is: it never has to wait for anything to do so."""

REQUEST_SECONDS: Final = 60.0
SILENCE_SECONDS: Final = 40.0
"""A stream that is silent for so long has lost its daemon: there is a sign of life every 15 seconds."""

COME_BACK_SECONDS: Final = 3.0
"""How long a control row that changes may take to start anew."""

STREAM_LIMITS: Final = (ANSWER_SECONDS, SILENCE_SECONDS, SILENCE_SECONDS, SILENCE_SECONDS)
"""To connect, read, write and get a connection."""


class ControlError(Exception):
    """What went wrong, as a sentence for a person; `exit_code` of the command that says it."""

    def __init__(self, message: str, exit_code: int = 1, code: str = "FAILED") -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.code = code


class DaemonGoneError(ControlError):
    """The daemon ended."""


class NoAnswerError(ControlError):
    """The daemon is there and does not answer."""


class Daemon(NamedTuple):
    """One daemon. status: its own account; None when it does not answer."""

    entry: Entry
    status: dict[str, Any] | None

    @property
    def name(self) -> str:
        """How messages call it."""
        return f"daemon {self.entry.pid} ({show_path(self.entry.config)})"

    @property
    def silence(self) -> str:
        """Why it does not answer, and what helps."""
        pid = self.entry.pid
        if has_lost_socket(self.entry):
            return (
                f"{self.name} has lost its socket, a file that was removed; end it with `kill {pid}` and start it again"
            )
        return f"{self.name} does not answer; if it was stopped by a signal, `kill -CONT {pid}` lets it go on"

    def client(self) -> Client:
        """A connection to it. Raises NoAnswerError when it did not answer a moment ago."""
        if self.status is None:
            raise NoAnswerError(self.silence)
        return Client(self.entry)

    @property
    def agents(self) -> list[dict[str, Any]]:
        """Its agents as it describes them."""
        return [] if self.status is None else list(self.status["agents"])


class Target(NamedTuple):
    """An agent of a daemon."""

    daemon: Daemon
    agent: dict[str, Any]

    @property
    def session_id(self) -> str:
        session_id: str = self.agent["sessionId"]
        return session_id

    @property
    def name(self) -> str:
        """The label, or the session's id."""
        return str(self.agent.get("label") or self.agent["sessionId"])

    def client(self) -> Client:
        """A connection to its daemon."""
        return self.daemon.client()

    def path(self, rest: str = "") -> str:
        """The API path of its session."""
        return f"/api/sessions/{quote(self.session_id, safe='')}{rest}"


def show_path(path: str) -> str:
    """A path with the user's folder as `~`, or relative to where we are."""
    here = working_folder().rstrip(os.sep) + os.sep
    if here != os.sep and path.startswith(here):
        return path[len(here) :]
    user = os.path.expanduser("~")
    return "~" + path[len(user) :] if user != "/" and path.startswith(user + os.sep) else path


# -- one daemon -------------------------------------------------------------------------------------------------------


class Client:
    """Requests to one daemon. A context manager."""

    def __init__(self, entry: Entry, seconds: float = REQUEST_SECONDS) -> None:
        import httpx

        self._entry = entry
        transport = httpx.HTTPTransport(uds=entry.socket, verify=False)
        limits = httpx.Timeout(seconds, connect=ANSWER_SECONDS)
        self._http = httpx.Client(transport=transport, base_url="http://dsh", timeout=limits, trust_env=False)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def get(self, path: str, **query: Any) -> Any:
        """The answer to a GET. Raises ControlError."""
        return self._ask("GET", path, params=query)

    def send(self, method: str, path: str, body: Any = None) -> Any:
        """The answer to a request that changes something. Raises ControlError."""
        return self._ask(method, path, json={} if body is None else body)

    def _ask(self, method: str, path: str, **more: Any) -> Any:
        with explained(self._entry):
            response = self._http.request(method, path, **more)
            if response.is_error:
                raise refusal(response)
            return response.json()

    def stream(self, query: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        """Live frames; see `following`, which knows how to take a stream up again.

        Ends when the daemon ends the stream in good order. Raises ControlError, DaemonGoneError.
        """
        with (
            explained(self._entry),
            self._http.stream("GET", "/api/stream", params=query, timeout=STREAM_LIMITS) as response,
        ):
            if response.is_error:
                response.read()
                raise refusal(response)
            parser = FrameParser()
            for data in response.iter_raw():
                yield from parser.feed(data)


class FrameParser:
    """Takes a stream of server-sent events apart."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """The frames that `data` completes. Split at line feeds alone: JSON may hold other line separators."""
        *whole, self._rest = (self._rest + data).split(b"\n\n")
        for block in whole:
            for line in block.split(b"\n"):
                if line.startswith(b"data: "):
                    yield json.loads(line[6:])


@contextmanager
def explained(entry: Entry) -> Iterator[None]:
    """Turn what goes wrong on the way to a daemon into a ControlError."""
    import httpx

    try:
        yield
    except httpx.TimeoutException:
        text = (
            f"daemon {entry.pid} does not answer; if it was stopped by a signal, `kill -CONT {entry.pid}` lets it go on"
        )
        raise NoAnswerError(text) from None
    except httpx.TransportError:
        raise DaemonGoneError(f"daemon {entry.pid} ended") from None


def refusal(response: httpx.Response) -> ControlError:
    """What an answer that is an error says."""
    try:
        error = response.json()["error"]
        return ControlError(error["message"], code=error["code"])
    except (ValueError, KeyError, TypeError):
        return ControlError(f"the daemon answered with status {response.status_code}")


def status_of(entry: Entry) -> Daemon | None:
    """A daemon's own account; None when it is gone, or another one answers under its name."""
    try:
        with Client(entry, ANSWER_SECONDS) as client:
            status = client.get("/api/status")
    except DaemonGoneError:
        return None if is_gone(entry) else Daemon(entry, None)
    except ControlError:  # no answer, or none that we understand
        return Daemon(entry, None)
    return Daemon(entry, status) if status.get("runId") == entry.run_id else None


def still_there(entry: Entry) -> Entry | None:
    """Where the process of an entry answers now, also under a new entry when its control row started anew; None when
    it has ended, or answers nobody any more. May take a few seconds."""
    home = os.path.dirname(os.path.dirname(entry.path))
    process = (entry.host, entry.pid, entry.started_at)
    deadline = time.monotonic() + COME_BACK_SECONDS
    while not wait_for_end(entry, 0.05):
        for found in find_entries(home):
            if (found.host, found.pid, found.started_at) == process:
                return found
        if time.monotonic() > deadline:
            break
    return None


# -- all daemons ------------------------------------------------------------------------------------------------------


def find_daemons(home: Path | str) -> list[Daemon]:
    """Every daemon of a home folder, oldest first, with those that do not answer."""
    entries = find_entries(home)
    if len(entries) < 2:
        found: Sequence[Daemon | None] = [status_of(entry) for entry in entries]
    else:
        with ThreadPoolExecutor(min(len(entries), 16)) as pool:
            found = list(pool.map(status_of, entries))
    return [daemon for daemon in found if daemon is not None]


def seen_daemons(home: Path | str) -> list[Daemon]:
    """The same for who needs to know that there are none. Raises ControlError when that cannot be told."""
    daemons = find_daemons(home)
    if not daemons and (why := why_unseen(home)):
        raise ControlError(f"which daemons run cannot be told: {why}", code="UNREADABLE")
    return daemons


def _answering(daemons: Sequence[Daemon]) -> list[Daemon]:
    """Those that answer. Raises ControlError when there is none."""
    if not daemons:
        raise ControlError("no daemon is running; start one with `dsh run`", code="NO_DAEMON")
    answering = [daemon for daemon in daemons if daemon.status is not None]
    if not answering:
        raise ControlError(daemons[0].silence, code="NO_ANSWER")
    return answering


def find_agent(home: Path | str, reference: str | None) -> Target:
    """The agent with that label or session id, or the only one either of which begins with it; without a reference
    the only agent there is. `PID:` in front means the agents of that daemon alone. An agent that could not open its
    session is not meant where another has it open.

    Raises ControlError: exit code 2 and the candidates when several are meant.
    """
    _refuse_empty(reference)
    daemons = seen_daemons(home)
    targets = [Target(daemon, agent) for daemon in _answering(daemons) for agent in daemon.agents]
    found = _meant(targets, reference)
    pid, colon, rest = (reference or "").partition(":")
    if not found and colon:
        found = _meant([target for target in targets if str(target.daemon.entry.pid) == pid], rest)
    opened = {target.session_id for target in found if target.agent["status"] != "failed"}
    found = [each for each in found if each.agent["status"] != "failed" or each.session_id not in opened]
    if len(found) == 1:
        return found[0]
    if found:
        what = "several agents are running" if reference is None else f'"{reference}" may be several agents'
        raise ControlError("\n  ".join([f"{what}; name one:", *map(_candidate, found)]), 2, "AMBIGUOUS")
    silent = "".join(f"; {each.name} does not answer and may have it" for each in daemons if each.status is None)
    if reference is None:
        raise ControlError(f"no running daemon has an agent{silent}", code="NO_AGENT")
    known = ", ".join(sorted({target.name for target in targets})) or "(none)"
    text = f'no running daemon has an agent or session "{reference}" open; agents: {known}{silent}'
    raise ControlError(text, code="NO_AGENT")


def _meant(targets: list[Target], reference: str | None) -> list[Target]:
    if reference is None:
        return targets
    names = [(target, [str(target.agent.get("label") or ""), target.session_id]) for target in targets]
    found = [target for target, own in names if reference in own]
    return found or [target for target, own in names if any(name.startswith(reference) for name in own)]


def find_daemon(home: Path | str, reference: str | None) -> Daemon:
    """The daemon with that pid or composition, or of that agent; without a reference the only one there is.

    Raises ControlError: exit code 2 and the candidates when several are meant.
    """
    _refuse_empty(reference)
    daemons = seen_daemons(home)
    if reference is not None:
        path = os.path.realpath(reference)
        found = [
            daemon
            for daemon in daemons
            if str(daemon.entry.pid) == reference or os.path.realpath(daemon.entry.config) == path
        ]
        if not found:
            return _daemon_of_agent(home, reference, daemons)
        daemons = found
    if len(daemons) > 1:
        names = [f"{daemon.entry.pid}  {show_path(daemon.entry.config)}" for daemon in daemons]
        raise ControlError("\n  ".join(["several daemons are running; name one:", *names]), 2, "AMBIGUOUS")
    if not daemons:
        raise ControlError("no daemon is running", code="NO_DAEMON")
    return daemons[0]


def _daemon_of_agent(home: Path | str, reference: str, daemons: Sequence[Daemon]) -> Daemon:
    """The daemon of an agent; if there is none, the refusal says what the reference looks like."""
    try:
        return find_agent(home, reference).daemon
    except ControlError as error:
        if error.code not in ("NO_AGENT", "NO_DAEMON"):
            raise
        if os.sep in reference or reference.endswith((".yml", ".yaml")):
            there = os.path.exists(reference)
            text = f"no daemon runs {reference}" if there else f"no such file: {reference}"
        elif reference.isdigit():
            running = ", ".join(str(daemon.entry.pid) for daemon in daemons) or "none"
            text = f"no daemon with pid {reference} (running: {running})"
        else:
            raise
        raise ControlError(text, code=error.code) from None


def _refuse_empty(reference: str | None) -> None:
    if reference is not None and not reference.strip():
        raise ControlError("the name is empty", 2, "USAGE")


def _candidate(target: Target) -> str:
    label = target.agent.get("label") or "-"
    return f"{label}  {target.session_id}  in {target.daemon.name}"


def wait_for_end(entry: Entry, seconds: float | None) -> bool:
    """Wait until a daemon's process has ended; False when it has not within `seconds` (None: without limit)."""
    deadline = None if seconds is None else time.monotonic() + seconds
    if hasattr(os, "pidfd_open"):
        try:
            process = os.pidfd_open(entry.pid)
        except ProcessLookupError:
            return True
        except OSError:  # a sandbox without this call
            pass
        else:
            try:
                ended, _, _ = select.select([process], [], [], seconds)
                return bool(ended)
            finally:
                os.close(process)
    while deadline is None or time.monotonic() < deadline:
        with suppress(ProcessLookupError):
            os.kill(entry.pid, 0)
            time.sleep(0.05)
            continue
        return True
    return False
