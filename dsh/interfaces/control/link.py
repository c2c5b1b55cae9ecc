"""The way of a console to its daemon: requests, streams of frames, and whether anybody answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any

import httpx

from .client import ANSWER_SECONDS, REQUEST_SECONDS, ControlError, FrameParser, explained, refusal, show_path
from .run_folder import Entry
from .silence import Silence


class Link:
    """A connection to the daemon of an entry. fell, spoke: called when it does not answer, and when it does again."""

    def __init__(self, entry: Entry, fell: Callable[[], None], spoke: Callable[[], None]) -> None:
        self.entry = entry
        self.silence = Silence(self._probe, fell, spoke)
        self._http = _client(entry)

    async def request(self, method: str, path: str, body: Any = None) -> Any:
        """The answer to a request. Raises ControlError."""
        with explained(self.entry), self.silence.asking():
            response = await self._http.request(method, path, json=body)
        if response.is_error:
            raise refusal(response)
        try:
            return response.json()
        except ValueError:
            text = f"daemon {self.entry.pid} ({show_path(self.entry.config)}) answered with something that is no JSON"
            raise ControlError(text) from None

    async def frames(self, method: str, path: str, **more: Any) -> AsyncGenerator[dict[str, Any], None]:
        """The frames of a stream, until its end. more: see `httpx.AsyncClient.stream`. Raises ControlError."""
        parser = FrameParser()
        with explained(self.entry):
            async with self._http.stream(method, path, **more) as response:
                if response.is_error:
                    await response.aread()
                    raise refusal(response)
                async for data in response.aiter_raw():
                    self.silence.heard()
                    for frame in parser.feed(data):
                        yield frame

    async def move(self, entry: Entry) -> None:
        """Go on where the daemon answers now."""
        self.entry, old, self._http = entry, self._http, _client(entry)
        await old.aclose()

    async def close(self) -> None:
        """Ask nothing more."""
        await self.silence.close()
        await self._http.aclose()

    async def _probe(self) -> None:
        with explained(self.entry):
            await self._http.get("/api/status")


def _client(entry: Entry) -> httpx.AsyncClient:
    transport = httpx.AsyncHTTPTransport(uds=entry.socket, verify=False)
    limits = httpx.Timeout(REQUEST_SECONDS, connect=ANSWER_SECONDS)
    return httpx.AsyncClient(transport=transport, base_url="http://dsh", timeout=limits, trust_env=False)
