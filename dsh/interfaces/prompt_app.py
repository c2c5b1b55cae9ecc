"""The drawing and the keys of `prompt_line`, with prompt_toolkit. Imported once the prompt is to be shown.

One application runs from the first prompt to the last, so that every key is acted on when it is pressed.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.data_structures import Point
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, has_completions, is_done, is_searching
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples, to_formatted_text
from prompt_toolkit.history import History
from prompt_toolkit.input.typeahead import store_typeahead
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.key_binding.key_processor import KeyPress
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import (
    BufferControl,
    ConditionalContainer,
    Dimension,
    FormattedTextControl,
    HSplit,
    Layout,
    VerticalAlign,
    Window,
)
from prompt_toolkit.layout.containers import AnyContainer
from prompt_toolkit.layout.menus import CompletionsMenuControl
from prompt_toolkit.layout.screen import Char
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.widgets import SearchToolbar

from .display.cells import cut
from .terminal_text import printable

if TYPE_CHECKING:
    from .prompt_line import PromptLine

INPUT_ROWS: Final = 10
"""Rows of the input that are shown at once."""

MENU_ROWS: Final = 8
REDRAW_SECONDS: Final = 0.03
TICK_SECONDS: Final = 1.0
"""How often the picture is drawn while it changes with the time alone."""

PROMPT: Final = "> "


class PromptApp:
    """The application of one `PromptLine`. entered: called with each text that is sent, as it was typed."""

    def __init__(self, line: PromptLine, entered: Callable[[str], None]) -> None:
        self._line = line
        self._entered = entered
        self._finished: list[str] = []
        self._wants_first = False
        self._tick: asyncio.TimerHandle | None = None
        self._ended = False
        output = _Output.from_pty(sys.stdout, term=os.environ.get("TERM"))
        assert isinstance(output, _Output)
        self.output = output
        self.output.enable_cpr = False  # nothing here depends on where on the screen it stands
        self.buffer = _Buffer(
            multiline=True,
            history=_History(line),
            completer=_Completer(line),
            complete_while_typing=Condition(self._completes_by_itself),
        )
        self.buffer.on_completions_changed += self._take_first
        self.buffer.on_text_changed += self._forget_first
        search = SearchToolbar()
        control = BufferControl(self.buffer, search_buffer_control=search.control, preview_search=True)
        window = Window(
            control,
            wrap_lines=True,
            dont_extend_height=True,
            height=Dimension(min=1, max=INPUT_ROWS),
            get_line_prefix=lambda number, wrapped: PROMPT if not number and not wrapped else "  ",
        )
        menu = Window(
            CompletionsMenuControl(),
            dont_extend_height=True,
            dont_extend_width=True,
            height=Dimension(min=1, max=MENU_ROWS),
            style="class:completion-menu",
        )
        rows: list[AnyContainer] = [
            Window(FormattedTextControl(self._above), dont_extend_height=True, wrap_lines=False),
            window,
            search,
            ConditionalContainer(menu, filter=has_completions & ~is_done),
            ConditionalContainer(
                Window(FormattedTextControl(self._status), height=1, wrap_lines=False),
                filter=Condition(lambda: bool(self._status())),
            ),
        ]
        self.app: Application[None] = _Application(
            layout=Layout(HSplit(rows, align=VerticalAlign.TOP), focused_element=window),
            key_bindings=self._keys(),
            output=self.output,
            erase_when_done=True,
            min_redraw_interval=REDRAW_SECONDS,
            terminal_size_polling_interval=None,
        )
        self.app.ttimeoutlen = 0.1  # Escape alone; Alt and a key come together
        self.app.before_render += self._print_finished
        self.app.after_render += self._keep_ticking

    async def run(self) -> None:
        """Until `leave`, Ctrl-D on an empty line, or the end of the terminal."""
        if self._ended:
            return
        try:
            with suppress(EOFError):
                await self.app.run_async(set_exception_handler=False, handle_sigint=False)
        finally:
            self._ended = True
            if self._tick is not None:
                self._tick.cancel()
            self._write_finished()

    def press(self, keys: str) -> None:
        """Act on keys as soon as `run` begins, as a terminal sends them."""
        pressed: list[KeyPress] = []
        parser = Vt100Parser(pressed.append)
        parser.feed_and_flush(keys)
        store_typeahead(self.app.input, pressed)

    def leave(self) -> None:
        """End `run`, also one that is still to begin."""
        if not self.app.is_running:
            self._ended = True
        elif not self.app.is_done:
            self.app.exit()

    # -- drawing --------------------------------------------------------------------------------------------------

    def print(self, text: str) -> None:
        """Put whole lines above the live region with the next redraw; where nothing is drawn any more, at once."""
        self._finished.append(text)
        if self._ended:
            self._write_finished()
        else:
            self.app.invalidate()

    def _print_finished(self, _: object) -> None:
        """Replace what is drawn by the finished lines, in the same write as what is drawn below them."""
        if not self._finished:
            return
        self.output.held = True
        try:
            self.app.renderer.erase()
            self._write_finished()
        finally:
            self.output.held = False

    def _write_finished(self) -> None:
        if self._finished:
            text = "\n".join(self._finished) + "\n"
            self._finished.clear()
            self.output.write_raw(text.replace("\n", "\r\n"))
            self.output.flush()

    def _keep_ticking(self, _: object) -> None:
        region = self._line.region
        if region is not None and region.ticking and self._tick is None and self.app.is_running:
            self._tick = asyncio.get_running_loop().call_later(TICK_SECONDS, self._ticked)

    def _ticked(self) -> None:
        self._tick = None
        self.app.invalidate()

    def _above(self) -> StyleAndTextTuples:
        """The live region and what waits, as far as there is room."""
        if self.app.is_done:
            return []
        size = self.output.get_size()
        width = max(1, size.columns - 1)
        waiting = [cut(" ".join(printable(row).split()), width) for row in self._line.waiting()]
        room = max(0, size.rows - 3 - min(INPUT_ROWS, self.buffer.document.line_count))
        live = [] if self._line.region is None else list(self._line.region.live(width))
        waiting = waiting[: max(0, room - 1)]
        room -= len(waiting)
        live = live[max(0, len(live) - room) :]
        style = self._line.style
        rows = [*live, *(style("2", row) for row in waiting)]
        return to_formatted_text(ANSI("\n".join(rows))) if rows else []

    def _status(self) -> StyleAndTextTuples:
        if self._line.region is None or self.app.is_done:
            return []
        text = self._line.region.status(max(1, self.output.get_size().columns - 1))
        return to_formatted_text(ANSI(text)) if text else []

    # -- keys -----------------------------------------------------------------------------------------------------

    def _completes_by_itself(self) -> bool:
        return self._line.completion is not None and self._line.completion.applies(
            self.buffer.document.text_before_cursor
        )

    def _take_first(self, _: object) -> None:
        state = self.buffer.complete_state
        if self._wants_first and state is not None and state.completions:
            self._wants_first = False
            self.buffer.go_to_completion(0)

    def _forget_first(self, _: object) -> None:
        self._wants_first = False

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        chosen = Condition(lambda: (s := self.buffer.complete_state) is not None and s.current_completion is not None)
        empty = Condition(lambda: not self.buffer.text)

        @keys.add("enter", filter=~is_searching)
        def send(event: KeyPressEvent) -> None:
            text = self.buffer.text
            if not text.strip():
                self.buffer.reset()
                return
            self.buffer.append_to_history()
            self.buffer.reset()
            self._entered(printable(text))  # control characters can be typed, too, behind Ctrl-Q

        @keys.add("enter", filter=chosen & ~is_searching)
        def take(event: KeyPressEvent) -> None:
            self.buffer.complete_state = None

        @keys.add("escape", "enter")
        @keys.add("c-j")
        def new_line(event: KeyPressEvent) -> None:
            self.buffer.insert_text("\n")

        @keys.add("tab")
        def complete(event: KeyPressEvent) -> None:
            if self.buffer.complete_state:
                self.buffer.complete_next()
            else:  # perhaps under way already, for it was typed
                self._wants_first = True
                self.buffer.start_completion()

        @keys.add("s-tab", filter=has_completions)
        def complete_back(event: KeyPressEvent) -> None:
            self.buffer.complete_previous()

        @keys.add("escape", filter=has_completions)
        def close_menu(event: KeyPressEvent) -> None:
            self.buffer.cancel_completion()

        @keys.add("c-c", filter=~is_searching)
        def interrupt(event: KeyPressEvent) -> None:
            had_text = bool(self.buffer.text)
            answered = self._line.interrupted()
            if had_text and not answered:
                self.buffer.reset()

        @keys.add("c-z")
        def suspend(event: KeyPressEvent) -> None:
            """Back to the shell until `fg`; where nobody waits behind us, nothing."""
            event.app.suspend_to_background()

        @keys.add("c-d", filter=empty)
        def end(event: KeyPressEvent) -> None:
            self.leave()

        @keys.add(Keys.BracketedPaste)
        def paste(event: KeyPressEvent) -> None:
            self.buffer.insert_text(printable(event.data.replace("\r\n", "\n").replace("\r", "\n")))

        for key, action in self._line.keys.items():
            keys.add(*key.split(" "))(lambda event, action=action: action())
        return keys


_REFLOWS: Final = (
    "VTE_VERSION",
    "KITTY_WINDOW_ID",
    "WEZTERM_PANE",
    "ALACRITTY_WINDOW_ID",
    "KONSOLE_VERSION",
    "GHOSTTY_RESOURCES_DIR",
    "WT_SESSION",
    "ITERM_SESSION_ID",
    "TMUX",
)
"""Variables of terminals that break rows anew when their window becomes narrower; the others cut them."""


class _Application(Application[None]):
    """Knows how many rows what it has drawn takes in a window that was made narrower."""

    def _on_resize(self) -> None:
        screen, renderer = self.renderer.last_rendered_screen, self.renderer
        if screen is not None and "STY" not in os.environ and any(name in os.environ for name in _REFLOWS):
            columns = max(1, self.output.get_size().columns)
            cursor = renderer._cursor_pos
            above = [len(_drawn(screen.data_buffer[y])) for y in range(cursor.y)]
            broken = sum(max(0, length - 1) // columns for length in above) + cursor.x // columns
            renderer._cursor_pos = Point(x=cursor.x, y=cursor.y + broken)
        super()._on_resize()


def _drawn(row: Mapping[int, Char]) -> str:
    """The text of a drawn row without the blanks behind it."""
    return "".join(row[x].char if x in row else " " for x in range(max(row, default=-1) + 1)).rstrip()


class _Output(Vt100_Output):
    """Writes what belongs together at once: what is finished, and what is drawn below it."""

    held = False

    def flush(self) -> None:
        if not self.held:
            super().flush()


class _Buffer(Buffer):
    """Has its history from the start: a key that comes at once finds it, too."""

    def reset(self, document: Document | None = None, append_to_history: bool = False) -> None:
        super().reset(document, append_to_history)
        position = self.cursor_position
        entries = self.history.get_strings()
        self._working_lines.extendleft(reversed(entries))
        self.working_index = len(entries)
        self.cursor_position = position

    def load_history_if_not_yet_loaded(self) -> None:
        """Nothing is left to load."""


class _History(History):
    """Entries of the file."""

    def __init__(self, line: PromptLine) -> None:
        super().__init__()
        self._line = line
        self._loaded_strings = list(self.load_history_strings())
        self._loaded = True

    def load_history_strings(self) -> Iterable[str]:
        """The latest first."""
        return reversed(self._line.history.load()) if self._line.history is not None else ()

    def store_string(self, string: str) -> None:
        if self._line.history is not None:
            self._line.history.add(string)


class _Completer(Completer):
    def __init__(self, line: PromptLine) -> None:
        self._line = line

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        completion, before = self._line.completion, document.text_before_cursor
        length, found = (0, []) if completion is None else completion.suggestions(before)
        for each in found:
            yield Completion(each.text, -length, display_meta=each.note)

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        completion, before = self._line.completion, document.text_before_cursor

        def find() -> list[Completion]:
            return list(self.get_completions(document, complete_event))

        on_disk = completion is not None and completion.is_file(before)
        for each in await asyncio.to_thread(find) if on_disk else find():
            yield each
