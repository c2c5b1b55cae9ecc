"""`shell-env`: the `DSH_*` variables of commands: where dsh lives, which session runs them, and what plugins add."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dsh.cordis import ConfigModel, Context, Disposer, HarnessError, field, owned
from dsh.cordis.records import record
from dsh.core.seams import SessionPersistence
from dsh.loader.home import resolve_home

from .process_tree import MARKER
from .service import ShellEnv

name = "shell-env"

RESERVED = frozenset({"DSH_HOME", "DSH_SHELL", "DSH_SESSION_ID", "DSH_SESSION_JSONL", MARKER})
_KEY = re.compile(r"DSH_[A-Z][A-Z0-9_]*")


class ShellEnvError(HarnessError):
    """A contribution to the environment of commands that is refused."""

    code = "INVALID_SHELL_ENV"


class Config(ConfigModel):
    """Config of a row `shell-env`."""

    dsh_home: str | None = field(None, description="Home folder that commands are told (default: that of this run)")


@record
class _Contributor:
    keys: frozenset[str]
    variables: Callable[[Any], Mapping[str, str]]


class LocalShellEnv(ShellEnv):
    """Asks its contributors anew for each command."""

    def __init__(self, ctx: Context, config: Config) -> None:
        self._ctx = ctx
        self._home = str(resolve_home(config.dsh_home).path)
        self._contributors: dict[str, _Contributor] = {}

    @owned
    def register(
        self, caller: Context, name: str, keys: Sequence[str], provide: Callable[[Any], Mapping[str, str]]
    ) -> Disposer:
        if name in self._contributors:
            raise ShellEnvError(f'shell environment contributor "{name}" is already registered')
        for key in keys:
            if not _KEY.fullmatch(key):
                raise ShellEnvError(f'shell environment variable "{key}" must match DSH_[A-Z][A-Z0-9_]*')
            if key in RESERVED:
                raise ShellEnvError(f'shell environment variable "{key}" is reserved')
            holder = next((other for other, known in self._contributors.items() if key in known.keys), None)
            if holder is not None:
                raise ShellEnvError(f'shell environment variable "{key}" is already provided by "{holder}"')
        contributor = _Contributor(frozenset(keys), provide)

        def add() -> Callable[[], None]:
            self._contributors[name] = contributor

            def remove() -> None:
                if self._contributors.get(name) is contributor:
                    del self._contributors[name]

            return remove

        return caller.effect(add, f"shellEnv({name})")

    def variables(self, agent: Any) -> dict[str, str]:
        values = {"DSH_HOME": self._home, "DSH_SHELL": "1"}
        if agent is not None:
            values["DSH_SESSION_ID"] = agent.session.id
            log = self._log_path(agent)
            if log is not None:
                values["DSH_SESSION_JSONL"] = log
        for name, contributor in list(self._contributors.items()):
            for key, value in contributor.variables(agent).items():
                if key not in contributor.keys:
                    raise ShellEnvError(f'shell environment contributor "{name}" gave the undeclared variable "{key}"')
                if not isinstance(value, str):
                    raise ShellEnvError(f'shell environment variable "{key}" of "{name}" must be a string')
                values[key] = value
        return values

    def _log_path(self, agent: Any) -> str | None:
        persistence = self._ctx.get(SessionPersistence)
        location = None if persistence is None else persistence.locate(agent.session.header)
        return location.path if location is not None and location.kind == "jsonl" else None
