"""The YAML language server that editors run, as a child process: what it says of a file, and what it would complete."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def find_server() -> str | None:
    """``$DSH_YAML_LANGUAGE_SERVER``, what scripts/yaml-language-server installed, or one on the path."""
    cached = ROOT / ".cache" / "yaml-language-server" / "node_modules" / ".bin" / "yaml-language-server"
    named = os.environ.get("DSH_YAML_LANGUAGE_SERVER")
    return named or (str(cached) if cached.exists() else shutil.which("yaml-language-server"))


class LanguageServer:
    """One running server. Messages are the plain mappings of the protocol."""

    def __init__(self, process: asyncio.subprocess.Process, settings: dict[str, Any]) -> None:
        self._process = process
        self._settings = settings
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._found: dict[str, list[Any]] = {}
        self._arrived = asyncio.Condition()

    async def read(self) -> None:
        """Take what the server says until it ends."""
        assert self._process.stdout is not None
        while header := await self._process.stdout.readline():
            length = 0
            while header.strip():
                name, _, value = header.decode().partition(":")
                length = int(value) if name.lower() == "content-length" else length
                header = await self._process.stdout.readline()
            await self._take(json.loads(await self._process.stdout.readexactly(length)))

    async def _take(self, message: Any) -> None:
        method, number = message.get("method"), message.get("id")
        if method is None:
            self._answers.pop(number).set_result(message.get("result"))
        elif method == "workspace/configuration":
            wanted = [self._settings if item.get("section") == "yaml" else {} for item in message["params"]["items"]]
            self._send({"id": number, "result": wanted})
        elif method == "textDocument/publishDiagnostics":
            async with self._arrived:
                self._found[message["params"]["uri"]] = message["params"]["diagnostics"]
                self._arrived.notify_all()
        elif number is not None:
            self._send({"id": number, "result": None})

    def _send(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self._process.stdin is not None
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))

    async def request(self, method: str, params: Any) -> Any:
        """The result of one request."""
        number = len(self._answers) + 1
        while number in self._answers:
            number += 1
        self._answers[number] = asyncio.get_running_loop().create_future()
        future = self._answers[number]
        self._send({"id": number, "method": method, "params": params})
        return await future

    def notify(self, method: str, params: Any) -> None:
        """One notification."""
        self._send({"method": method, "params": params})

    async def start(self, folder: Path) -> None:
        """Introduce an editor that has one folder open."""
        capabilities = {"workspace": {"configuration": True}, "textDocument": {"completion": {}}}
        await self.request("initialize", {"processId": None, "rootUri": folder.as_uri(), "capabilities": capabilities})
        self.notify("initialized", {})
        self.notify("workspace/didChangeConfiguration", {"settings": {"yaml": self._settings}})

    async def problems(self, path: Path, text: str) -> list[tuple[int, str]]:
        """Open a file with a text: line, counted from 1, and message of everything that is marked in it."""
        uri = path.as_uri()
        self._found.pop(uri, None)
        document = {"uri": uri, "languageId": "yaml", "version": 1, "text": text}
        self.notify("textDocument/didOpen", {"textDocument": document})
        async with self._arrived:
            await self._arrived.wait_for(lambda: uri in self._found)
        return [(each["range"]["start"]["line"] + 1, each["message"]) for each in self._found[uri]]

    async def completions(self, path: Path, line: int, column: int) -> list[str]:
        """What may be written at a place of an open file; lines and columns count from 1."""
        at = {"line": line - 1, "character": column - 1}
        result = await self.request("textDocument/completion", {"textDocument": {"uri": path.as_uri()}, "position": at})
        items = result["items"] if isinstance(result, dict) else result or []
        return [item["label"] for item in items]

    async def hover(self, path: Path, line: int, column: int) -> str:
        """What is told of the word at a place of an open file."""
        at = {"line": line - 1, "character": column - 1}
        result = await self.request("textDocument/hover", {"textDocument": {"uri": path.as_uri()}, "position": at})
        return "" if result is None else str(result["contents"]["value"])


@asynccontextmanager
async def language_server(folder: Path, custom_tags: Sequence[str]) -> AsyncIterator[LanguageServer]:
    """A server for an editor with `folder` open; ended afterwards."""
    command = find_server()
    assert command is not None
    process = await asyncio.create_subprocess_exec(
        command,
        "--stdio",
        cwd=folder,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        limit=2**24,
    )
    settings = {
        "validate": True,
        "hover": True,
        "completion": True,
        "customTags": list(custom_tags),
        "schemaStore": {"enable": False},
        "format": {"enable": False},
    }
    server = LanguageServer(process, settings)
    reading = asyncio.create_task(server.read())
    try:
        await server.start(folder)
        yield server
    finally:
        reading.cancel()
        process.kill()
        await process.wait()
        await asyncio.gather(reading, return_exceptions=True)
