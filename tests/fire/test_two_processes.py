"""Two processes on one session: the second is refused, a dead holder frees it, a paused one cannot come back."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from dsh.models.mock_server import MockLlmServer
from dsh.sessions.errors import SessionLockedError
from dsh.sessions.lease import probe
from tests.cli.kit import Place
from tests.fire.home import bash, composition, log_path, stored, until
from tests.fire.judge import entered_ids, fault_of_body, judge_log
from tests.fire.stepping import LONG, count
from tests.sessions.helpers import Child, header, log_of, store_at

EXPIRY = ", lease: expiry, leaseTtlMs: 3000, leaseRenewMs: 300"
STEADY = "[{id: main, sessionId: steady}]"
WAIT = "echo $$ > pid; while [ ! -e go ]; do sleep 0.02; done"

REFUSAL = (
    r'session "steady" is open in pid {pid} on {host} since \d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\dZ; '
    r"close it there, or continue on a copy with --fork"
)


def refusal(pid: int) -> str:
    return REFUSAL.format(pid=pid, host=re.escape(os.uname().nodename))


def lease_is_held(place: Place) -> bool:
    return probe(str(log_path(place, "steady").parent)).locked


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place.make(tmp_path)
    composition(place, agents=STEADY)
    return place


async def test_f20_the_second_process_is_refused_in_one_sentence_and_a_kill_frees_the_session(place: Place) -> None:
    async with MockLlmServer([bash(WAIT), "success"]) as server:
        place.model(server.url)
        async with place.daemon("cordis.yml", "--prompt", "go") as holder:
            await holder.event("tool/call")
            for arguments in (
                ("resume", "steady", "mine"),
                ("run", "cordis.yml", "--prompt", "mine", "--exit-when-idle"),
                ("exec", "mine", "--session", "steady"),
            ):
                second = await place.dsh(*arguments)
                assert second.code == 1 and not second.out
                assert len(set(re.findall(refusal(holder.process.pid), second.err))) == 1, second.err
            assert len(server.requests) == 1
            holder.signal(signal.SIGKILL)
            await holder.finish()
        third = await place.dsh("resume", "steady", "mine", "--output", "json")
    assert third.code == 0, third.err
    assert fault_of_body(server.bodies[-1]) is None
    judge_log(stored(place, "steady"))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("when", ["in a tool", "in a stream", "idle"])
async def test_a_holder_paused_past_its_lease_and_woken_writes_nothing_more(place: Place, when: str) -> None:
    composition(place, agents=STEADY, persistence=EXPIRY)
    first: dict[str, Any] = {
        "in a tool": bash(WAIT),
        "in a stream": {"behavior": "slow_success", "slowDelayMs": 200, "text": "on and on " * 400},
        "idle": "success",
    }
    async with MockLlmServer([first[when], "success", "success", "success"]) as server:
        place.model(server.url)
        async with place.daemon("cordis.yml", "--prompt", "first") as old:
            await old.event({"in a tool": "tool/call", "in a stream": "assistant/chunk", "idle": "turn/end"}[when])
            if when == "in a tool":
                await until(lambda: (place.work / "pid").exists(), "the body's start")
            old.signal(signal.SIGSTOP)
            with pytest.raises(SessionLockedError, match=refusal(old.process.pid)):
                store_at(place.home / "sessions", lease="expiry").hold("steady", None)
            await until(lambda: not lease_is_held(place), "the end of the lease")
            new = await place.dsh("resume", "steady", "second", "--output", "json")
            assert new.code == 0, new.err
            log = log_path(place, "steady").read_bytes()
            requests = len(server.requests)
            old.signal(signal.SIGCONT)
            place.write("go", "")
            await old.said("taken over by pid")
            if when != "idle":
                end = await old.event("turn/end")
                assert end["data"]["reason"] == {
                    "kind": "aborted",
                    "reason": {"kind": "hook", "reason": "lease-lost"},
                }
            old.signal(signal.SIGTERM)
            assert await old.finish() == 0
            assert old.err.count("taken over by pid") == 1
        assert log_path(place, "steady").read_bytes() == log, "the woken holder has written"
        assert len(server.requests) == requests, "the woken holder has asked the model"
        again = await place.dsh("resume", "steady", "third", "--output", "json")
    assert again.code == 0, again.err
    assert all(fault_of_body(body) is None for body in server.bodies)
    rows = stored(place, "steady")
    judge_log(rows)
    assert len(entered_ids(rows)) == 3 or when != "idle"


FORKING = """\
import os, time
from pathlib import Path
from dsh.core.tools import Tools

def apply(ctx, config, tools: Tools):
    @tools.tool
    async def fork() -> str:
        "Fork a child that outlives us."
        pid = os.fork()
        if pid == 0:
            for fd in os.listdir("/proc/self/fd"):  # the test waits for the end of its pipes
                try:
                    if os.readlink(f"/proc/self/fd/{fd}").startswith("pipe:"):
                        os.close(int(fd))
                except OSError:
                    pass
            Path("forked").write_text(str(os.getpid()))
            time.sleep(120)
            os._exit(0)
        return "forked"
"""


async def test_f20_a_lock_does_not_live_on_in_a_forked_child(place: Place) -> None:
    place.write("forking.py", FORKING)
    composition(place, agents=STEADY, rows="- {id: forking, name: ./forking.py}\n")
    script = [{"toolCalls": [{"name": "fork", "arguments": ""}]}, bash(WAIT), "success"]
    async with MockLlmServer(script) as server:
        place.model(server.url)
        async with place.daemon("cordis.yml", "--prompt", "go") as holder:
            await holder.event("tool/call", lambda event: event["data"]["name"] == "bash")
            await until(lambda: (place.work / "forked").exists(), "the fork")
            child = int((place.work / "forked").read_text())
            holder.signal(signal.SIGKILL)
            await holder.process.wait()
            try:
                os.kill(child, 0)  # it lives
                done = await place.dsh("resume", "steady", "mine", "--output", "json")
            finally:
                os.kill(child, signal.SIGKILL)
        assert done.code == 0, done.err
    judge_log(stored(place, "steady"))


@pytest.mark.timeout(3600 if LONG else 180)
async def test_of_two_products_started_at_the_same_moment_one_works(place: Place) -> None:
    """The whole way: `dsh resume` twice at once; the winner's turn lasts until the loser has been refused."""
    async with MockLlmServer(["success"]) as server:
        place.model(server.url)
        first = await place.dsh("run", "cordis.yml", "--prompt", "first", "--exit-when-idle")
        assert first.code == 0, first.err
    for number in range(count(3)):
        (place.work / "go").unlink(missing_ok=True)
        async with MockLlmServer([bash(WAIT), "success"]) as server:
            place.model(server.url)
            racing = [
                asyncio.ensure_future(place.dsh("resume", "steady", f"race {number}", "--output", "json"))
                for _ in range(2)
            ]
            done, _ = await asyncio.wait(racing, return_when=asyncio.FIRST_COMPLETED)
            loser = done.pop().result()
            assert loser.code == 1 and "is open in pid" in loser.err, loser.err
            place.write("go", "")
            codes = sorted([(await each).code for each in racing])
            assert codes == [0, 1], [(await each).err for each in racing]
            assert all(fault_of_body(body) is None for body in server.bodies)
        rows = stored(place, "steady")
        judge_log(rows)
        assert sum(row["type"] == "turn/start" for row in rows) == number + 2


RACER = """
    import asyncio, os, signal, time
    from pathlib import Path
    from dsh.sessions.errors import SessionLockedError, SessionPersistenceError
    from tests.sessions.runtime import running, turn

    async def race(root, at, lease):
        async with running(Path(root), lease=lease, leaseTtlMs=60000) as runtime:
            time.sleep(max(0, float(at) - time.time()))
            try:
                session = await runtime.resume("s")
            except SessionLockedError as error:
                return say(f"locked {error.pid}")
            turn(session, sum(event.type == "turn/start" for event in session.events) + 1)
            await runtime.sessions.flush(session)
            say(f"won {os.getpid()}")
            hear()

    while (order := hear()):
        asyncio.run(race(*order.split("|")))
"""


@pytest.mark.timeout(3600 if LONG else 180)
@pytest.mark.parametrize("lease", ["auto", "expiry"])
def test_of_two_that_open_a_session_at_the_same_moment_exactly_one_wins(tmp_path: Path, lease: str) -> None:
    """Up to 100 races; the loser names the winner, and the log holds the winners' turns alone."""
    hold = store_at(tmp_path).hold("s", "/w")
    hold.append(header("s", "/w"), 0, log_of(1))
    hold.release()
    races = count(100 if lease == "auto" else 40)
    with Child(RACER) as one, Child(RACER) as two:
        for number in range(races):
            at = time.time() + 0.015
            for child in (one, two):
                child.say(f"{tmp_path}|{at}|{lease}")
            said = {one: one.hear(), two: two.hear()}
            winners = [child for child, text in said.items() if text.startswith("won")]
            assert len(winners) == 1, f"race {number}: {list(said.values())}"
            (loser,) = {one, two} - set(winners)
            assert said[loser] == f"locked {winners[0].pid}"
            winners[0].say("over")
    events = store_at(tmp_path).read("s").events
    rows = [event.to_wire() for event in events]
    assert [row["seq"] for row in rows] == list(range(len(rows)))
    turns = [row["data"]["turn"] for row in rows if row["type"] == "turn/start"]
    assert turns == list(range(1, races + 2)), json.dumps(turns)
