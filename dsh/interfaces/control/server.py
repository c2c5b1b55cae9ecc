"""Row ``control``, mounted by ``dsh run``: opens the sockets of the control API and notes the daemon.

Opening costs a few system calls. Everything that answers is imported when the first client has sent something.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
import weakref
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dsh.cordis import ConfigModel, Context, HarnessError, Service, field, owned

from .run_folder import Entry, RunFolderError, host_name, listen, open_run_folder, publish, withdraw, working_folder

if TYPE_CHECKING:
    from dsh.cordis import Disposer

    from .doors import Door
    from .routes import Api, Route


name = "control"

FIRST_SECONDS: Final = 10.0
"""How long a connection may be open without a word."""

MAX_ON_TCP: Final = 100
"""Connections on TCP at a time: every user of the machine can open one there, without the token."""


class Config(ConfigModel):
    """Where the API is served besides the Unix socket."""

    port: int | None = field(
        None, min=0, max=65535, description="Loopback TCP port, guarded by a token; 0 picks a free one"
    )


class Control(Service, name="control"):
    """The control API of this process. A run goes on without it when no Unix socket can be opened; a TCP port that
    was asked for and cannot be opened is an error."""

    def __init__(self, ctx: Context, config: Config) -> None:
        self._port: int | None = ctx.get("controlPort")
        if self._port is None:
            self._port = config.port
        self.run_id = os.urandom(8).hex()
        self.started_at: int = ctx.get("runStartedAt") or time.time_ns() // 1_000_000
        self.url: str | None = None
        self.socket_path: str | None = None
        self.extra: list[Route] = []
        self._token = ""
        self._on_tcp = 0
        self._api: Api | None = None

    async def start(self) -> None:
        """Open the sockets and write the entry."""
        try:
            folder = open_run_folder(Path(self.ctx.get("dshHomePath")))
            sock, self.socket_path = listen(folder, self.run_id)
        except RunFolderError as error:
            self.ctx.logger.warning("this run cannot be controlled from other terminals: %s", error)
            return
        here = host_name(), self.config_path, working_folder()
        entry = Entry("", os.getpid(), self.run_id, self.socket_path, *here, self.started_at)
        self.ctx.defer(lambda: withdraw(entry))
        _close_in_children(sock)
        server = await asyncio.start_unix_server(self._connected_here, sock=sock)
        self.ctx.defer(server.close)
        if self._port is not None:
            await self._listen_on_tcp(self._port)
        try:
            entry = publish(folder, entry._replace(url=self.url))
        except RunFolderError as error:
            self.ctx.logger.warning("this run cannot be controlled from other terminals: %s", error)
        if self.url is not None:
            where = self.url
            if not sys.stderr.isatty():  # a log that others may read
                where = f"{self.url.partition('#')[0]} (its token is in {entry.path})"
            from ..stdout import say

            say(f"control on {where}")

    async def _listen_on_tcp(self, port: int) -> None:
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except OSError as error:
            sock.close()
            raise HarnessError(f"TCP port {port} cannot be opened: {error.strerror}", code="NO_PORT") from None
        _close_in_children(sock)
        self._token = os.urandom(24).hex()
        self.url = f"http://127.0.0.1:{sock.getsockname()[1]}/#token={self._token}"
        server = await asyncio.start_server(self._connected_on_tcp, sock=sock)
        self.ctx.defer(server.close)

    @owned
    def serve(self, caller: Context, route: Route) -> Disposer:
        """Answer one more route while the calling plugin is there."""

        def setup() -> Any:
            self.extra.append(route)
            return lambda: self.extra.remove(route)

        return caller.effect(setup, f"control.serve({route.method} {route.path})")

    @property
    def config_path(self) -> str:
        """The composition's file."""
        loader = self.ctx.get("loader")
        source = loader.root_source if loader is not None else None
        return str(source.path) if source is not None and source.path is not None else ""

    # -- connections ----------------------------------------------------------------------------------------------

    def _connected_here(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.ctx.spawn(self._serve, reader, writer, None, name="control connection")

    def _connected_on_tcp(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._on_tcp >= MAX_ON_TCP:
            writer.transport.abort()
            return
        port = writer.get_extra_info("sockname")[1]
        self.ctx.spawn(self._serve_on_tcp, reader, writer, port, name="control connection")

    async def _serve_on_tcp(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
        self._on_tcp += 1
        try:
            await self._serve(reader, writer, port)
        finally:
            self._on_tcp -= 1

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int | None) -> None:
        try:
            async with asyncio.timeout(FIRST_SECONDS):
                first = await reader.read(65536)
            if not first:
                return  # somebody only looked whether we are there
            from .connection import serve_connection
            from .doors import SocketDoor, TokenDoor
            from .routes import Api

            if self._api is None:
                self._api = Api(self.ctx, self)
            door: Door = SocketDoor() if port is None else TokenDoor(port, self._token)
            if door.admits(writer.get_extra_info("socket")):
                await serve_connection(reader, writer, first, door, self._api.handle)
        except (ConnectionError, TimeoutError):
            pass
        finally:
            writer.close()


def _close_in_children(sock: socket.socket) -> None:
    """A forked child shares the socket: it would keep it open after our death and answer nobody."""
    ours = weakref.ref(sock)

    def in_child() -> None:
        left = ours()
        if left is not None and left.fileno() >= 0:
            with suppress(OSError):
                os.close(left.fileno())  # the event loop's claim on it keeps `close` from doing so

    os.register_at_fork(after_in_child=in_child)
