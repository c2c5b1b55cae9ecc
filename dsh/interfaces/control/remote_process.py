"""What a console can ask of a daemon: agents, configuration and rows over the control API; settings in their file."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from dsh.cordis.nearest import did_you_mean

from ..front import AgentLine, Copied, SettingLine
from ..spending import Spending
from .client import ControlError

if TYPE_CHECKING:
    from dsh.settings.keys import KeyInfo

    from ..display.status_line import StatusLine

EVENT_PAGE: Final = 5000
Ask = Callable[..., Awaitable[Any]]


class RemoteProcess:
    """A daemon, asked by a console. ask: method, path and body of a request; home: its home folder."""

    def __init__(self, ask: Ask, home: Path) -> None:
        self._ask = ask
        self._home = home
        self.agents_known: list[AgentLine] = []
        self._config_known: list[SettingLine] = []

    async def look_around(self) -> None:
        """Learn what there is to complete. What cannot be learnt is not offered."""
        try:
            await self.agents("")
            await self._learn_config()
        except ControlError:
            pass

    # -- agents ---------------------------------------------------------------------------------------------------

    async def described(self) -> list[dict[str, Any]]:
        """Every agent as the daemon describes it."""
        return list((await self._ask("GET", "/api/status"))["agents"])

    async def agents(self, here: str) -> list[AgentLine]:
        """Every agent of the daemon. here: id of the one talked to."""
        self.agents_known = [
            AgentLine(
                each.get("label"), each["sessionId"], each["status"], each.get("model"), each["sessionId"] == here
            )
            for each in await self.described()
        ]
        return self.agents_known

    async def named(self, name: str) -> dict[str, Any]:
        """The agent with this label, or whose session id begins so. Raises ControlError."""
        agents = await self.described()
        found = [each for each in agents if name in (each.get("label"), each["sessionId"])]
        found = found or [each for each in agents if each["sessionId"].startswith(name)]
        if len(found) == 1:
            return found[0]
        if found:
            raise ControlError(f'"{name}" may be {", ".join(each["sessionId"] for each in found)}')
        labels = [each["label"] for each in agents if each.get("label")]
        raise ControlError(f'no agent "{name}"; agents: {", ".join(labels) or "(none)"}{did_you_mean(name, labels)}')

    async def fork(self, session_id: str) -> Copied:
        """Open a session that begins as this one, as far as its turns have ended."""
        path = f"/api/sessions/{quote(session_id, safe='')}/fork"
        answer = await self._ask("POST", path, {"boundary": "closed"})
        return Copied(str(answer["sessionId"]), bool(answer["cut"]))

    async def usage(self, session_id: str) -> Spending:
        """What a session has used."""
        return Spending.from_wire(await self._totals(session_id))

    async def count_in(self, bar: StatusLine, session_id: str, before: int) -> None:
        """Let a status line know what a session had used before an event, and what its context held then."""
        found = await self._totals(session_id, f"?before={before}")
        bar.spending = Spending.from_wire(found)
        bar.context.window, bar.context.used = found["context"]["window"], found["context"]["used"]

    async def _totals(self, session_id: str, query: str = "") -> Any:
        return await self._ask("GET", f"/api/sessions/{quote(session_id, safe='')}/usage{query}")

    # -- settings and configuration -------------------------------------------------------------------------------

    def _document(self) -> Any:
        from dsh.loader.home import resolve_home
        from dsh.settings.offline import OfflineSettings

        return OfflineSettings(resolve_home(self._home))

    async def settings(self) -> Sequence[SettingLine]:
        """See `Host`."""
        return await asyncio.to_thread(self.known_settings)

    def known_settings(self) -> Sequence[SettingLine]:
        """Every setting that is known without the daemon. Blocking."""
        from dsh.settings.keys import keys_of
        from dsh.settings.offline import schema_of

        infos: dict[str, KeyInfo] = {}
        sections: set[str] = set()
        found = []
        for each in self._document().values():
            section = each.key.partition(".")[0]
            if section not in sections:
                sections.add(section)
                infos |= {f"{section}.{info.path}": info for info in keys_of(schema_of(section))}
            info = infos.get(each.key)
            about, allowed = ("", ()) if info is None else (info.description, info.allowed)
            found.append(SettingLine(each.key, each.value, each.layer, about, allowed))
        return found

    async def set_setting(self, key: str, value: Any) -> Sequence[str]:
        """Store a setting; the daemon follows its file."""
        warnings: list[str] = await asyncio.to_thread(self._document().set, key, value)
        return warnings

    async def unset_setting(self, key: str) -> None:
        """Forget the person's own value."""
        await asyncio.to_thread(self._document().unset, key)

    async def config_text(self) -> str:
        """The composed rows as YAML, without secrets."""
        return str((await self._ask("GET", "/api/config"))["text"])

    def known_config(self) -> Sequence[SettingLine]:
        """The keys, as far as they were learnt."""
        return self._config_known

    async def _learn_config(self) -> None:
        keys = (await self._ask("GET", "/api/config/keys"))["keys"]
        self._config_known = [
            SettingLine(each["key"], each["value"], each["layer"], each["about"], tuple(each["allowed"]))
            for each in keys
        ]

    async def edit_config(self, key: str, value: Any) -> Sequence[str]:
        """Change `row.key` in the composition's file."""
        return list((await self._ask("PATCH", "/api/config", {"set": {key: value}}))["warnings"])

    async def picture(self) -> Mapping[str, Any]:
        """See `picture.picture`."""
        found: Mapping[str, Any] = await self._ask("GET", "/api/plugins")
        return found
