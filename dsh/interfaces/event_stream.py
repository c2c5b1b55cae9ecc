"""What a running composition tells the outside: one line an event, or a few lines for a person.

Row ``event-stream``, mounted by ``dsh run``. As ``stream-json`` standard output carries ``ready``, every
``session_event``, ``config`` after each reload and at the end ``result``; as ``text`` a person reads short lines on
standard error and final answers on standard output.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any, Literal

from dsh.cordis import ConfigModel, Context, describe_error, field
from dsh.core.agent import Agent
from dsh.core.agent_loop import AgentLoop
from dsh.core.agents import Agents
from dsh.core.seams import Commands
from dsh.core.session_store import SessionAppended, Sessions
from dsh.llm.message import create_user_message
from dsh.loader.boot import AppExit, when_started
from dsh.loader.resolve import show_path

from .commands import CommandTable, ConsoleCommands
from .outcome import Outcome, outcome_of, report, report_failure, write_event, write_result
from .stdout import LineOutput, say


class Config(ConfigModel):
    """How to report, and an optional prompt to start with."""

    output: Literal["text", "json", "stream-json"] = field("text", description="Form of standard output")
    prompt: str | None = field(None, description="First prompt for the agent")
    agent: str | None = field(None, description="Label of the agent to prompt; the first one otherwise")
    exit_when_idle: bool = field(False, description="Leave once no agent works any more")
    require_agents: bool = field(False, description="Leave with code 1 when a configured agent cannot start")


def apply(ctx: Context, config: Config, agents: Agents, sessions: Sessions, loop: AgentLoop) -> None:
    """Report the composition's life and, when asked, drive it to its end."""
    reporter = Reporter(ctx, config)
    if config.output == "stream-json":
        ctx.on(SessionAppended, lambda event: write_event(reporter.out, event.session.id, event.event))
    ctx.on("hmr/reload", reporter.applied)
    ctx.on("loader/refreshed", reporter.applied)
    ctx.on("hmr/config-update-failed", reporter.refused)
    if ctx.get(Commands) is None:  # for the consoles of other processes
        ctx.provide(ConsoleCommands(ctx, CommandTable()))
    ctx.spawn(lambda: _drive(ctx, config, agents, sessions, loop, reporter), name="event stream", critical=True)


class Reporter:
    """Turns events into lines."""

    def __init__(self, ctx: Context, config: Config) -> None:
        self.out: LineOutput = ctx.get("stdout")
        self.exit: AppExit = ctx.get("appExit")
        self._json = config.output == "stream-json"

    def ready(self, pid: int, agents: list[tuple[str, str]]) -> None:
        """The composition stands and its agents are there."""
        if self._json:
            listed = [{"label": label, "sessionId": session_id} for label, session_id in agents]
            self.out.write_json({"type": "ready", "pid": pid, "agents": listed})
            return
        for label, session_id in agents:
            say(f"agent {label}: session {session_id}")
        say(f"ready (pid {pid})")

    def applied(self, event: Any) -> None:
        """An edit of the configuration is in force, or plugin code was reloaded."""
        self._config("applied", event.path, rows=event.rows)

    def refused(self, event: Any) -> None:
        """An edit was refused; the previous graph runs on."""
        self._config("refused", show_path(event.path), error=describe_error(event.error))

    def _config(self, status: str, path: Any, **more: Any) -> None:
        if self._json:
            self.out.write_json({"type": "config", "status": status, "path": str(path), **more})
        elif status == "applied":  # a refusal is in the log lines already
            rows = more.get("rows") or []
            say(f"config applied: {', '.join(rows) if rows else 'no row changed'}")


async def _drive(
    ctx: Context, config: Config, agents: Agents, sessions: Sessions, loop: AgentLoop, reporter: Reporter
) -> None:
    try:
        await _main(ctx, config, agents, sessions, loop, reporter)
    except Exception as error:  # such as a log that cannot be written
        if config.exit_when_idle:
            report_failure(reporter.out, config.output, error)
            reporter.exit(1)
        else:
            report_failure(reporter.out, "text", error)


async def _main(
    ctx: Context, config: Config, agents: Agents, sessions: Sessions, loop: AgentLoop, reporter: Reporter
) -> None:
    await when_started(ctx)
    await loop.configured.settled()
    failures = [*loop.configured.failures(), *loop.configured.waiting()]
    failed = {label for label, _ in failures}
    reporter.ready(os.getpid(), [each for each in loop.configured.sessions() if each[0] not in failed])
    if failures and (config.exit_when_idle or config.require_agents):
        label, error = failures[0]
        _give_up(config, reporter, "AGENT_START_FAILED", f'agent "{label}" did not start: {describe_error(error)}')
        return
    agent = _target(loop, config.agent)
    if agent is None and (config.agent is not None or config.prompt is not None):
        known = ", ".join(label for label, _ in loop.configured.sessions()) or "(none)"
        why = f'no agent "{config.agent}"; agents: {known}' if config.agent else "no agent to prompt"
        _give_up(config, reporter, "NO_AGENT", why)
    elif agent is not None and config.prompt is not None:
        # An edit may restart this row with what it stands on; the prompt is given once all the same.
        prompted: dict[str, int] | None = ctx.get("prompted")
        start = (prompted or {}).get(agent.id)
        if start is None:
            start = len(agent.session.events)
            agent.followup(create_user_message(config.prompt))
            if prompted is not None:
                prompted[agent.id] = start
            await sessions.flush(agent.session)
        try:
            await agent.when_idle()
        except asyncio.CancelledError:
            if config.exit_when_idle and reporter.exit.code is not None:  # a signal, not an edit of this row
                outcome = outcome_of(agent.session, start)
                outcome.status = "disposed"  # as the log will say
                report(reporter.out, config.output, outcome)
            raise
        if not config.exit_when_idle:
            return
        await sessions.flush(agent.session)
        outcome = outcome_of(agent.session, start)
        report(reporter.out, config.output, outcome)
        reporter.exit(outcome.exit_code)
    elif config.exit_when_idle:
        code = 0
        for one in agents.list():
            await one.when_idle()
            outcome = outcome_of(one.session, one.session.first_live_seq)
            if outcome.turns and outcome.exit_code:
                say(f"session {one.id}: the turn ended as {outcome.status}")
                code = 1
        reporter.exit(code)


def _give_up(config: Config, reporter: Reporter, code: str, why: str) -> None:
    """Leave before anything ran."""
    say(why)
    outcome = Outcome(None, status="error", error={"message": why, "code": code})
    write_result(reporter.out, config.output, outcome)
    reporter.exit(1)


def _target(loop: AgentLoop, label: str | None) -> Agent | None:
    if label is not None:
        return loop.configured.agent(label)
    running = (loop.configured.agent(name) for name, _ in loop.configured.sessions())
    return next((agent for agent in running if agent is not None), None)
