"""The commands that every console has, over the same registry as those of plugins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from dsh.cordis import HarnessError
from dsh.cordis.nearest import did_you_mean

from .commands import Command, Suggestion
from .display.cells import cells, wrapped
from .setting_names import setting_keys, setting_values, shown, value_of
from .spending import usage_rows
from .terminal_text import printable

if TYPE_CHECKING:
    from .dialogue import Dialogue
    from .front import Front
    from .screen import Screen

KEYS = """\
TEXT      a prompt; while the agent works it waits for its turn
!TEXT     into the running turn, at its next step
@PATH     names a file of the workspace, with completion
Enter sends, Alt-Enter or Ctrl-J begins a new line, Tab completes, Up and Ctrl-R find what was typed before
Ctrl-O shows the last reasoning, Ctrl-T the last tool result as a whole, Alt-Up takes the last waiting prompt back
Ctrl-C stops the turn and drops nothing, twice it leaves; Ctrl-D leaves, Ctrl-Z suspends until `fg`"""


LEAST_ROOM: Final = 20
"""Cells in which breaking a text at words is worth it."""


class CommandError(HarnessError):
    """A command that was given something it cannot work with."""

    code = "COMMAND"


def built_in(front: Front, dialogue: Dialogue) -> Iterable[Command]:
    """The console's own commands."""
    own = _BuiltIn(front, dialogue)
    return (
        Command("help", own.help, "what can be typed here"),
        Command("agents", own.agents, "list the agents"),
        Command("switch", own.switch, "talk to another agent", "LABEL", own.complete_agent),
        Command("queue", own.queue, "what waits; take one back", "[drop|edit N]", own.complete_queue),
        Command("steer", own.steer, "into the running turn, as !TEXT", "TEXT"),
        Command("cancel", own.cancel, "stop the turn and drop what waits"),
        Command("fork", own.fork, "go on with a copy of this session"),
        Command("usage", own.usage, "what this session has used, and its cost"),
        Command("settings", own.settings, "show or store your settings", "[KEY [VALUE]]", own.complete_setting),
        Command("config", own.config, "show rows or edit cordis.yml", "[ROW[.KEY [VALUE]]]", own.complete_config),
        Command("plugins", own.plugins, "the rows and their state", "[ROW]", own.complete_row),
        Command("quit", own.quit, "leave, as Ctrl-D does"),
        Command("exit", own.quit, ""),
    )


class _BuiltIn:
    def __init__(self, front: Front, dialogue: Dialogue) -> None:
        self._front = front
        self._dialogue = dialogue

    # -- the conversation -----------------------------------------------------------------------------------------

    def help(self, argument: str, screen: Screen) -> None:
        rows = [(f"/{each.name} {each.argument}".rstrip(), each.help) for each in self._dialogue.commands if each.help]
        width = max(len(usage) for usage, _ in rows) + 2
        lines = [f"{usage:<{width}}{help}" for usage, help in rows]
        self._dialogue.transcript.note("\n".join([*KEYS.split("\n"), *lines]))

    async def steer(self, argument: str, screen: Screen) -> None:
        if not argument:
            raise CommandError("/steer TEXT: say what the running turn is to take up")
        await self._dialogue.submit(argument, steer=True, typed=f"/steer {argument}")

    def cancel(self, argument: str, screen: Screen) -> None:
        if not (self._front.running or self._front.queue()):
            raise CommandError("nothing runs, and nothing waits")
        self._front.cancel(keep_queue=False)

    async def fork(self, argument: str, screen: Screen) -> None:
        copy = await self._front.fork()
        of = " up to the last turn that has ended; the running one goes on where it is" if copy.cut else ""
        _say(screen, f"now in {copy.session_id}, a copy{of}; /agents lists both")

    def quit(self, argument: str, screen: Screen) -> None:
        self._dialogue.quit()

    async def queue(self, argument: str, screen: Screen) -> None:
        waiting = self._front.queue()
        what, _, number = argument.partition(" ")
        if not argument:
            rows = [f"{n}  {'steers: ' if each.steer else ''}{each.text}" for n, each in enumerate(waiting, 1)]
            screen.print(printable("\n".join(rows or ["nothing waits"])))
            return
        if what not in ("drop", "edit") or not number.strip().isdecimal():
            raise CommandError("/queue lists what waits; /queue drop N forgets one, /queue edit N takes it back here")
        if not 1 <= int(number) <= len(waiting):
            raise CommandError(f"nothing waits as number {number}; {len(waiting)} in the queue")
        prompt = waiting[int(number) - 1]
        if what == "edit":
            await self._dialogue.edit_waiting(prompt)
        elif not await self._front.take_back(prompt.id):
            raise CommandError("its turn has begun already")

    def complete_queue(self, argument: str) -> Iterable[str | Suggestion]:
        if " " not in argument:
            return ("drop", "edit")
        return [Suggestion(str(n), each.text) for n, each in enumerate(self._front.queue(), 1)]

    # -- agents ---------------------------------------------------------------------------------------------------

    async def agents(self, argument: str, screen: Screen) -> None:
        rows = []
        for each in await self._front.agents():
            here = "*" if each.here else " "
            rows.append((f"{here} {each.label or '-'}", each.session_id, each.status, each.model or ""))
        screen.print(table(rows) or "no agents")

    async def switch(self, argument: str, screen: Screen) -> None:
        if not argument:
            raise CommandError("/switch LABEL: say whom you want to talk to; /agents lists them")
        await self._front.switch(argument)

    def complete_agent(self, argument: str) -> Iterable[str | Suggestion]:
        return self._front.agent_names()

    # -- settings and configuration -------------------------------------------------------------------------------

    async def settings(self, argument: str, screen: Screen) -> None:
        key, _, text = argument.partition(" ")
        if text.strip():
            if key == "unset":
                await self._front.host.unset_setting(text.strip())
                _say(screen, f"{text.strip()} is back to the row's value or the default")
                return
            value = value_of(text)
            refuse_secret(key, value, "settings")
            warnings = await self._front.host.set_setting(key, value)
            _say(screen, f"{key} = {shown(value)}", *warnings)
            return
        known = await self._front.host.settings()
        found = [each for each in known if not key or each.key == key or each.key.startswith(f"{key}.")]
        if not known:
            raise CommandError("no row of this composition keeps settings (settings-file)")
        if not found:
            keys = [each.key for each in known]
            raise CommandError(f'no setting "{key}"{did_you_mean(key, keys)}')
        screen.print(table([(each.key, shown(each.value), each.layer) for each in found]))

    def complete_setting(self, argument: str) -> Iterable[str | Suggestion]:
        known = self._front.host.known_settings()
        words = argument.split(" ")
        if words[0] == "unset" and len(words) > 1:
            return [Suggestion(each.key) for each in known if each.layer == "user"]
        if len(words) > 1:
            return setting_values(known, words[0])
        return [*setting_keys(known), Suggestion("unset", "forget your value")]

    async def config(self, argument: str, screen: Screen) -> None:
        key, _, text = argument.partition(" ")
        if text.strip():
            value = value_of(text)
            refuse_secret(key, value, "a composition")
            warnings = await self._front.host.edit_config(key, value)
            _say(screen, f"{key} = {shown(value)}", *warnings)
            return
        from .config_text import part_of

        screen.print(printable(part_of(await self._front.host.config_text(), key)))

    def complete_config(self, argument: str) -> Iterable[str | Suggestion]:
        known = self._front.host.known_config()
        words = argument.split(" ")
        return setting_values(known, words[0]) if len(words) > 1 else setting_keys(known)

    # -- what runs ------------------------------------------------------------------------------------------------

    async def plugins(self, argument: str, screen: Screen) -> None:
        rows: Sequence[Mapping[str, Any]] = (await self._front.host.picture())["rows"]
        if argument:
            found = [row for row in rows if row["id"] == argument]
            if not found:
                raise CommandError(f'no row "{argument}"{did_you_mean(argument, [row["id"] for row in rows])}')
            screen.print(table([(name, shown(value)) for name, value in found[0].items() if value not in ([], None)]))
            return
        room = screen.width if screen.live else None
        screen.print(table([(row["id"], row["state"], row["plugin"], _trouble(row)) for row in rows], room))

    def complete_row(self, argument: str) -> Iterable[str | Suggestion]:
        return dict.fromkeys(each.key.partition(".")[0] for each in self._front.host.known_config())

    async def usage(self, argument: str, screen: Screen) -> None:
        used = await self._front.usage()
        rows = usage_rows(used, self._front.rates())
        screen.print("\n\n".join(filter(None, (table([("turns", f"{used.turns:,}")]), table(rows)))))


def refuse_secret(key: str, value: Any, place: str) -> None:
    """Raise CommandError for a key or password that would be written into a file which others read."""
    from dsh.loader.row_checks import SECRET_KEY

    if isinstance(value, str) and SECRET_KEY.search(key):
        hint = "store one with `dsh credentials set NAME`"
        raise CommandError(f"{key}: keys and passwords do not belong into {place}; {hint}")


def table(rows: Sequence[Sequence[str]], room: int | None = None) -> str:
    """Rows of columns as text; control characters of whoever named things never reach the terminal.

    room: cells of a row; the last column is broken at words there, where it has room for words at all.
    """
    found = [[printable(cell).replace("\n", " ") for cell in row] for row in rows]
    widths = [max(cells(row[n]) for row in found) for n in range(len(found[0]))] if found else []
    start = sum(widths[:-1]) + 2 * len(widths[:-1])
    lines = []
    for *row, last in found:
        head = "".join(cell + " " * (width + 2 - cells(cell)) for cell, width in zip(row, widths, strict=False))
        fits = room is None or room - start < LEAST_ROOM
        parts = [last] if fits else wrapped(last, (room or 0) - start)
        lines += [f"{head if not n else ' ' * start}{part}".rstrip() for n, part in enumerate(parts)]
    return "\n".join(lines)


def _say(screen: Screen, *lines: str) -> None:
    """Print lines, broken at words where the screen ends; a pipe has no end."""
    text = printable("\n".join(lines))
    screen.print("\n".join(wrapped(text, max(1, screen.width))) if screen.live else text)


def _trouble(row: Mapping[str, Any]) -> str:
    if row.get("waitsFor"):
        return "waits for " + ", ".join(row["waitsFor"])
    return str(row.get("error", ""))
