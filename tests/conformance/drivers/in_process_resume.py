"""Seeds stored through the backend, their session opened in this process and given one more turn."""

from __future__ import annotations

from pathlib import Path

from dsh.cordis import Context
from dsh.core import session_store
from dsh.core.agents import Agents
from dsh.core.seams import SessionPersistence
from dsh.core.session_header import SessionHeader
from dsh.core.session_store import Sessions
from dsh.interfaces.outcome import outcome_of
from dsh.llm.message import create_user_message
from dsh.loader.boot import boot
from dsh.loader.environment import EnvLayer, LaunchEnvironment
from dsh.loader.home import Home
from dsh.sessions import jsonl
from tests.conformance.corpus import Case, decode_log
from tests.conformance.drivers import Ran
from tests.conformance.parts import log_parts, tool_parts
from tests.conformance.workplace import Workplace, inside


async def run(case: Case, root: Path) -> Ran:
    """Store, boot, resume, prompt, compare what is stored then."""
    place = Workplace.make(case, root)
    ran = Ran(place.composition)
    await _store_seeds(case, place)
    environment = LaunchEnvironment([EnvLayer("process", place.env)])
    home = Home(Path(place.env["DSH_HOME"]), "$DSH_HOME")
    with inside(place.cwd, place.env):
        async with boot(place.config, environment=environment, home=home, cwd=place.cwd) as app:
            agent = app.root[Agents].get(case.spec["resume"]["sessionId"])
            assert agent is not None
            start = len(agent.session.events)
            agent.followup(create_user_message(case.spec["task"]))
            await agent.when_idle()
            await app.root[Sessions].flush(agent.session)
            ran.expect("final text", case.expect["output"], outcome_of(agent.session, start).output)
    ran.parts += [*log_parts(case, place), *tool_parts(case, place)]
    for name in case.expect.get("mustNotExist", ()):
        if (place.cwd / name).exists():
            ran.problems.append(f"{name} exists")
    return ran


async def _store_seeds(case: Case, place: Workplace) -> None:
    async with Context() as root:
        await root.plugin(session_store)
        await root.plugin(jsonl, {"root": str(place.sessions), "compression": "none"})
        for name in case.spec["seeds"]:
            log = decode_log(case.file(name), str(place.cwd))
            await root[SessionPersistence].create(SessionHeader.from_wire(log.header))
            await root[SessionPersistence].append(log.session_id, log.events)
