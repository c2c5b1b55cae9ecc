"""The JSON-RPC runtime that SDK clients drive over standard input and output. Row ``sdk-jsonrpc-server``.

A client initializes (workspace, model), prompts sessions by ids of its choice and follows them by notifications:
every event of every session in log order, when a session runs and when it is idle, and which sessions others started.
"""

from __future__ import annotations

from dsh.cordis import ConfigModel, Context, field
from dsh.core.agents import Agents
from dsh.core.session_store import Sessions
from dsh.interfaces.stdio_jsonrpc import JsonRpcPeer

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
    """Serve standard input until it ends or the client asks to shut down; both end the run.

    Started by a command that serves nobody on standard input, or serves another protocol there, the row does nothing.
    """
    if ctx.get("stdioProtocol") != "jsonrpc":
        ctx.logger.info("no SDK client is on standard input here; `dsh jsonrpc` serves those")
        return
    peer = JsonRpcPeer(ctx.get("stdout"), lambda method, params: server.handle(method, params))
    # Listeners first: they must outlive the agents made below, whose last events are told too.
    notifications = Notifications(ctx, peer, config)
    permissions = Permissions(ctx, peer)
    server = Server(ctx, agents, sessions, OpenSessions(ctx, agents), permissions, notifications)

    async def serve() -> None:
        await peer.serve(ctx.get("stdin"), grace=END_SECONDS)
        server.leave()

    ctx.provide("sdkServer", server)  # refused for a second row: two cannot read one input
    ctx.spawn(serve, name="SDK requests", critical=True)
