"""Agents in a runtime of their own: a ``dsh jsonrpc`` process, driven over its standard input and output."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dsh.cordis import HarnessError
from dsh.core.session_event import SessionEvent
from dsh.interfaces.stdio_jsonrpc import METHOD_NOT_FOUND, JsonRpcPeer, RpcError
from dsh.interfaces.stdout import LineOutput
from dsh.loader.boot import BootError

from .backend import Backend, PermissionCallback, PermissionRequest, decide

if TYPE_CHECKING:
    from .run import Run
    from .session import Session

GRACE_SECONDS: Final = 6.0
"""How long the runtime may take to end by itself, and once more after it was told to."""

TAIL_LINES: Final = 400
"""How much of what the runtime said last goes into the error that tells of its end."""


class SpawnedBackend(Backend):
    """Starts a runtime and speaks to it."""

    def __init__(
        self, arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str], permission: PermissionCallback | None
    ) -> None:
        super().__init__()
        # The runtime finds the modules that the program finds, and none in the folder it works in.
        path = [os.path.abspath(each) for each in sys.path]
        code = f"import sys; sys.path[:] = {path!r}; sys.argv[0] = 'dsh'; from dsh.cli.start import main; main()"
        self._command = (sys.executable, "-c", code, "jsonrpc", *arguments)
        self._cwd = cwd
        self._env = env
        self._permission = permission
        self._said: deque[str] = deque(maxlen=TAIL_LINES)
        self._tasks: set[asyncio.Task[None]] = set()
        self._asked: dict[str, asyncio.Task[None]] = {}
        """Permission callbacks at work."""
        self._process: asyncio.subprocess.Process | None = None
        self._output: LineOutput | None = None
        self._input_fd = -1
        self._peer: JsonRpcPeer | None = None

    async def start(self) -> None:
        if self._process is not None:
            raise HarnessError("the harness runs already", code="RUNNING")
        self._said.clear()
        theirs, self._input_fd = os.pipe()
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                cwd=self._cwd,
                env={**self._env},
                stdin=theirs,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is the program's, which ends the runtime in its own time
            )
        except BaseException:
            os.close(self._input_fd)
            raise
        finally:
            os.close(theirs)
        self._output = LineOutput(self._input_fd)
        self._peer = JsonRpcPeer(self._output, _refuse, on_notification=self._told, at_once=True)
        self._keep(self._peer.serve(self._chunks()), self._repeat())
        try:
            await self.ask("attach", permissions=self._permission is not None)
        except BaseException as error:
            await self.stop()
            if isinstance(error, HarnessError) and error.code == "RUNTIME_GONE":
                raise BootError("\n".join(self._said) or str(error)) from None
            raise

    async def stop(self) -> None:
        process, output = self._process, self._output
        if process is None or output is None:
            return
        self._process = None
        try:
            if self._peer is not None and process.returncode is None:
                await self._end(process, self._peer)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
            output.close()
            os.close(self._input_fd)
            for question in self._asked.values():
                question.cancel()
            if rest := [*self._tasks, *self._asked.values()]:
                await asyncio.wait(rest, timeout=GRACE_SECONDS)
            self.all_gone()

    async def _end(self, process: asyncio.subprocess.Process, peer: JsonRpcPeer) -> None:
        try:
            async with asyncio.timeout(GRACE_SECONDS):
                await peer.request("shutdown", {})
                await process.wait()
        except (TimeoutError, ConnectionError, RpcError):
            if process.returncode is None:
                process.terminate()
            try:
                await asyncio.wait_for(process.wait(), GRACE_SECONDS)
            except TimeoutError:
                pass

    # -- requests -----------------------------------------------------------------------------------------------------

    async def ask(self, name: str, **params: Any) -> Mapping[str, Any]:
        try:
            answer: Mapping[str, Any] = await self._ask(name, params)
        except Exception as error:
            raise await self._reason(error) from None
        return answer

    def tell(self, name: str, run: Run | None, **params: Any) -> None:
        answer = self._ask(name, params)

        async def take() -> None:
            try:
                await answer
            except Exception as error:
                if run is not None:
                    run._fail(await self._reason(error))

        self._keep(take())

    def _ask(self, name: str, params: Mapping[str, Any]) -> asyncio.Future[Any]:
        if self._peer is None or self._process is None:
            raise HarnessError("the harness is not running", code="NOT_RUNNING")
        try:
            return self._peer.ask(f"dsh/{name}", params)
        except ConnectionError as error:
            answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            answer.set_exception(error)
            return answer

    async def _reason(self, error: Exception) -> Exception:
        """What a request failed with, as the same request in process would have."""
        if isinstance(error, RpcError):
            code = error.data.get("code") if isinstance(error.data, Mapping) else None
            return HarnessError(error.message, code=code or "RUNTIME")
        if isinstance(error, ConnectionError):
            process = self._process
            code = "unknown" if process is None else await process.wait()
            last = f": {self._said[-1]}" if self._said else ""
            return HarnessError(f"the runtime ended with exit code {code}{last}", code="RUNTIME_GONE")
        return error

    # -- what it tells ------------------------------------------------------------------------------------------------

    def _told(self, method: str, params: Any) -> None:
        if method == "settings.updated":
            self.settings_changed(params["section"], params["value"])
        elif method == "permission.requested":
            self._asked[params["requestId"]] = asyncio.ensure_future(self._approve(params))
        elif method == "permission.closed":
            if (question := self._asked.get(params["requestId"])) is not None:
                question.cancel()
        elif method == "session.event" and params["sessionId"] in self.sessions:
            self.happened(params["sessionId"], SessionEvent.from_wire(params["event"]))
        elif method == "session.disposed":
            self.disposed(params["sessionId"])
        elif method == "session.status" and params["status"] == "idle":
            session = self.sessions.get(params["sessionId"])
            if session is not None and (left := session._unfinished()):
                self._keep(self._look_again(session, left))

    async def _look_again(self, session: Session, left: list[Run]) -> None:
        """See whether the agent is idle for good: a prompt that came late wakes it again right after it was."""
        if (await self.ask("status", sessionId=session.id))["status"] == "idle":
            session._idle(left)

    async def _approve(self, asked: Mapping[str, Any]) -> None:
        assert self._permission is not None and self._peer is not None
        request = PermissionRequest(asked["sessionId"], asked["toolName"], asked.get("callId"), asked.get("reason"))
        try:
            allowed = await decide(self._permission, request)
        finally:
            del self._asked[asked["requestId"]]
        outcome = "allowed-once" if allowed else "rejected"
        self._keep(self._peer.request("permission/respond", {"requestId": asked["requestId"], "outcome": outcome}))

    # -- the process --------------------------------------------------------------------------------------------------

    def _keep(self, *work: Any) -> None:
        for each in work:
            task = asyncio.ensure_future(each)
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # of an answer that came too late

    async def _chunks(self) -> AsyncIterator[bytes]:
        assert self._process is not None and self._process.stdout is not None
        while chunk := await self._process.stdout.read(65536):
            yield chunk
        for session in list(self.sessions.values()):
            session._gone()

    async def _repeat(self) -> None:
        """Pass on what the runtime says on standard error."""
        assert self._process is not None and self._process.stderr is not None
        while line := await self._process.stderr.readline():
            text = line.decode("utf-8", "replace").rstrip("\n")
            self._said.append(text)
            print(text, file=sys.stderr)


async def _refuse(method: str, params: Any) -> Any:
    raise RpcError(METHOD_NOT_FOUND, f"method not found: {method}")
