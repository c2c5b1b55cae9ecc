"""The JSON-RPC runtime that SDK clients drive over standard input and output. Row ``sdk-jsonrpc-server``.

A client initializes (workspace, model), prompts sessions by ids of its choice and follows them by notifications:
every event of every session in log order, when a session runs and when it is idle, and which sessions others started.
"""

from __future__ import annotations

from collections.abc import AsyncIterable

from dsh.cordis import ConfigModel, Context, HarnessError, field
from dsh.core.agents import Agents
from dsh.core.session_store import Sessions
from dsh.interfaces.stdio_jsonrpc import JsonRpcPeer, stdin_chunks
from dsh.interfaces.stdout import LineOutput

from .notifications import Notifications
from .open_sessions import OpenSessions
from .permissions import Permissions
from .server import Server

__all__ = ["Config", "apply", "name"]

name = "sdk-jsonrpc-server"

END_SECONDS = 2.0
"""How long requests that came before the end of the input may still take."""


class Config(ConfigModel):
    """Row config of the SDK runtime."""

    max_tokens_as_success: bool = field(
        False, live=True, description="Report a subagent that ran into its output cap as ok"
    )


def apply(ctx: Context, config: Config, agents: Agents, sessions: Sessions) -> None:
    """Serve standard input until it ends or the client asks to shut down; both end the run."""
    output: LineOutput | None = ctx.get("stdout")
    if output is None:
        raise HarnessError("the SDK runtime needs the launcher's standard output", code="NO_STDOUT")
    source: AsyncIterable[bytes] = ctx.get("stdin") or stdin_chunks()
    peer = JsonRpcPeer(output, lambda method, params: server.handle(method, params))
    # Listeners first: they must outlive the agents made below, whose last events are told too.
    notifications = Notifications(ctx, peer, config)
    permissions = Permissions(ctx, peer)
    server = Server(ctx, agents, sessions, OpenSessions(ctx, agents), permissions, notifications)

    async def serve() -> None:
        await peer.serve(source, grace=END_SECONDS)
        server.leave()

    ctx.spawn(serve, name="SDK requests", critical=True)
