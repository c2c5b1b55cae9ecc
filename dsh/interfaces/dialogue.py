"""A conversation on a terminal: typed lines become prompts, steers and commands, Ctrl-C stops the running turn.

The same for an agent of this process (`console`) and for one of a daemon (`control.remote`).
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Final

from dsh.cordis import describe_error
from dsh.cordis.nearest import did_you_mean

from .builtin_commands import built_in
from .commands import Command, CommandTable
from .completion import Completion
from .front import Front, Waiting
from .history import InputHistory
from .prompt_line import INTERRUPTED, PromptLine
from .screen import Screen
from .terminal_text import printable
from .transcript import Transcript

LEAVE_SECONDS: Final = 2.0
STEER: Final = "!"
"""A line that begins with this goes into the running turn."""

SHOWN_WAITING: Final = 4
"""Waiting prompts that are shown above the input line."""

LEAVE: Final = ("/quit", "/exit")
HISTORY_FILE: Final = "history"


class Dialogue:
    """Reads lines and acts on them.

    table: the commands it knows; home: where what was typed is kept; left: called when the person leaves by Ctrl-C,
    with whether a turn was running.
    """

    def __init__(self, front: Front, table: CommandTable, home: Path | None, left: Callable[[bool], None]) -> None:
        self._front = front
        self._table = table
        self._left = left
        self._last_interrupt = 0.0
        self._typed_then = ""
        self._cancelling = False
        self._leaving = False
        self._sending: list[str] = []
        self._acting: str | None = None
        self._works: set[asyncio.Future[None]] = set()
        self.leaving = asyncio.Event()
        """Set once the person has asked to leave, though what was typed before may not be done yet."""
        self.prompt_line = PromptLine(self.interrupt)
        self.prompt_line.waiting = self._waiting_rows
        self.prompt_line.sent = self._sent
        self.prompt_line.completion = Completion(table, lambda: front.folder)
        self.prompt_line.history = InputHistory(home / HISTORY_FILE) if home is not None else None
        self.screen: Screen = self.prompt_line
        self.transcript = Transcript(self.prompt_line)
        self.transcript.reasoning_hint = "; Ctrl-O shows it"
        self.transcript.bar.rates = front.rates
        self.prompt_line.region = self.transcript
        self.prompt_line.keys |= {
            "escape up": self.edit_last,
            "c-o": lambda: self.transcript.expand("reasoning"),
            "c-t": lambda: self.transcript.expand("tool"),
        }
        for command in built_in(front, self):
            table.add(command)

    @property
    def commands(self) -> Sequence[Command]:
        """What can be typed behind a `/`."""
        return self._table.all()

    def use(self, screen: Screen) -> None:
        """Show the conversation elsewhere: without a terminal."""
        self.screen = screen
        self.transcript = Transcript(screen)

    async def run(self, lines: AsyncGenerator[str, None] | None = None) -> None:
        """Until the person leaves, and what they asked for is done; all of it ends with this."""
        try:
            async with aclosing(self._typed() if lines is None else lines) as typed:
                async for text in typed:
                    self._acting = text
                    await self._act(text)
                    self._acting = None
                    if self._leaving:
                        break
            if self._works:
                await asyncio.wait(self._works)
        finally:
            self.transcript.pause()
            for work in self._works:
                work.cancel()
            await asyncio.gather(*self._works, return_exceptions=True)

    def quit(self) -> None:
        """Leave once what runs now has been acted on."""
        self._leaving = True

    def unsettled(self) -> tuple[str | None, list[str]]:
        """What is just being acted on, and what was sent behind it."""
        acting = None if self._acting == INTERRUPTED else self._acting
        return acting, [text for text in self.prompt_line.unread if text != INTERRUPTED]

    def _sent(self, text: str | None) -> None:
        if text is None or text.strip() in LEAVE:
            self.leaving.set()

    async def _typed(self) -> AsyncGenerator[str, None]:
        """What is typed. While one line is acted on the next ones wait, and can be called back by Ctrl-C."""
        async with aclosing(self.prompt_line.lines()) as typed:
            async for text in typed:
                if text.startswith("/"):
                    self.prompt_line.print(self.prompt_line.style("1", f"> {printable(text.strip())}"))
                yield text

    async def _act(self, text: str) -> None:
        if text == INTERRUPTED:
            self._front.cancel(keep_queue=True)
            return
        self._last_interrupt = 0.0
        if text.startswith("/"):
            await self._run_command(text.strip())
        elif text.startswith(STEER):
            await self.submit(text[len(STEER) :].strip(), steer=True, typed=text)
        else:
            await self.submit(text.strip())

    async def submit(self, text: str, *, steer: bool = False, typed: str | None = None) -> None:
        """Give the agent a prompt; one that it cannot take is offered again."""
        if not text:
            return
        self._sending.append(text)
        self.screen.changed()
        try:
            await self._front.submit(text, steer=steer)
        except Exception as error:
            self.transcript.error(describe_error(error))
            self.prompt_line.give_back(typed or text)
        finally:
            self._sending.remove(text)
            self.screen.changed()

    # -- Ctrl-C ---------------------------------------------------------------------------------------------------

    def interrupt(self) -> bool:
        """Ctrl-C: stop the turn; twice in a moment, with nothing typed in between: leave.

        False when it was meant for nothing of that: what is typed goes.
        """
        under_way = bool(self._sending or self.prompt_line.unread)
        running = self._front.running or under_way
        if self._interrupted_twice():
            self._left(running or self._cancelling)
            return True
        self._typed_then = self.prompt_line.typed if running or self._works else ""
        if self._works:
            for work in self._works:
                work.cancel()
            return True
        self._cancelling = running
        if running:
            self.transcript.note("cancelling; Ctrl-C again leaves", "33")
            if under_way:  # a turn that does not run yet is stopped once it does
                self.prompt_line.interrupt_later()
            if self._front.running:
                self._front.cancel(keep_queue=True)
        else:
            self.transcript.note("press Ctrl-C again to leave")
        return running

    def _interrupted_twice(self) -> bool:
        now = time.monotonic()
        twice = now - self._last_interrupt < LEAVE_SECONDS and self.prompt_line.typed == self._typed_then
        self._last_interrupt = now
        return twice

    # -- the queue ------------------------------------------------------------------------------------------------

    def _waiting_rows(self) -> list[str]:
        """What stands right above the input line: prompts that wait, the next one first, and those on their way."""
        waiting = self._front.queue()
        known = {each.text for each in waiting}
        rows = [f"{'steers' if each.steer else 'waits'}: {each.text}" for each in waiting]
        rows += [f"sending: {text}" for text in self._sending if text not in known]
        if len(rows) > SHOWN_WAITING:
            rows[SHOWN_WAITING - 1 :] = [f"and {len(rows) - SHOWN_WAITING + 1} more"]
        if waiting:
            hint = f"{STEER}TEXT steers the running turn" if self._front.running else "the next prompt wakes the agent"
            rows.append(f"{hint}; Alt-Up or /queue edits what waits")
        return rows

    def edit_last(self) -> None:
        """Take the last waiting prompt back into the input line."""
        waiting = self._front.queue()
        if waiting and not self.prompt_line.typed:
            self.start_command(self.edit_waiting(waiting[-1]))

    async def edit_waiting(self, prompt: Waiting) -> None:
        """Take a waiting prompt back into the input line."""
        if await self._front.take_back(prompt.id):
            self.prompt_line.give_back(f"{STEER}{prompt.text}" if prompt.steer else prompt.text)
        else:
            self.transcript.error("its turn has begun already")

    # -- commands -------------------------------------------------------------------------------------------------

    def start_command(self, work: object) -> asyncio.Future[None]:
        """Begin what a key or command asks for. Ctrl-C cancels all that runs so; what it raises is shown."""

        async def run() -> None:
            try:
                if inspect.isawaitable(work):
                    await work
            except asyncio.CancelledError:
                self.transcript.note("cancelled", "33")
            except Exception as error:
                self.transcript.error(describe_error(error))

        task = asyncio.ensure_future(run())
        self._works.add(task)
        task.add_done_callback(self._works.discard)
        return task

    async def _run_command(self, text: str) -> None:
        name, _, argument = text[1:].partition(" ")
        command = self._table.get(name)
        if command is None:
            known = [each.name for each in self._table.all()]
            hint = did_you_mean(name, known).replace('"', '"/', 1)
            self.transcript.error(f'there is no command "/{name}"{hint}; /help lists them')
            return
        if self.prompt_line.interrupt_follows:
            self.transcript.note("cancelled", "33")
            return
        try:
            work = command.run(argument.strip(), self.screen)
        except Exception as error:
            self.transcript.error(describe_error(error))
            return
        if inspect.isawaitable(work):
            task = self.start_command(work)
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
                raise
