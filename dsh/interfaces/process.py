"""What a console can ask of the process it runs in: agents, settings, configuration, rows, usage."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dsh.cordis import HarnessError
from dsh.cordis.nearest import did_you_mean
from dsh.core.agent import CreateAgentOptions
from dsh.core.agents import Agents
from dsh.core.fork import closed_prefix
from dsh.core.seams import Settings
from dsh.llm.service import Llm

from .front import AgentLine, SettingLine
from .model_route import route_of
from .spending import Spending

if TYPE_CHECKING:
    from dsh.cordis import Context
    from dsh.core.agent import Agent
    from dsh.core.agent_loop import AgentLoop

    from .spending import Rates


class NotThereError(HarnessError):
    """Something that this composition does not have."""

    code = "NOT_THERE"


class Process:
    """A composition, asked by its console. Services are looked up at each use: every row may come and go."""

    def __init__(self, ctx: Context, loop: AgentLoop) -> None:
        self._ctx = ctx
        self._loop = loop

    # -- agents ---------------------------------------------------------------------------------------------------

    def find(self, label: str | None) -> Agent | None:
        """The configured agent with this label, the first one for None; None when there is none."""
        configured = self._loop.configured
        for name, _ in configured.sessions():
            if label in (None, name) and (agent := configured.agent(name)) is not None:
                return agent
        return None

    def named(self, name: str) -> Agent:
        """The agent with this label, or whose session id begins so. Raises NotThereError."""
        if (agent := self.find(name)) is not None:
            return agent
        live = self._live()
        found = [agent for agent in live if agent.id.startswith(name)]
        if len(found) == 1:
            return found[0]
        known = [label for label, _ in self._loop.configured.sessions()]
        if found:
            raise NotThereError(f'"{name}" may be {", ".join(agent.id for agent in found)}')
        agents = ", ".join(known) or "(none)"
        raise NotThereError(f'no agent "{name}"; agents: {agents}{did_you_mean(name, known)}')

    def agents(self, here: str) -> list[AgentLine]:
        """Every agent: the configured ones with their labels, then the others. here: id of the one talked to."""
        lines: dict[str, AgentLine] = {}
        labels = {session_id: label for label, session_id in self._loop.configured.sessions()}
        for session_id, label in labels.items():
            lines[session_id] = AgentLine(label, session_id, "not running", here=session_id == here)
        for agent in self._live():
            route = route_of(self._ctx, agent.options)
            model = None if route is None else "/".join(route)
            lines[agent.id] = AgentLine(labels.get(agent.id), agent.id, agent.status, model, agent.id == here)
        return list(lines.values())

    def _live(self) -> list[Agent]:
        agents = self._ctx.get(Agents)
        return [] if agents is None else agents.list()

    def folder(self, agent: Agent) -> str:
        """The workspace of an agent."""
        return agent.session.header.cwd or os.getcwd()

    async def fork(self, agent: Agent) -> tuple[Agent, bool]:
        """An agent on a copy of an agent's session, and whether the turn that runs there was left out. Raises
        HarnessError in the first turn."""
        session = agent.session
        seed, cut = closed_prefix(session.id, session.events)
        meta = {"cwd": session.header.cwd, "parentSession": session.id, "seedLength": len(seed)}
        options = CreateAgentOptions(f"session-{uuid.uuid4()}", meta, seed=seed, agent_options=agent.options)
        return (await self._loop.create_agent(self._loop.ctx, options)).agent, cut

    def usage(self, agent: Agent) -> Spending:
        """What an agent's session has used."""
        return Spending.of((event.type, event.data) for event in agent.session.events)

    def rates(self) -> Rates:
        """The prices that are stated now."""
        llm = self._ctx.get(Llm)
        return {} if llm is None else llm.prices()

    # -- settings and configuration -------------------------------------------------------------------------------

    async def settings(self) -> Sequence[SettingLine]:
        """See `Host`."""
        return self.known_settings()

    def known_settings(self) -> Sequence[SettingLine]:
        """Every setting of the sections that are registered now."""
        from dsh.settings.keys import keys_of_schema

        from .setting_names import lines_of

        found: list[SettingLine] = []
        service = self._ctx.get(Settings)
        for ns, section in (service.describe(redact_secrets=True) if service is not None else {}).items():
            part: Any = section
            layers = [("user", part.get("user") or {}), ("row", part.get("base") or {})]
            found += lines_of(ns, keys_of_schema(part["schema"]), part["value"], layers)
        return found

    async def set_setting(self, key: str, value: Any) -> Sequence[str]:
        """Store a setting. Raises HarnessError for one that is not known or refused."""
        service, ns, path = self._setting(key)
        await service.mutate(ns, [{"op": "set", "path": path, "value": value, "known": True}])
        return ()

    async def unset_setting(self, key: str) -> None:
        """Forget the person's own value."""
        service, ns, path = self._setting(key)
        await service.mutate(ns, [{"op": "unset", "path": path}])

    def _setting(self, key: str) -> tuple[Settings, str, list[str]]:
        service: Settings | None = self._ctx.get(Settings)
        if service is None:
            raise NotThereError("no row of this composition keeps settings (settings-file)")
        ns, *path = key.split(".")
        if service.get(ns) is None:
            raise NotThereError(f'no setting "{key}"{did_you_mean(key, [line.key for line in self.known_settings()])}')
        if not path:
            raise NotThereError(f"name a key of the section: {ns}.KEY")
        return service, ns, path

    async def config_text(self) -> str:
        """The composed rows that run as YAML, without secrets."""
        from .config_text import running_rows
        from .offline import show

        loader = self._ctx.get("loader")
        if loader is None or loader.root_source is None:
            raise NotThereError("this run has no file")
        return show(loader.root_source, reading=running_rows(loader))[0]

    def known_config(self) -> Sequence[SettingLine]:
        """The keys of the rows."""
        from .setting_names import config_lines

        loader = self._ctx.get("loader")
        return [] if loader is None else config_lines(loader)

    async def edit_config(self, key: str, value: Any) -> Sequence[str]:
        """Change `row.key` in the composition's file. Raises HarnessError for an edit that is refused."""
        from .control.config_edit import edit_config

        loader = self._ctx.get("loader")
        if loader is None:
            raise NotThereError("this run has no file")
        return await edit_config(loader, {key: value}, ())

    async def picture(self) -> Mapping[str, Any]:
        """See `control.picture`."""
        from .control.picture import picture

        return picture(self._ctx)
