"""A plain console for one agent: a prompt, the streamed answer, one line per tool call.

Row ``console``, mounted by ``dsh run`` on a terminal. Ctrl-C cancels the running turn, twice within two seconds
leaves; Ctrl-D or ``/quit`` leaves.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from dsh.cordis import ConfigModel, Context, describe_error, field
from dsh.core.agent import Agent
from dsh.core.agent_events import AgentError
from dsh.core.agent_loop import AgentLoop
from dsh.core.agents import Agents
from dsh.core.session_store import SessionAppended, Sessions
from dsh.llm.message import create_user_message
from dsh.loader.boot import when_started

from .outcome import end_name, text_of
from .terminal_text import Style, one_line, printable

if TYPE_CHECKING:
    from dsh.core.session_event import SessionEvent

LEAVE_SECONDS = 2.0
HELP = "/help this text, /agents list, /switch LABEL, /cancel stop the turn, /quit leave"


class Config(ConfigModel):
    """Which agent the console talks to."""

    agent: str | None = field(None, description="Label of the agent; the first one otherwise")
    prompt: str | None = field(None, description="First prompt")
    tail: int = field(0, min=0, description="Earlier messages of the session to show at the start")


def apply(ctx: Context, config: Config, agents: Agents, sessions: Sessions, loop: AgentLoop) -> None:
    """Open the console once the composition stands."""
    console = Console(ctx, config, sessions, loop)
    ctx.on(SessionAppended, console.session_event)
    ctx.on(AgentError, console.agent_error)
    ctx.on("hmr/reload", console.reloaded)
    ctx.on("loader/refreshed", console.applied)
    ctx.spawn(console.main, name="console", critical=True)


class Console:
    """Reads prompts and prints what the agent does."""

    def __init__(self, ctx: Context, config: Config, sessions: Sessions, loop: AgentLoop) -> None:
        self._ctx = ctx
        self._config = config
        self._sessions = sessions
        self._loop = loop
        self._style = Style(sys.stdout)
        self._agent: Agent | None = None
        self._column_open = False
        self._last_interrupt = 0.0
        self._exit: Callable[[int], None] = ctx.get("appExit")

    async def main(self) -> None:
        """Greet, then prompt until the user leaves."""
        await when_started(self._ctx)
        await self._loop.configured.settled()
        for label, error in self._loop.configured.failures():
            self._line(self._style("31", f'agent "{label}" did not start: {describe_error(error)}'))
        self._select(self._config.agent)
        if self._agent is None:
            self._line(self._style("31", "no agent to talk to: add one under agent-loop.config.agents"))
            self._exit(1)
            return
        self._greet(self._agent)
        give_back = self._ctx.get("takeInterrupts")(self._interrupt)
        try:
            prompted: dict[str, int] = self._ctx.get("prompted")
            if self._config.prompt is not None and not prompted:  # an edit may restart this row
                prompted[self._agent.id] = len(self._agent.session.events)
                await self._ask(self._config.prompt)
            await self._read_prompts()
        finally:
            give_back()
        self._exit(0)

    # -- input ----------------------------------------------------------------------------------------------------

    async def _read_prompts(self) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.patch_stdout import patch_stdout

        reader: PromptSession[str] = PromptSession()
        while True:
            try:
                with patch_stdout(raw=True):
                    text = (await reader.prompt_async("> ", handle_sigint=False)).strip()
            except KeyboardInterrupt:
                if self._interrupted_twice():
                    return
                self._line(self._style("2", "press Ctrl-C again to leave"))
                continue
            except EOFError:
                return
            if text == "/quit":
                return
            if text.startswith("/"):
                self._command(text)
            elif text:
                await self._ask(text)

    async def _ask(self, text: str) -> None:
        agent = self._agent
        assert agent is not None
        agent.followup(create_user_message(text))
        with suppress(Exception):  # a log that cannot be written fails the turn too, and that is shown
            await self._sessions.flush(agent.session)
        await agent.when_idle()

    def _command(self, text: str) -> None:
        name, _, argument = text.partition(" ")
        if name == "/agents":
            for label, session_id in self._loop.configured.sessions():
                here = "*" if self._agent is not None and self._agent.id == session_id else " "
                self._line(f"{here} {label}  {session_id}")
        elif name == "/switch":
            self._select(argument.strip())
        elif name == "/cancel":
            if self._agent is not None:
                self._agent.cancel({"kind": "user"})
        else:
            self._line(HELP)

    def _select(self, label: str | None) -> None:
        configured = self._loop.configured
        for name, _ in configured.sessions():
            if label in (None, name) and configured.agent(name) is not None:
                self._agent = configured.agent(name)
                return
        if label is not None:
            known = ", ".join(name for name, _ in configured.sessions()) or "(none)"
            self._line(self._style("31", f'no agent "{label}"; agents: {known}'))

    def _interrupt(self) -> None:
        if self._interrupted_twice():
            self._exit(130)
        elif self._agent is not None and self._agent.status == "running":
            self._line(self._style("33", "cancelling; Ctrl-C again leaves"))
            self._agent.cancel({"kind": "user"}, keep_inbox=True)
        else:
            self._line(self._style("2", "press Ctrl-C again to leave"))

    def _interrupted_twice(self) -> bool:
        now = time.monotonic()
        twice = now - self._last_interrupt < LEAVE_SECONDS
        self._last_interrupt = now
        return twice

    # -- output ---------------------------------------------------------------------------------------------------

    def session_event(self, happened: SessionAppended) -> None:
        """Print one event of the selected agent's session."""
        if self._agent is None or happened.session is not self._agent.session:
            return
        event = happened.event
        if event.type == "assistant/chunk":
            self._chunk(event.data["chunk"])
        elif event.type == "tool/call":
            shown = one_line(event.data["arguments"])
            self._line(f"{self._style('36', event.data['name'])} {self._style('2', shown)}")
        elif event.type == "tool/result":
            self._tool_result(event)
        elif event.type == "llm/retry":
            data = event.data
            text = f"retry {data['retry']} in {data['delayMs'] / 1000:.1f} s: {data['failure']['message']}"
            self._line(self._style("33", printable(text)))
        elif event.type == "turn/end":
            self._turn_end(event.data["reason"])

    def _chunk(self, chunk: Any) -> None:
        if chunk["type"] == "text-delta":
            self._write(printable(chunk["text"]))
        elif chunk["type"] == "reasoning-delta":
            self._write(self._style("2", printable(chunk["text"])))
        elif chunk["type"] == "block-end":
            self._close_line()

    def _tool_result(self, event: SessionEvent) -> None:
        block = event.data["message"]["content"][0]
        first = one_line(text_of(block["content"])) or "(no text)"
        colour = "31" if block.get("isError") else "2"
        self._line("  " + self._style(colour, first))

    def _turn_end(self, reason: Any) -> None:
        self._close_line()
        name = end_name(reason)
        if name == "error":
            error = reason["error"]
            self._line(self._style("31", printable(f"{error['code']}: {error['message']}")))
        elif name != "completed":
            self._line(self._style("33", f"turn ended: {name}"))

    def agent_error(self, event: AgentError) -> None:
        """Errors that end a turn are shown by its end; others here."""
        if event.step == 0 and event.agent is self._agent:
            self._line(self._style("31", printable(describe_error(event.error))))

    def reloaded(self, event: Any) -> None:
        """Plugin code was reloaded."""
        self._line(self._style("2", f"reloaded: {', '.join(event.rows)}"))

    def applied(self, event: Any) -> None:
        """An edit of the configuration is in force."""
        self._line(self._style("2", f"config applied: {', '.join(event.rows) or 'no row changed'}"))

    def _greet(self, agent: Agent) -> None:
        self._line(self._style("2", f"session {agent.id}; /help for commands"))
        shown = [e for e in agent.session.events if e.type in ("user/message", "assistant/message")]
        for event in shown[-self._config.tail :] if self._config.tail else ():
            message = event.data if event.type == "user/message" else event.data["message"]
            if text := text_of(message["content"]):
                mark = "> " if event.type == "user/message" else ""
                self._line(self._style("2", mark + printable(text)))

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()
        self._column_open = not text.endswith("\n") if text else self._column_open

    def _close_line(self) -> None:
        if self._column_open:
            self._write("\n")

    def _line(self, text: str) -> None:
        self._close_line()
        self._write(text + "\n")
