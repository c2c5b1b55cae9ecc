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

ScriptEntry = str | Reply | Chunks | Mapping[str, Any] | Callable[[Any], Any]
"""What `ScriptedModel` plays for one request: a text, a `Reply`, or a function of the request that gives one.

In process also a list of chunks, and an async function; over HTTP also an entry of the mock server, such as
``{"behavior": "rate_limit"}``.
"""

ROUTE = "scripted"


class _Script(Adapter):
    """Plays one entry a request and records every request."""

    def __init__(self, entries: Sequence[ScriptEntry]) -> None:
        self._entries = [entry if callable(entry) else _in_process(entry) for entry in entries]
        self.requests: list[LlmRequest] = []

    async def stream(self, request: LlmRequest) -> AsyncIterator[StreamChunk]:
        self.requests.append(request)
        if not self._entries:
            raise AssertionError("the scripted model has no entry left")
        entry: Any = self._entries.pop(0)
        if callable(entry):
            answer = entry(request)
            entry = _in_process(await answer if inspect.isawaitable(answer) else answer)
        chunks, hangs = entry
        for chunk in chunks:
            await asyncio.sleep(0)
            yield chunk
        if hangs:
            assert request.signal is not None
            await request.signal.wait()
            raise AbortError("stream aborted")


class ScriptedModel:
    """Answers each request with the next entry of a script.

        ScriptedModel([call("now"), "It is noon."])

    In process it is an adapter for the route `scripted`. With `http` it is a server on the loopback interface behind
    the DeepSeek adapter, so that requests and replies travel as they do in production. A request past the end of the
    script fails its turn. Raises `TypeError` for one entry in place of a list.
    """

    def __init__(self, script: Sequence[ScriptEntry] = (), *, http: bool = False) -> None:
        if isinstance(script, (str, Mapping)) or not isinstance(script, Sequence):
            raise TypeError(f"what a model says must be a list, one entry a request; give [{script!r}]")
        self.http = http
        self.provider = "deepseek-official" if http else ROUTE
        self.model = "deepseek-v4-flash" if http else ROUTE
        self._script = list(script)
        self._adapter: _Script | None = None
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
            adapter = self._adapter = _Script(self._script)

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


def _in_process(entry: Any) -> tuple[Chunks, bool]:
    """The chunks of an entry, and whether it hangs after them."""
    if isinstance(entry, str):
        entry = Reply(entry)
    if isinstance(entry, Reply):
        return entry.chunks(), entry.hangs
    if isinstance(entry, Mapping):
        raise TypeError(f"{entry!r} is an answer over HTTP: ScriptedModel([...], http=True)")
    return list(entry), False


def _over_http(entry: Any) -> Any:
    if isinstance(entry, str):
        return Reply(entry).http()
    if isinstance(entry, Reply):
        return entry.http()
    if isinstance(entry, list):
        raise TypeError("chunks are answers in process: leave http=True out, or write a Reply")
    if inspect.iscoroutinefunction(entry):
        raise TypeError("an async function answers in process: leave http=True out, or write a plain one")
    return (lambda body: _over_http(entry(body))) if callable(entry) else entry
