"""Where a case runs: fresh folders, its workspace, an environment without keys, and the logs it leaves."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from tests import warm
from tests.cli.kit import Finished, clean_environment
from tests.conformance.composition import Composition, compose, places
from tests.conformance.corpus import Case, Log, decode_log
from tests.conformance.normalise import Normaliser

TIMEOUT = 30.0
"""A bound against hangs, in seconds."""


@dataclass
class Workplace:
    """The folders of one run."""

    case: Case
    cwd: Path
    sessions: Path
    composition: Composition
    config: Path
    env: dict[str, str]
    placeholders: dict[str, str] = field(default_factory=dict)

    @classmethod
    def make(cls, case: Case, root: Path) -> Workplace:
        """Folders below ``root``, workspace copied and prepared, composition written."""
        unknown = {"cwdOutsideTemp"} & set(case.spec)
        assert not unknown, f"{case.id}: {unknown} is not supported"
        cwd, sessions = root / "work", root / "sessions"
        cwd.mkdir()
        sessions.mkdir()
        if "workspace" in case.spec:
            shutil.copytree(case.file(case.spec["workspace"]), cwd, dirs_exist_ok=True, symlinks=True)
        prepare(cwd, case.spec.get("prepare", ()))
        given = case.spec.get("env", {})
        home = cwd / ".dsh"
        filled = places(cwd, sessions, case.spec.get("spillRoot") or str(root / "spill"), home, given)
        composition = compose(case, filled)
        env = {**clean_environment(), "DSH_HOME": str(home), "DSH_AGENTS_HOME": str(cwd / ".agents")}
        env |= {**_replay(case, root), **given}
        config = composition.write(root / "cordis.yml")
        return cls(case, cwd, sessions, composition, config, env, filled)

    @property
    def aliases(self) -> tuple[str, ...]:
        """Other spellings of the workspace."""
        return (os.path.realpath(self.cwd),)

    def filled(self, text: str) -> str:
        """A text of the case with the workspace's path in it."""
        return text.replace("{{cwd}}", str(self.cwd))

    def logs(self) -> list[Log]:
        """Every stored log: those without a parent first, then by creation, then by id."""
        found = [decode_log(path) for path in self.sessions.rglob("session.jsonl")]
        return sorted(found, key=_log_order)

    def normaliser(self, session_ids: Sequence[str] = ()) -> Normaliser:
        """Placeholders for what this run left."""
        ids = {log.session_id for log in self.logs()} | set(session_ids)
        goal_times = "goal-times" in self.case.spec.get("normalise", ())
        return Normaliser(sorted(ids), str(self.cwd), self.aliases, self.placeholders["@SPILL@"], goal_times)

    async def start(self, *command: str, env: Mapping[str, str] | None = None) -> Any:
        """Start ``dsh COMMAND…`` in the workspace with pipes."""
        whole = {**self.env, **(env or {})}
        return await warm.start(*command, folder=self.cwd, environment=whole, stdin=asyncio.subprocess.PIPE)

    async def run(self, *command: str, env: Mapping[str, str] | None = None) -> Finished:
        """Run ``dsh COMMAND…`` to its end."""
        process = await self.start(*command, env=env)
        try:
            out, err = await asyncio.wait_for(process.communicate(b""), TIMEOUT)
        finally:
            await end(process)
        assert process.returncode is not None
        return Finished(process.returncode, out.decode(), err.decode())


async def end(process: asyncio.subprocess.Process | warm.Forked) -> None:
    """Kill the process unless it is gone."""
    if process.returncode is None:
        process.kill()
        await process.wait()


@contextmanager
def inside(folder: Path, env: Mapping[str, str]) -> Iterator[None]:
    """This process in another folder and environment, as a command started there would find them."""
    before, variables = os.getcwd(), dict(os.environ)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(variables)
        os.chdir(before)


def prepare(cwd: Path, steps: Sequence[Mapping[str, Any]]) -> None:
    """Write, link and make what a case wants to find in its workspace."""
    for step in steps:
        path = cwd / step["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        match step["op"]:
            case "write":
                path.write_text(step["text"], "utf-8")
                if "mtimeMs" in step:
                    seconds = _seconds(step["mtimeMs"])
                    os.utime(path, (seconds, seconds))
            case "symlink":
                path.symlink_to(step["target"])
            case "mkdir":
                path.mkdir()
            case other:
                raise AssertionError(f"unknown preparation {other}")


def _replay(case: Case, root: Path) -> dict[str, str]:
    """Variables that tell the replay what to play: nothing at all in a case without model calls."""
    spec = case.spec.get("replay", {})
    if not spec:
        nothing = root / "nothing.json"
        nothing.write_text("[]", "utf-8")
        return {"DSH_SNAPSHOT_OVERRIDE": str(nothing)}
    named = {"DSH_SNAPSHOT_FILE": spec.get("parent"), "DSH_SNAPSHOT_OVERRIDE": spec.get("override")}
    env = {key: str(case.file(name)) for key, name in named.items() if name}
    for name in case.spec.get("replayRoutes", {}).values():
        if name.endswith("override.json"):
            env["DSH_SNAPSHOT_OVERRIDE"] = str(case.file(name))
    if spec.get("children"):
        env["DSH_SNAPSHOT_CHILD_FILES"] = os.pathsep.join(str(case.file(name)) for name in spec["children"])
    return env


def _seconds(moment: float | str) -> float:
    if isinstance(moment, str):
        return datetime.fromisoformat(moment.removeprefix("local ")).timestamp()
    return moment / 1000


def _log_order(log: Log) -> tuple[bool, Any, str]:
    header = log.header
    return "parentSession" in header, header.get("createdAt", 0), log.session_id
