"""The console of one terminal: talk to the agents of this process, watch them, change what runs.

Row ``console``, mounted by ``dsh run`` on a terminal. Input is taken while a turn runs, too. Ctrl-C cancels the running
turn, twice within two seconds leaves; Ctrl-D or ``/quit`` leaves. Plugins add commands to the service ``commands``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Literal

from dsh.cordis import ConfigModel, Context, describe_error, field
from dsh.core.agent import Agent
from dsh.core.agent_events import AgentError
from dsh.core.agent_loop import AgentLoop
from dsh.core.agents import Agents
from dsh.core.seams import install_settings_section
from dsh.core.session import Session
from dsh.core.session_store import SessionAppended, Sessions
from dsh.llm.content import text_of
from dsh.llm.message import create_user_message
from dsh.loader.boot import when_started

from .commands import CommandTable, ConsoleCommands
from .dialogue import Dialogue
from .display.ink import YELLOW
from .front import AgentLine, Copied, Host, Waiting
from .process import Process
from .screen import PlainScreen
from .terminal_lines import can_draw, typed_lines

if TYPE_CHECKING:
    from .spending import Rates, Spending

TAIL: Final = 6
"""Earlier messages that are shown when one comes to talk to another agent."""


class Config(ConfigModel):
    """Which agent the console talks to."""

    agent: str | None = field(None, description="Label of the agent; the first one otherwise")
    prompt: str | None = field(None, description="First prompt")
    tail: int = field(0, min=0, description="Earlier messages of the session to show at the start")


class Display(ConfigModel):
    """What a user sets about the look of the console: the settings section ``console``."""

    reasoning: Literal["line", "whole"] = field(
        "line",
        live=True,
        description="What stays of finished reasoning: a line about it, or all",
    )


def apply(ctx: Context, config: Config, agents: Agents, sessions: Sessions, loop: AgentLoop) -> None:
    """Open the console once the composition stands."""
    table = CommandTable()
    console = Console(ctx, config, sessions, loop, table)
    ctx.on(SessionAppended, console.session_event)
    ctx.on(AgentError, console.agent_error)
    ctx.on("hmr/reload", console.reloaded)
    ctx.on("loader/refreshed", console.applied)
    ctx.provide(ConsoleCommands(ctx, table))
    install_settings_section(ctx, "console", Display, Display(), on_change=console.look)
    ctx.spawn(console.main, name="console", critical=True)


class Console:
    """The front of an agent of this process; see `front.Front`."""

    def __init__(
        self, ctx: Context, config: Config, sessions: Sessions, loop: AgentLoop, commands: CommandTable
    ) -> None:
        self._ctx = ctx
        self._config = config
        self._sessions = sessions
        self._loop = loop
        self._agent: Agent | None = None
        self._process = Process(ctx, loop)
        self._exit: Callable[[int], None] = ctx.get("appExit")
        self._dialogue = Dialogue(self, commands, ctx.get("dshHomePath"), self._leave)
        self._dialogue.prompt_line.typed_ahead = ctx.get("typedAhead") or []
        if not can_draw():
            self._dialogue.use(PlainScreen())
        self._transcript = self._dialogue.transcript

    async def main(self) -> None:
        """Greet, then talk until the user leaves."""
        await when_started(self._ctx)
        await self._loop.configured.settled()
        for label, error in self._loop.configured.failures():
            self._transcript.error(f'agent "{label}" did not start: {describe_error(error)}')
        for label, error in self._loop.configured.waiting():
            self._transcript.error(f'agent "{label}" waits: {describe_error(error)}')
        self._agent = self._process.find(self._config.agent)
        if self._agent is None:
            wanted = "" if self._config.agent is None else f' "{self._config.agent}"'
            self._transcript.error(f"no agent{wanted} to talk to: add one under agent-loop.config.agents")
            self._exit(1)
            return
        self._greet(self._agent, self._config.tail)
        give_back = self._ctx.get("takeInterrupts")(self._dialogue.interrupt)
        try:
            prompted: dict[str, int] = self._ctx.get("prompted")
            if self._config.prompt is not None and not prompted:  # an edit may restart this row
                prompted[self._agent.id] = len(self._agent.session.events)
                await self._dialogue.submit(self._config.prompt)
            await self._dialogue.run(None if can_draw() else typed_lines())
        finally:
            give_back()
        if self.running:
            self._transcript.note(
                f"the running turn ends with this process; `dsh resume {self.agent.id}` goes on", YELLOW
            )
        self._exit(0)

    def _leave(self, in_turn: bool) -> None:
        self._exit(130 if in_turn else 0)
        self._dialogue.prompt_line.leave()

    # -- the agent ------------------------------------------------------------------------------------------------

    @property
    def agent(self) -> Agent:
        """The one that is talked to."""
        assert self._agent is not None
        return self._agent

    @property
    def running(self) -> bool:
        return self._agent is not None and self._agent.status == "running"

    @property
    def folder(self) -> str:
        return self._process.folder(self.agent)

    async def submit(self, text: str, *, steer: bool) -> None:
        agent = self.agent
        message = create_user_message(text)
        agent.steer(message) if steer else agent.followup(message)
        self._ctx.spawn(self._flush, agent.session, name="console: prompt to disk")

    async def _flush(self, session: Session) -> None:
        with suppress(Exception):  # a log that cannot be written fails the turn too, and that is shown
            await self._sessions.flush(session)

    def cancel(self, *, keep_queue: bool) -> None:
        self.agent.cancel({"kind": "user"}, keep_inbox=keep_queue)

    def queue(self) -> Sequence[Waiting]:
        if self._agent is None:
            return ()
        inbox = self._agent.inbox
        pending = [(message, True) for message in inbox.next_step] + [(message, False) for message in inbox.next_turn]
        return [
            Waiting(message["id"], text_of(message["content"]), steer)
            for message, steer in pending
            if message["source"]["kind"] == "user"
        ]

    async def take_back(self, message_id: str) -> bool:
        return self.agent.inbox.remove(message_id)

    async def agents(self) -> Sequence[AgentLine]:
        return self._process.agents(self.agent.id)

    def agent_names(self) -> Sequence[str]:
        return [each.label or each.session_id for each in self._process.agents("")]

    async def switch(self, name: str) -> None:
        self._talk_to(self._process.named(name))

    async def fork(self) -> Copied:
        agent, cut = await self._process.fork(self.agent)
        self._talk_to(agent)
        return Copied(agent.id, cut)

    def _talk_to(self, agent: Agent) -> None:
        if agent is not self._agent:
            self._agent = agent
            self._greet(agent, TAIL)

    # -- the process ----------------------------------------------------------------------------------------------

    @property
    def host(self) -> Host:
        return self._process

    async def usage(self) -> Spending:
        return self._process.usage(self.agent)

    def rates(self) -> Rates:
        return self._process.rates()

    # -- what happens ---------------------------------------------------------------------------------------------

    def session_event(self, happened: SessionAppended) -> None:
        """Show one event of the selected agent's session."""
        if self._agent is not None and happened.session is self._agent.session:
            self._transcript.event(happened.event.type, happened.event.data)

    def agent_error(self, event: AgentError) -> None:
        """Errors that end a turn are shown by its end; others here."""
        if event.step == 0 and event.agent is self._agent:
            self._transcript.error(describe_error(event.error))

    def look(self, display: Display) -> None:
        """The user has set how things are shown."""
        self._transcript.open_reasoning = display.reasoning == "whole"

    def reloaded(self, event: Any) -> None:
        """Plugin code was reloaded."""
        self._transcript.code_reloaded(event.rows)

    def applied(self, event: Any) -> None:
        """An edit of the configuration is in force."""
        self._transcript.config_applied(event.rows)

    def _greet(self, agent: Agent, tail: int) -> None:
        label = next((each.label for each in self._process.agents("") if each.session_id == agent.id), None)
        past = ((event.type, event.data) for event in agent.session.events)
        self._transcript.follow(label or agent.id, past, lambda: self._loop.max_parallel_tool_calls)
        self._transcript.note(f"session {agent.id}; /help for commands")
        shown = [e for e in agent.session.events if e.type in ("user/message", "assistant/message")]
        for event in shown[-tail:] if tail else ():
            self._transcript.message(event.type, event.data)
        if tail:
            self._transcript.broken_off((event.type, event.data) for event in reversed(agent.session.events))
