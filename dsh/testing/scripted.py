"""A model that says what a test wrote down: in process as an adapter, or as a real server that speaks HTTP."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from dsh.cordis import AbortError, Context
from dsh.llm.adapter import Adapter
from dsh.llm.service import Llm
from dsh.llm.types import LlmRequest, StreamChunk

from .replies import Chunks, Reply

if TYPE_CHECKING:
    from dsh.models.mock_server import MockLlmServer

Entry = Chunks | Callable[[LlmRequest], Any] | str | tuple[Chunks, str]
"""What `ScriptedAdapter` plays for one request."""

ScriptEntry = str | Reply | Chunks | Mapping[str, Any] | Callable[[Any], Any]
"""What `ScriptedModel` plays for one request: a text, a `Reply`, or a function of the request that gives one.

In process also a list of chunks; over HTTP also an entry of the mock server, such as ``{"behavior": "rate_limit"}``.
"""

ROUTE = "scripted"


class ScriptedAdapter(Adapter):
    """Plays one entry a request and records every request.

    An entry is a chunk list; a function of the request giving one; ``"hang"`` (one text delta, then wait for the
    abort); ``"hang-slow"`` (notices the abort 50 ms late); or ``(chunks, "hang")``.
    """

    def __init__(self, script: Sequence[Entry]) -> None:
        self.script = list(script)
        self.requests: list[LlmRequest] = []
        self.hanging = asyncio.Event()

    async def stream(self, request: LlmRequest) -> AsyncIterator[StreamChunk]:
        self.requests.append(request)
        if not self.script:
            raise AssertionError("the scripted model has no entry left")
        entry: Any = self.script.pop(0)
        if callable(entry):
            entry = entry(request)
            if inspect.isawaitable(entry):
                entry = await entry
        hang = None
        if isinstance(entry, tuple):
            entry, hang = entry
        elif isinstance(entry, str):
            hang = entry
            entry = [
                {"type": "block-start", "index": 0, "blockType": "text"},
                {"type": "text-delta", "index": 0, "text": "partial"},
            ]
        for chunk in entry:
            await asyncio.sleep(0)
            yield chunk
        if hang is not None:
            self.hanging.set()
            assert request.signal is not None
            await request.signal.wait()
            if hang == "hang-slow":
                await asyncio.sleep(0.05)
            raise AbortError("stream aborted")


class ScriptedModel:
    """Answers each request with the next entry of a script.

        ScriptedModel([call("now"), "It is noon."])

    In process it is an adapter for the route `scripted`. With `http` it is a server on the loopback interface behind
    the DeepSeek adapter, so that requests and replies travel as they do in production. A request past the end of the
    script fails its turn.
    """

    def __init__(self, script: Sequence[ScriptEntry] = (), *, http: bool = False) -> None:
        self.http = http
        self.provider = "deepseek-official" if http else ROUTE
        self.model = "deepseek-v4-flash" if http else ROUTE
        self._script = list(script)
        self._adapter: ScriptedAdapter | None = None
        self._server: MockLlmServer | None = None

    @property
    def requests(self) -> list[Any]:
        """Every request so far: `LlmRequest` objects in process, JSON bodies over HTTP."""
        if self._server is not None:
            return self._server.bodies
        return [] if self._adapter is None else list(self._adapter.requests)

    @property
    def left(self) -> int:
        """How many entries nobody has asked for yet."""
        return max(0, len(self._script) - len(self.requests))

    async def asked(self, count: int = 1) -> None:
        """Return once `count` requests have arrived."""
        if self._server is not None:
            await self._server.wait_for_requests(count)
        while len(self.requests) < count:
            await asyncio.sleep(0)

    @asynccontextmanager
    async def serve(self, root: Context) -> AsyncIterator[None]:
        """Answer the requests of `root`, which needs the service `llm`, while the block runs."""
        if not self.http:
            adapter = self._adapter = ScriptedAdapter([_in_process(entry) for entry in self._script])

            def register(ctx: Context, config: None, llm: Llm) -> None:
                llm.register_adapter([self.provider], adapter)

            register.name = "scripted-model"  # type: ignore[attr-defined]
            await root.plugin(register)
            yield
            return
        from dsh.models import deepseek
        from dsh.models.mock_server import MockLlmServer

        async with MockLlmServer([_over_http(entry) for entry in self._script]) as server:
            self._server = server
            await root.plugin(deepseek, {"baseURL": server.url})
            yield


def _in_process(entry: Any) -> Entry:
    if isinstance(entry, str):
        return Reply(entry).chunks()
    if isinstance(entry, Reply):
        return (entry.chunks(), "hang") if entry.hangs else entry.chunks()
    if isinstance(entry, Mapping):
        raise TypeError(f"{entry!r} is an answer over HTTP: ScriptedModel([...], http=True)")
    if not callable(entry):
        return list(entry)

    async def later(request: LlmRequest) -> Any:
        answer = entry(request)
        return _in_process(await answer if inspect.isawaitable(answer) else answer)

    return later


def _over_http(entry: Any) -> Any:
    if isinstance(entry, str):
        return Reply(entry).http()
    if isinstance(entry, Reply):
        return entry.http()
    if isinstance(entry, list):
        raise TypeError("chunks are answers in process: leave http=True out, or write a Reply")
    return (lambda body: _over_http(entry(body))) if callable(entry) else entry
