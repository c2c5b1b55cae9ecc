"""A conversation on a terminal: typed lines become prompts, steers and commands, Ctrl-C stops the running turn.

The same for an agent of this process (`console`) and for one of a daemon (`control.remote`).
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final, Protocol

from .prompt_line import PromptLine
from .screen import Screen
from .transcript import Transcript

LEAVE_SECONDS: Final = 2.0
STEER: Final = "!"
"""A line that begins with this goes into the running turn."""

HELP: Final = """\
TEXT      a prompt; while the agent works it waits for its turn
!TEXT     into the running turn, at its next step; also /steer TEXT
/cancel   stop the turn and drop what waits; Ctrl-C drops nothing"""


class Front(Protocol):
    """The agent at the other end."""

    @property
    def running(self) -> bool:
        """Whether it is in a turn."""

    async def submit(self, text: str, *, steer: bool) -> None:
        """Give it a prompt. Raises for one that it did not get."""

    def cancel(self, *, keep_queue: bool) -> None:
        """Stop its turn."""

    def command(self, name: str, argument: str) -> bool:
        """Run a command that only this front has; False when there is none of that name."""


class Dialogue:
    """Reads lines and acts on them. help: what the front's own commands do. left: called when the person leaves by
    Ctrl-C, with whether a turn was running."""

    def __init__(self, front: Front, help: str, left: Callable[[bool], None]) -> None:
        self._front = front
        self._help = help
        self._left = left
        self._last_interrupt = 0.0
        self._cancelling = False
        self.prompt_line = PromptLine(self.interrupt)
        self.transcript = Transcript(self.prompt_line)
        self.prompt_line.region = self.transcript

    def use(self, screen: Screen) -> None:
        """Show the conversation elsewhere: without a terminal."""
        self.transcript = Transcript(screen)

    async def run(self, lines: AsyncGenerator[str, None] | None = None) -> None:
        """Until the person leaves."""
        async with aclosing(self.prompt_line.lines() if lines is None else lines) as typed:
            async for text in typed:
                if text in ("/quit", "/exit"):
                    return
                if text.startswith("/"):
                    await self._command(text)
                elif text.startswith(STEER):
                    await self.submit(text[len(STEER) :].strip(), steer=True, typed=text)
                elif text:
                    await self.submit(text)

    async def submit(self, text: str, *, steer: bool = False, typed: str | None = None) -> None:
        """Give the agent a prompt; one that it cannot take is offered again."""
        if not text:
            return
        busy = self._front.running
        if not busy:  # it stands right above; one that waits is shown again when its turn comes
            self.transcript.typed.append(text)
        try:
            await self._front.submit(text, steer=steer)
        except Exception as error:
            if text in self.transcript.typed:  # unless a prompt of the same text came by meanwhile
                self.transcript.typed.remove(text)
            self.transcript.error(str(error) or type(error).__name__)
            self.prompt_line.give_back(typed or text)
            return
        if busy and not steer:
            self.transcript.note(f"waits for its turn; {STEER}TEXT steers the running one")

    def interrupt(self) -> bool:
        """Ctrl-C: stop the turn; twice in a moment: leave. False when it was meant for nothing of that."""
        running, again = self._front.running, self._interrupted_twice()
        if again:
            self._left(running or self._cancelling)
            return True
        self._cancelling = running
        if running:
            self.transcript.note("cancelling; Ctrl-C again leaves", "33")
            self._front.cancel(keep_queue=True)
        else:
            self.transcript.note("press Ctrl-C again to leave")
        return running

    def _interrupted_twice(self) -> bool:
        now = time.monotonic()
        twice = now - self._last_interrupt < LEAVE_SECONDS
        self._last_interrupt = now
        return twice

    async def _command(self, text: str) -> None:
        name, _, argument = text.partition(" ")
        if name == "/cancel":
            self._front.cancel(keep_queue=False)
        elif name == "/steer":
            await self.submit(argument.strip(), steer=True, typed=text)
        elif not self._front.command(name, argument.strip()):
            for line in f"{HELP}\n{self._help}".split("\n"):
                self.transcript.note(line)
