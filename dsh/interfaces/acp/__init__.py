"""Row ``acp``: this composition as an agent of the Agent Client Protocol, on standard input and output.

Presentation ``automation`` sends what the model has committed and nothing more; ``editor`` streams, shows tool calls,
diffs and the plan, and opens stored sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

from dsh.cordis import ConfigModel, Context, field
from dsh.core.agents import Agents
from dsh.core.session_store import Sessions
from dsh.llm.service import Llm

from .server import AcpServer


class Config(ConfigModel):
    """Which model answers, and how much the client is shown."""

    provider: str | None = field(None, description="Model provider of new sessions; the default model otherwise")
    model: str | None = field(None, description="Model id at that provider")
    presentation: Literal["automation", "editor"] = field(
        "automation", description="Committed messages only, or everything an editor can show"
    )

    def cross_check(self) -> Iterable[tuple[str, str]]:
        """Half a route is none."""
        if (self.provider is None) != (self.model is None):
            yield "model" if self.model is None else "provider", "provider and model go together"


def apply(ctx: Context, config: Config, agents: Agents, sessions: Sessions, llm: Llm) -> None:
    """Serve the client; its end asks the launcher to exit with code 0.

    Started by a command that serves nobody on standard input, or serves another protocol there, the row does nothing:
    one composition is for all of them.
    """
    if ctx.get("stdioProtocol") != "acp":
        ctx.logger.info("nobody speaks ACP on standard input here; `dsh acp` serves those who do")
        return
    leave: Callable[[int], None] = ctx.get("appExit")
    server = AcpServer(ctx, config, agents, sessions, llm, ctx.get("stdout"), ctx.get("stdin"))

    async def serve() -> None:
        await server.serve()
        leave(0)

    ctx.provide("acp", server)  # refused for a second row: two cannot read one input
    ctx.spawn(serve, name="acp", critical=True)
    ctx.defer(server.close)
