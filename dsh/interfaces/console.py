"""A plain console for one agent: a prompt, the streamed answer, one line per tool call.

Row ``console``, mounted by ``dsh run`` on a terminal. Input is taken while a turn runs, too. Ctrl-C cancels the running
turn, twice within two seconds leaves; Ctrl-D or ``/quit`` leaves.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from dsh.cordis import ConfigModel, Context, describe_error, field
from dsh.core.agent import Agent
from dsh.core.agent_events import AgentError
from dsh.core.agent_loop import AgentLoop
from dsh.core.agents import Agents
from dsh.core.session_store import SessionAppended, Sessions
from dsh.llm.message import create_user_message
from dsh.loader.boot import when_started

from .dialogue import Dialogue

HELP = """\
/agents   list them; /switch LABEL talks to another
/quit     leave, as Ctrl-D does"""


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
    """The front of an agent of this process; see `dialogue.Front`."""

    def __init__(self, ctx: Context, config: Config, sessions: Sessions, loop: AgentLoop) -> None:
        self._ctx = ctx
        self._config = config
        self._sessions = sessions
        self._loop = loop
        self._agent: Agent | None = None
        self._exit: Callable[[int], None] = ctx.get("appExit")
        self._dialogue = Dialogue(self, HELP, self._leave)
        self._transcript = self._dialogue.transcript

    async def main(self) -> None:
        """Greet, then talk until the user leaves."""
        await when_started(self._ctx)
        await self._loop.configured.settled()
        for label, error in self._loop.configured.failures():
            self._transcript.error(f'agent "{label}" did not start: {describe_error(error)}')
        for label, error in self._loop.configured.waiting():
            self._transcript.error(f'agent "{label}" waits: {describe_error(error)}')
        self._select(self._config.agent)
        if self._agent is None:
            self._transcript.error("no agent to talk to: add one under agent-loop.config.agents")
            self._exit(1)
            return
        self._greet(self._agent)
        give_back = self._ctx.get("takeInterrupts")(self._dialogue.interrupt)
        try:
            prompted: dict[str, int] = self._ctx.get("prompted")
            if self._config.prompt is not None and not prompted:  # an edit may restart this row
                prompted[self._agent.id] = len(self._agent.session.events)
                self._transcript.note(f"> {self._config.prompt}")
                await self._dialogue.submit(self._config.prompt)
            await self._dialogue.run()
        finally:
            give_back()
        self._exit(0)

    def _leave(self, in_turn: bool) -> None:
        if in_turn:
            self._exit(130)
        self._dialogue.prompt_line.leave()

    # -- the agent ------------------------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        return self._agent is not None and self._agent.status == "running"

    async def submit(self, text: str, *, steer: bool) -> None:
        agent = self._agent
        assert agent is not None
        message = create_user_message(text)
        agent.steer(message) if steer else agent.followup(message)
        with suppress(Exception):  # a log that cannot be written fails the turn too, and that is shown
            await self._sessions.flush(agent.session)

    def cancel(self, *, keep_queue: bool) -> None:
        if self._agent is not None:
            self._agent.cancel({"kind": "user"}, keep_inbox=keep_queue)

    def command(self, name: str, argument: str) -> bool:
        if name == "/agents":
            for label, session_id in self._loop.configured.sessions():
                here = "*" if self._agent is not None and self._agent.id == session_id else " "
                self._dialogue.prompt_line.print(f"{here} {label}  {session_id}")
        elif name == "/switch":
            self._select(argument)
        else:
            return False
        return True

    def _select(self, label: str | None) -> None:
        configured = self._loop.configured
        for name, _ in configured.sessions():
            if label in (None, name) and configured.agent(name) is not None:
                self._agent = configured.agent(name)
                return
        if label is not None:
            known = ", ".join(name for name, _ in configured.sessions()) or "(none)"
            self._transcript.error(f'no agent "{label}"; agents: {known}')

    # -- what happens ---------------------------------------------------------------------------------------------

    def session_event(self, happened: SessionAppended) -> None:
        """Show one event of the selected agent's session."""
        if self._agent is not None and happened.session is self._agent.session:
            self._transcript.event(happened.event.type, happened.event.data)

    def agent_error(self, event: AgentError) -> None:
        """Errors that end a turn are shown by its end; others here."""
        if event.step == 0 and event.agent is self._agent:
            self._transcript.error(describe_error(event.error))

    def reloaded(self, event: Any) -> None:
        """Plugin code was reloaded."""
        self._transcript.note(f"reloaded: {', '.join(event.rows)}")

    def applied(self, event: Any) -> None:
        """An edit of the configuration is in force."""
        self._transcript.note(f"config applied: {', '.join(event.rows) or 'no row changed'}")

    def _greet(self, agent: Agent) -> None:
        self._transcript.note(f"session {agent.id}; /help for commands")
        shown = [e for e in agent.session.events if e.type in ("user/message", "assistant/message")]
        for event in shown[-self._config.tail :] if self._config.tail else ():
            self._transcript.message(event.type, event.data)
