"""The client's end of a line-delimited JSON-RPC server that runs as a child process."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable
from typing import Any

from tests.conformance.workplace import end


class RpcClient:
    """Requests, notifications and every frame the server wrote, in order. Use as an async context manager.

    ``noise`` holds lines of standard output that are no frames; ``stderr`` all of standard error.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.frames: list[dict[str, Any]] = []
        self.noise: list[str] = []
        self.stderr = ""
        self.on_request: Callable[[str, dict[str, Any]], Awaitable[Any]] | None = None
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._news = asyncio.Event()
        self._answers: set[asyncio.Task[None]] = set()
        self._readers = [asyncio.create_task(self._read_out()), asyncio.create_task(self._read_err())]

    async def __aenter__(self) -> RpcClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await end(self._process)
        await asyncio.gather(*self._readers)
        for answer in self._answers:
            answer.cancel()

    async def request(self, method: str, params: dict[str, Any] | None, timeout: float) -> dict[str, Any]:
        """Send a request; the answering frame. Raises ``ConnectionError`` if the server ends first."""
        id_ = next(self._ids)
        answered = self._waiting[id_] = asyncio.get_running_loop().create_future()
        await self._send({"jsonrpc": "2.0", "id": id_, "method": method, **_given(params)})
        try:
            return await asyncio.wait_for(answered, timeout)
        except TimeoutError:
            raise TimeoutError(f"no answer to {method}; standard error: {self.stderr}") from None

    async def notify(self, method: str, params: dict[str, Any] | None) -> None:
        """Send a notification."""
        await self._send({"jsonrpc": "2.0", "method": method, **_given(params)})

    async def until(self, wanted: Callable[[dict[str, Any]], bool], timeout: float) -> None:
        """Wait for a frame, from the first on."""
        async with asyncio.timeout(timeout):
            seen = 0
            while not any(map(wanted, self.frames[seen:])):
                seen = len(self.frames)
                self.check()
                self._news.clear()
                await self._news.wait()

    def check(self) -> None:
        """Raise ``ConnectionError`` if the server has ended."""
        if self._readers[0].done():
            raise ConnectionError(f"the server has ended: {self.stderr}")

    async def close(self, timeout: float) -> int:
        """Close the server's standard input and wait for its end; the exit code."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        code = await asyncio.wait_for(self._process.wait(), timeout)
        await asyncio.gather(*self._readers)
        return code

    async def _send(self, frame: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(frame).encode() + b"\n")
        await self._process.stdin.drain()

    async def _read_out(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            try:
                frame = json.loads(line)
            except ValueError:
                self.noise.append(line.decode(errors="replace"))
                continue
            self.frames.append(frame)
            self._take(frame)
            self._news.set()
        for waiting in self._waiting.values():
            waiting.set_exception(ConnectionError(f"the server has ended: {self.stderr}"))
        self._waiting.clear()
        self._news.set()

    async def _read_err(self) -> None:
        assert self._process.stderr is not None
        while line := await self._process.stderr.readline():
            self.stderr += line.decode(errors="replace")

    def _take(self, frame: dict[str, Any]) -> None:
        if "method" not in frame:
            waiting = self._waiting.pop(frame.get("id", 0), None)
            if waiting is not None:
                waiting.set_result(frame)
        elif "id" in frame:
            task = asyncio.create_task(self._answer(frame))
            self._answers.add(task)
            task.add_done_callback(self._answers.discard)

    async def _answer(self, frame: dict[str, Any]) -> None:
        assert self.on_request is not None, frame
        result = await self.on_request(frame["method"], frame["params"])
        await self._send({"jsonrpc": "2.0", "id": frame["id"], "result": result})


def _given(params: dict[str, Any] | None) -> dict[str, Any]:
    return {} if params is None else {"params": params}
