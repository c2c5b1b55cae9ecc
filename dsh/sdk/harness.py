"""A composition and its agents, from a Python program."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from dsh.cordis import HarnessError
from dsh.cordis.jsonio import encode_str
from dsh.cordis.nearest import did_you_mean
from dsh.loader.boot import BootError
from dsh.loader.patches import Layer
from dsh.loader.sources import Source, absolute

from .backend import AgentInfo, Backend, PermissionCallback
from .local import LocalBackend
from .session import Session
from .settings import HarnessSettings
from .spawned import SpawnedBackend

T = TypeVar("T")
PathLike = str | os.PathLike[str]
Rows = Sequence[Mapping[str, Any]]


class Harness:
    """A running composition: ``async with Harness("cordis.yml") as harness: …``.

        async with Harness("cordis.yml", set={"agent-loop.maxParallelToolCalls": 2}) as harness:
            session = await harness.session("main")
            async for event in session.prompt("What does this folder hold?"):
                if isinstance(event, TextDelta):
                    print(event.text, end="")

    Leaving the block ends every agent and leaves nothing behind; logs are on disk then. A run that was under way is
    ``disposed``, and how its turn ended stands in the log alone.

    config: the file, or its rows (``[{"id": …, "name": …, "config": {…}}]``), whose relative names start at ``cwd``.
    patches: patch files, or items of one, laid over it in order. set: config values by ``row.key``.
    home: the home folder instead of ``$DSH_HOME`` or ``~/.dsh``. cwd: where new sessions work.
    env: variables over those of the process, for the composition alone. plugins: plugins given as objects, or
    ``(plugin, config)``. permission: asked before a tool call that needs a person's word.
    follow: take over edits of the file and of plugins while it runs. configured_agents: start the agents that the
    composition names.
    Entering raises ``BootError`` with file, line, row and key of everything that is wrong.
    """

    def __init__(
        self,
        config: PathLike | Rows = "cordis.yml",
        *,
        patches: Sequence[PathLike | Mapping[str, Any]] = (),
        set: Mapping[str, Any] | None = None,
        home: PathLike | None = None,
        cwd: PathLike | None = None,
        env: Mapping[str, str] | None = None,
        plugins: Sequence[Any] = (),
        permission: PermissionCallback | None = None,
        follow: bool = False,
        configured_agents: bool = True,
    ) -> None:
        folder = absolute(cwd or os.getcwd())
        source = _source(config, patches, set or {}, folder)
        self._use(
            LocalBackend(
                source,
                home=home,
                cwd=folder,
                env=env or {},
                plugins=plugins,
                permission=permission,
                follow=follow,
                configured_agents=configured_agents,
            ),
            folder,
        )

    @classmethod
    def spawn(
        cls,
        config: PathLike = "cordis.yml",
        *,
        patches: Sequence[PathLike] = (),
        set: Mapping[str, Any] | None = None,
        home: PathLike | None = None,
        cwd: PathLike | None = None,
        env: Mapping[str, str] | None = None,
        permission: PermissionCallback | None = None,
    ) -> Self:
        """The same with the composition in a process of its own, ``dsh jsonrpc``, which ends with the block.

        It follows edits of its files. What it says on standard error is repeated here.
        """
        layers = [part for each in _listed(patches) for part in ("--patch", str(absolute(each)))]
        values = [part for key, value in (set or {}).items() for part in ("--set", _assignment(key, value))]
        inherited = {key: value for key, value in os.environ.items() if key != "DSH_CORDIS_CONFIG"}
        place = {} if home is None else {"DSH_HOME": str(absolute(home))}
        folder = absolute(cwd or os.getcwd())
        harness = cls.__new__(cls)
        harness._use(
            SpawnedBackend(
                [str(absolute(config)), *layers, *values],
                cwd=folder,
                env={**inherited, **place, **(env or {})},
                permission=permission,
            ),
            folder,
        )
        return harness

    def _use(self, backend: Backend, folder: Path) -> None:
        self._backend = backend
        self._folder = folder
        self.settings = HarnessSettings(backend)
        """The user's settings."""

    async def __aenter__(self) -> Self:
        if not self._folder.is_dir():
            raise BootError(f"cwd: there is no folder {self._folder}")
        await self._backend.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._backend.stop()

    # -- sessions -----------------------------------------------------------------------------------------------------

    async def agents(self) -> Sequence[AgentInfo]:
        """The live agents, those of the composition first."""
        listed = (await self._backend.ask("agents"))["agents"]
        return [AgentInfo(one["sessionId"], one["label"], one["status"]) for one in listed]

    async def session(self, name: str | None = None) -> Session:
        """The session of a live agent, by its label in the composition or its id; without a name the first one's.

        Raises ``HarnessError`` for an agent that does not exist or did not start.
        """
        answer = await self._backend.ask("agents")
        found, failed = answer["agents"], answer["failed"]
        chosen = next((one for one in found if name is None or name in (one["label"], one["sessionId"])), None)
        if chosen is not None:
            return self._session(chosen["sessionId"])
        for label, why in failed.items():
            if name is None or name == label:
                raise HarnessError(f'agent "{label}" did not start: {why}', code="AGENT_START_FAILED")
        if name is None:
            raise HarnessError("the composition starts no agent; new_session() makes one", code="NO_AGENT")
        known = [one["label"] or one["sessionId"] for one in found]
        text = f'no agent "{name}"{did_you_mean(name, known)}; agents: {", ".join(known) or "(none)"}'
        raise HarnessError(f"{text}; resume() opens a stored session", code="NO_AGENT")

    async def new_session(
        self, *, session_id: str | None = None, cwd: PathLike | None = None, model: str | None = None
    ) -> Session:
        """A fresh session with an agent of its own, which lives until it is closed or the harness ends.

        session_id: instead of one that is made up. cwd: where it works. model: ``provider/model`` instead of the
        default. Raises ``HarnessError`` when the id is taken or the model is written otherwise.
        """
        provider, _, name = (model or "").partition("/")
        if model is not None and not (provider and name):
            raise HarnessError(f'model must be written "provider/model", not {model!r}', code="BAD_MODEL")
        given = {"sessionId": session_id, "cwd": cwd and os.fspath(cwd), "provider": provider, "model": name}
        answer = await self._backend.ask("open", **{key: value for key, value in given.items() if value})
        return self._session(answer["sessionId"])

    async def resume(self, session_id: str) -> Session:
        """A stored session, live again on its own log; one that is live already is given as it is.

        session_id: its id or a unique beginning of it. Raises ``HarnessError`` for a session that does not exist, is
        damaged, or is open in another process.
        """
        return self._session((await self._backend.ask("resume", sessionId=session_id))["sessionId"])

    def _session(self, session_id: str) -> Session:
        session = self._backend.sessions.get(session_id) or Session(self._backend, session_id)
        self._backend.sessions[session_id] = session
        return session

    # -- in this process ----------------------------------------------------------------------------------------------

    @overload
    def service(self, key: type[T]) -> T: ...
    @overload
    def service(self, key: str) -> Any: ...
    def service(self, key: Any) -> Any:
        """A service of the composition, by class or name. Raises ``HarnessError`` when nobody provides it."""
        if not isinstance(self._backend, LocalBackend):
            raise HarnessError("services can be had in process only", code="NOT_LOCAL")
        return self._backend.root[key]


def _source(
    config: PathLike | Rows, patches: Sequence[PathLike | Mapping[str, Any]], values: Mapping[str, Any], folder: Path
) -> Source:
    sets = [_assignment(key, value) for key, value in values.items()]
    inline = [Layer("the program's patch", [each]) for each in _listed(patches) if isinstance(each, Mapping)]
    files = [absolute(each) for each in patches if not isinstance(each, Mapping)]
    if isinstance(config, (str, os.PathLike)):
        return Source(absolute(config), sibling=True, overlays=files, inline=inline, sets=sets)
    rows = Layer("the program", [{"insert": list(config)}])
    return Source(None, folder=folder, overlays=files, inline=[rows, *inline], sets=sets)


def _listed(patches: Sequence[T]) -> Sequence[T]:
    """The patches. Raises ``TypeError`` for one in place of a list, whose letters or keys would be taken for them."""
    if isinstance(patches, (str, os.PathLike, Mapping)):
        raise TypeError(f"patches must be a list; give [{patches!r}]")
    return patches


def _assignment(key: str, value: Any) -> str:
    return f"{key}={encode_str(value)}"  # JSON is a part of the dialect
