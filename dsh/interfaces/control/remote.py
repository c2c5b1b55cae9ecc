"""The console as a front of an agent in another process: ``dsh attach``."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dsh.llm.prices import Prices

from ..commands import CommandTable
from ..dialogue import LEAVE, Dialogue
from ..front import AgentLine, Copied, Host, Waiting
from ..screen import PlainScreen
from ..terminal_lines import can_draw, typed_lines
from ..terminal_text import printable
from .client import (
    STREAM_LIMITS,
    ControlError,
    DaemonGoneError,
    NoAnswerError,
    Target,
    show_path,
    still_there,
)
from .following import Progress
from .link import Link
from .remote_commands import RemoteCommands
from .remote_process import EVENT_PAGE, RemoteProcess
from .run_folder import working_folder

if TYPE_CHECKING:
    from ..spending import Rates, Spending

LEAVE_SECONDS: Final = 0.3
"""How long what was asked for may take once the person leaves, before it is asked whether the daemon is there."""

LOOK_BACK: Final = 2000
"""Events before the end of the log among which earlier messages are looked for first."""


LAST_EVENTS: Final = 300
"""Events among which is looked for how the last turn ended, and for calls that its end cut off."""


class RemoteConsole:
    """Shows one agent's session and sends what is typed; see `front.Front`."""

    def __init__(self, target: Target, tail: int, typed_ahead: list[str]) -> None:
        self._target = target
        self._tail = tail
        self._path = target.path()
        self.running = target.agent["status"] == "running"
        self._waiting: list[Waiting] = []
        self._over: str | None = None
        self._cap: int | None = None
        self._rates: Rates = {}
        self._progress = Progress(target.session_id, -1)
        self._jobs: set[asyncio.Task[None]] = set()
        self._link = Link(target.daemon.entry, self._fell_silent, self._speaks_again)
        self._talking: asyncio.Task[None] | None = None
        self._stream: asyncio.Task[bool] | None = None
        self._stays = asyncio.Event()
        self._stays.set()
        self._unsettled: tuple[str | None, list[str]] = None, []
        home = Path(target.daemon.entry.path).parent.parent
        self._process = RemoteProcess(self._link.request, home)
        table = CommandTable()
        self._dialogue = Dialogue(self, table, home, self._leave)
        self._commands = RemoteCommands(self._link, table)
        self._dialogue.prompt_line.typed_ahead = typed_ahead
        self._terminal = sys.stdin.isatty() and sys.stdout.isatty()
        self._draws = can_draw()
        if not self._draws:
            self._dialogue.use(PlainScreen())

    async def run(self) -> int:
        """Until the person detaches (0) or the daemon ends (1)."""
        transcript = self._dialogue.transcript
        try:
            transcript.follow(self._target.name, cap=lambda: self._cap)
            transcript.note(f"attached to {self._target.name}, session {self._target.session_id}; /help for commands")
            self._progress.after = await self._past()
            await self._commands.learn()
            watching = asyncio.create_task(self._watch(), name="attach: events")
            self._talking = talking = asyncio.create_task(self._talk(), name="attach: input")
            leaving = asyncio.create_task(self._leave_a_silent_one(talking), name="attach: leaving")
            if self._draws:
                self._start(self._process.look_around())
            if self._terminal:
                asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._dialogue.interrupt)
            await asyncio.wait({watching, talking}, return_when=asyncio.FIRST_COMPLETED)
            if not talking.done():
                self._let_go()
            elif not self._terminal and not talking.cancelled() and talking.exception() is None:
                await self._until_quiet(watching)
            watching.cancel()
            leaving.cancel()
            await self._while_it_answers(self._jobs)  # what the person still asked for
            for job in self._jobs:
                job.cancel()
            done = await asyncio.gather(watching, talking, leaving, *self._jobs, return_exceptions=True)
        finally:
            await self._link.close()
        for error in done:
            if isinstance(error, Exception) and not isinstance(error, DaemonGoneError | NoAnswerError):
                raise error
        return self._said_at_the_end()

    def _said_at_the_end(self) -> int:
        """How it ended, and whatever was typed and has not come to anything; the exit code."""
        acting, unread = self._unsettled
        name, silent = self._target.daemon.name, self._link.silence.silent
        lines = []
        if self._over is not None:
            lines.append(f"dsh: {self._over}")
        elif silent:
            lines.append(f"dsh: detached; {self._target.daemon.silence}")
        elif self._terminal:
            lines.append(f"detached; {name} goes on")
        if acting is not None and acting.startswith("/"):
            lines.append(f"without an answer: {acting}")
        elif acting is not None:
            whether = "" if self._over is not None else "; it may still take it up"
            lines += [f"a prompt that the daemon did not confirm{whether}:", acting]
        unsent = [text for text in (*unread, self._dialogue.prompt_line.typed) if text.strip() and text not in LEAVE]
        if unsent:
            lines += ["what you had typed and was not sent, to be found by Up in the next console:", *unsent]
        for line in lines:
            print(printable(line), file=sys.stderr)
        return 1 if self._over is not None or silent or acting is not None or unread else 0

    def _leave(self, _: bool) -> None:
        self._let_go()

    def _let_go(self) -> None:
        """Leave, also in the middle of sending something."""
        if self._talking is not None and not self._talking.done():
            self._unsettled = self._dialogue.unsettled()
            self._talking.cancel()

    async def _leave_a_silent_one(self, talking: asyncio.Task[None]) -> None:
        """Wait for nothing that does not come, once the person wants to leave."""
        await self._dialogue.leaving.wait()
        await self._while_it_answers({talking})
        self._let_go()

    async def _while_it_answers(self, tasks: set[asyncio.Task[None]]) -> None:
        """Wait for the end of tasks, or for the moment at which the daemon does not answer."""
        while tasks and (await asyncio.wait(tasks, timeout=LEAVE_SECONDS))[1]:
            if self._link.silence.silent or not await self._link.silence.answers():
                self._link.silence.silent = True
                return

    def _fell_silent(self) -> None:
        text = f"{self._target.daemon.name} does not answer; waiting for it"
        unconfirmed = "; what you sent is not confirmed" if self._dialogue.unsettled()[0] is not None else ""
        leave = "Ctrl-D" if self._terminal else "Ctrl-C"
        self._dialogue.transcript.note(f"{text}{unconfirmed}; {leave} leaves", "33")

    def _speaks_again(self) -> None:
        self._dialogue.transcript.note(f"{self._target.daemon.name} answers again")

    async def _talk(self) -> None:
        await self._dialogue.run(None if self._draws else typed_lines())

    async def _until_quiet(self, watching: asyncio.Task[None]) -> None:
        """Without a terminal the end of the input is the end of the questions, not of the answers."""
        while not watching.done():
            status = await self._ask("GET", "")
            if status["status"] == "idle" and not status["queued"] and (self._progress.after or 0) >= status["asOfSeq"]:
                return
            await asyncio.wait({watching}, timeout=0.2)

    # -- what happens ---------------------------------------------------------------------------------------------

    async def _past(self) -> int:
        """Show the last messages, and return the event after which the live part begins."""
        status = await self._ask("GET", "")
        last: int = status["asOfSeq"]
        self._learn(status)
        if model := status.get("model"):  # the log tells it when it changes only
            provider, _, name = model.partition("/")
            self._dialogue.transcript.recall("request/context", {"provider": provider, "model": name})
        if self._tail > 0 and status["status"] == "running":  # show the running turn from its beginning
            last = await self._before_turn(last)
        with suppress(ControlError):  # a daemon of an earlier version cannot tell
            await self._process.count_in(self._dialogue.transcript.bar, self._target.session_id, last + 1)
        if self._tail <= 0:
            return last
        for event in (await self._messages(last))[-self._tail :]:
            self._dialogue.transcript.message(event["type"], event["data"])
        if status["status"] != "running":
            start = max(0, last + 1 - LAST_EVENTS)
            page = await self._ask("GET", f"/events?from={start}&limit={last + 1 - start}")
            self._dialogue.transcript.broken_off((event["type"], event["data"]) for event in reversed(page["events"]))
        return last

    def _learn(self, status: Mapping[str, Any]) -> None:
        """Take from the state of the session what the status line tells of the daemon's configuration."""
        self._cap = status.get("maxParallelToolCalls")
        self._rates = {route: Prices.validate(prices) for route, prices in status.get("prices", {}).items()}

    async def _look_again(self) -> None:
        with suppress(ControlError):
            self._learn(await self._ask("GET", ""))
            self._dialogue.screen.changed()

    async def _before_turn(self, last: int) -> int:
        """The event before the turn that the log ends in; `last` itself when that is in none."""
        end = last + 1
        while end > 0:
            start = max(0, end - EVENT_PAGE)
            page = await self._ask("GET", f"/events?from={start}&limit={end - start}")
            for event in reversed(page["events"]):
                if event["type"] in ("turn/start", "turn/end"):
                    return event["seq"] - 1 if event["type"] == "turn/start" else last
            end = start
        return last

    async def _messages(self, last: int) -> list[Any]:
        """At least as many messages of the conversation as are to be shown, up to `last`, if it has so many."""
        reach = LOOK_BACK
        while True:
            found: list[Any] = []
            following: int | None = max(0, last + 1 - reach)
            while following is not None and following <= last:
                page = await self._ask("GET", f"/events?view=surface&from={following}&limit={EVENT_PAGE}")
                found += page["events"]
                following = page["next"]
            found = [e for e in found if e["seq"] <= last and e["type"] in ("user/message", "assistant/message")]
            if len(found) >= self._tail or reach > last:
                return found
            reach *= 8

    async def _watch(self) -> None:
        """Show frames until the daemon ends; a stream that is cut before is taken up again."""
        name = self._target.daemon.name
        while True:
            await self._stays.wait()
            self._stream = stream = asyncio.create_task(self._subscribe(), name="attach: stream")
            try:
                await asyncio.wait({stream})
            finally:
                stream.cancel()
            if stream.cancelled():
                continue  # by `switch`
            try:
                if stream.result():
                    continue
            except DaemonGoneError:
                pass  # perhaps: the connection is
            except ControlError as error:
                self._over = str(error)
                return
            entry = await asyncio.to_thread(still_there, self._link.entry)
            if entry is None:
                self._over = f"{name} ended; {self._remedy()}"
                return
            if entry != self._link.entry:
                await self._link.move(entry)
                self._start(self._commands.learn())

    def _remedy(self) -> str:
        """What to do about a daemon that ended."""
        config = self._link.entry.config
        again = f", `dsh run {show_path(config)}` starts it again" if config else ""
        return f"`dsh resume {self._target.session_id}` goes on with the session{again}"

    async def _subscribe(self) -> bool:
        """Show what comes after the last event seen; True when the daemon dropped us because too much was waiting."""
        query = {**self._progress.query(), "host": "true"}
        async with aclosing(self._link.frames("GET", "/api/stream", params=query, timeout=STREAM_LIMITS)) as frames:
            async for frame in frames:
                if not self._progress.take(frame):
                    return True
                self._frame(frame)
        return False

    def _frame(self, frame: dict[str, Any]) -> None:
        kind, transcript = frame["type"], self._dialogue.transcript
        if kind == "session/event":
            event = frame["event"]
            transcript.event(event["type"], event["data"])
        elif kind == "session/subscribed":  # whatever was told while nobody listened
            self.running = frame.get("status") == "running"
        elif kind == "host/session-status":
            self.running = frame["status"] == "running"
            if self.running:  # settings change without a word
                self._start(self._look_again())
            if frame["status"] == "closed":
                transcript.note("the session was closed in its daemon", "33")
        elif kind == "session/queue":
            pending = [(each, True) for each in frame["nextStep"]] + [(each, False) for each in frame["nextTurn"]]
            self._waiting = [
                Waiting(message["id"], "".join(block.get("text", "") for block in message["content"]), steer)
                for message, steer in pending
                if message["source"]["kind"] == "user"
            ]
            self._dialogue.screen.changed()
        elif kind == "host/agent-error" and frame["step"] == 0:
            transcript.error(frame["message"])
        elif kind == "host/config-applied":
            transcript.config_applied(frame["rows"])
            self._start(self._look_again())
            self._start(self._commands.learn())
        elif kind == "host/code-reloaded":
            transcript.code_reloaded(frame["rows"])
            self._start(self._commands.learn())
        elif kind == "host/warning":
            transcript.note(f"daemon: {frame['message']}", "33")

    # -- the agent ------------------------------------------------------------------------------------------------

    async def submit(self, text: str, *, steer: bool) -> None:
        body = {"content": text, "mode": "steer" if steer else "next-turn"}
        await self._ask("POST", "/prompt", body)

    def cancel(self, *, keep_queue: bool) -> None:
        async def ask() -> None:
            try:
                await self._ask("POST", "/cancel", {"keepQueue": keep_queue})
            except Exception as error:
                self._dialogue.transcript.error(str(error))

        self._start(ask())

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        job = asyncio.create_task(work, name="attach: request")
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)

    def queue(self) -> Sequence[Waiting]:
        return self._waiting

    async def take_back(self, message_id: str) -> bool:
        try:
            await self._ask("DELETE", f"/queue/{message_id}")
        except ControlError as error:
            if error.code != "NOT_WAITING":
                raise
            return False
        return True

    @property
    def folder(self) -> str:
        return str(self._target.agent.get("cwd") or working_folder())

    async def agents(self) -> Sequence[AgentLine]:
        return await self._process.agents(self._target.session_id)

    def agent_names(self) -> Sequence[str]:
        return [each.label or each.session_id for each in self._process.agents_known]

    async def switch(self, name: str) -> None:
        """Follow another agent. Where that cannot be, all stays as it was."""
        before, progress = self._target, self._progress
        agent = await self._process.named(name)
        if agent["sessionId"] == before.session_id:
            return
        self._stays.clear()
        if self._stream is not None:
            self._stream.cancel()
        try:
            self._go_to(Target(before.daemon, agent))
            self._dialogue.transcript.follow(self._target.name, cap=lambda: self._cap)
            self._dialogue.transcript.note(f"now with {self._target.name}, session {self._target.session_id}")
            self._progress = Progress(self._target.session_id, await self._past())
        except BaseException:
            self._go_to(before)
            self._progress = progress
            raise
        finally:
            self._stays.set()

    def _go_to(self, target: Target) -> None:
        self._target = target
        self._path = target.path()
        self.running = target.agent["status"] == "running"
        self._waiting = []

    async def fork(self) -> Copied:
        copy = await self._process.fork(self._target.session_id)
        await self.switch(copy.session_id)
        return copy

    # -- the daemon -----------------------------------------------------------------------------------------------

    @property
    def host(self) -> Host:
        return self._process

    async def usage(self) -> Spending:
        return await self._process.usage(self._target.session_id)

    def rates(self) -> Rates:
        return self._rates

    async def _ask(self, method: str, rest: str, body: Any = None) -> Any:
        """Ask about the session."""
        return await self._link.request(method, self._path + rest, body)
