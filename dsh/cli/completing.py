"""What could stand where the cursor of a shell is: commands, options, keys and values, agents, sessions.

Works from the commands themselves, so that a new one is completed without being named here; only what an argument
stands for is said here, by its name. Nothing is imported but the command at hand and what its argument needs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from dsh.settings.keys import KeyInfo

FILES: Final = ":files"
"""Stands alone for: the names of files, which the shell itself completes."""

_MOST_SESSIONS = 200
_MOST_TITLES = 25
"""A title is read from the log: only the newest sessions are offered with theirs."""

Offer = tuple[str, str]
"""A word, and what it is."""


def offers(words: Sequence[str]) -> list[Offer]:
    """What the last of `words` may become; the ones before it are those of the command line after `dsh`."""
    line = _Line()
    *before, word = words or [""]
    for each in before:
        line.take(each)
    found = list(dict.fromkeys(line.offers(word)))
    return [each for each in found if each[0] == FILES or each[0].startswith(word)]


@dataclass
class _Line:
    """The part of a command line before the cursor."""

    path: tuple[str, ...] = ()
    args: list[str] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)
    pending: Any = None
    """An option whose value comes next."""
    plain: bool = False
    """Only arguments follow."""

    def __post_init__(self) -> None:
        import typer

        from dsh.cli.main import app

        self.command: Any = typer.main.get_command(app)

    def take(self, word: str) -> None:
        """One complete word."""
        if self.pending is not None:
            self._set(self.pending, word)
            self.pending = None
        elif word == "--" and not self.plain:
            self.plain = True
        elif word.startswith("-") and len(word) > 1 and not self.plain:
            name, equals, value = word.partition("=")
            option = self._option(name)
            if option is not None and _takes_value(option):
                if equals:
                    self._set(option, value)
                else:
                    self.pending = option
        elif self._commands() is not None:
            self.command = self._below(word)
            self.path = (*self.path, word)
        else:
            self.args.append(word)

    def offers(self, word: str) -> Iterator[Offer]:
        """What a word that is begun may become."""
        if self.command is None:
            return
        if self.pending is not None:
            yield from self._values(self.pending, word)
        elif word.startswith("--") and "=" in word and not self.plain:
            name, _, begun = word.partition("=")
            option = self._option(name)
            if option is not None:
                yield from ((f"{name}={text}", about) for text, about in self._values(option, begun) if text != FILES)
        elif word.startswith("-") and not self.plain:
            yield from (
                (each, _about(option)) for option in self._options() for each in option.opts if each[:2] == "--"
            )
            yield "--help", "Show this message and exit."
        elif (commands := self._commands()) is not None:
            yield from commands.items()
        else:
            arguments = [each for each in self.command.params if each.param_type_name == "argument"]
            at = min(len(self.args), len(arguments) - 1)
            if arguments and (at == len(self.args) or arguments[at].nargs == -1):
                yield from self._values(arguments[at], word)

    # --- the command

    def _set(self, option: Any, value: str) -> None:
        self.options[option.name] = value
        if option.name == "home" and not self.path:
            os.environ["DSH_HOME"] = os.path.abspath(os.path.expanduser(value))

    def _options(self) -> list[Any]:
        params = getattr(self.command, "params", ())
        return [each for each in params if each.param_type_name == "option" and not each.hidden]

    def _option(self, name: str) -> Any:
        return next((each for each in self._options() if name in each.opts), None)

    def _commands(self) -> dict[str, str] | None:
        """The commands below the one so far; None if it has none."""
        if not self.path:
            from dsh.cli.main import COMMANDS

            return COMMANDS
        below = getattr(self.command, "commands", None)
        if not below:
            return None
        shown = {name: each for name, each in below.items() if not each.hidden}
        return {name: (each.get_short_help_str(200) if each.help else "") for name, each in shown.items()}

    def _below(self, name: str) -> Any:
        if self.path:
            return self.command.commands.get(name)
        import importlib

        import typer

        from dsh.cli.main import COMMANDS

        return typer.main.get_command(importlib.import_module(f"dsh.cli.{name}").app) if name in COMMANDS else None

    # --- values

    def _values(self, param: Any, word: str) -> Iterable[Offer]:
        where = " ".join(self.path)
        known = _VALUES.get(f"{where} {param.name}") or _VALUES.get(param.name)
        if known is not None:
            return known(self, word)
        metavar = (param.metavar or "").strip("[]")
        if "|" in metavar and metavar.islower():
            return [(each, "") for each in metavar.split("|")]
        annotation = getattr(getattr(param, "type_descriptor", None), "annotation", None)
        if annotation is Path or Path in getattr(annotation, "__args__", ()) or metavar in ("FILE", "DIR", "PATH"):
            return [(FILES, "")]
        return []


def _takes_value(option: Any) -> bool:
    return not (getattr(option, "is_flag", False) or getattr(option, "count", False))


def _about(param: Any) -> str:
    return str(getattr(param, "help", "") or "")


# --- what arguments stand for -----------------------------------------------------------------------------------------


def _source(line: _Line) -> Any:
    from dsh.cli.host import default_config
    from dsh.loader.boot import make_source

    named = (
        line.options.get("file")
        or line.options.get("config")
        or (line.args[0] if line.path == ("run",) and line.args else None)
    )
    return make_source(named or default_config())


def _config_keys(line: _Line) -> list[KeyInfo]:
    from dsh.interfaces.config_keys import known_keys

    return [each for each in known_keys(_source(line)) if each.is_place and not each.hidden]


def _settings_keys(_line: _Line) -> list[KeyInfo]:
    from dsh.settings.offline import known_keys

    return [each for each in known_keys() if each.is_place and not each.hidden]


def _named(keys: Iterable[KeyInfo]) -> list[Offer]:
    return [(each.key, each.description) for each in keys]


def _allowed(keys: Iterable[KeyInfo], key: str) -> list[Offer]:
    """The values of a key: all of them, or the default of one that has too many."""
    from dsh.interfaces.setting_names import shown

    found = next((each for each in keys if each.key == key), None)
    if found is None or found.secret:
        return []
    values = list(found.allowed) or ([found.default] if found.default is not None else [])
    return [(shown(each), "default" if each == found.default else "") for each in values]


def _set_option(line: _Line, word: str) -> list[Offer]:
    key, equals, _ = word.partition("=")
    keys = _config_keys(line)
    if equals:
        return [(f"{key}={text}", about) for text, about in _allowed(keys, key)]
    return [(f"{each.key}=", each.description) for each in keys]


def _agents(_line: _Line, _word: str) -> list[Offer]:
    from dsh.cli.daemons import home_folder
    from dsh.interfaces.control.client import find_daemons

    agents = [agent for daemon in find_daemons(home_folder()) for agent in daemon.agents]
    named = [
        (str(agent["label"]), f"{agent['status']}, {agent['sessionId']}") for agent in agents if agent.get("label")
    ]
    return [*named, *((str(agent["sessionId"]), str(agent["status"])) for agent in agents)]


def _daemons(_line: _Line, _word: str) -> list[Offer]:
    from dsh.cli.daemons import home_folder
    from dsh.interfaces.control.client import find_daemons

    return [(str(each.entry.pid), str(each.entry.config)) for each in find_daemons(home_folder())]


def _running(line: _Line, word: str) -> list[Offer]:
    """A file, a daemon or an agent."""
    found = [*_agents(line, word), *_daemons(line, word)]
    return [each for each in found if each[0].startswith(word)] or [(FILES, "")]


def _sessions(line: _Line, _word: str) -> list[Offer]:
    from dsh.cli.stored_sessions import session_root
    from dsh.cordis.errors import HarnessError
    from dsh.sessions.stored import list_stored, title_of

    found = []
    for at, entry in enumerate(list_stored(session_root(line.options.get("root"))).sessions[:_MOST_SESSIONS]):
        title = ""
        if at < _MOST_TITLES:
            with suppress(OSError, HarnessError):
                title = title_of(entry) or ""
        found.append((entry.id, title))
    return found


def _plugins(line: _Line, _word: str) -> list[Offer]:
    from dsh.cli.plugin_facts import list_plugins

    known = list_plugins(_source(line))
    rows = [(row, each.name) for each in known for row in each.rows]
    return [*rows, *((each.name, each.about) for each in known)]


def _rows_and_keys(line: _Line, word: str) -> list[Offer]:
    keys = _config_keys(line)
    rows = {each.row: each.plugin or "" for each in keys}
    return [*rows.items(), *_named(keys)]


def _profiles(_line: _Line, _word: str) -> list[Offer]:
    folder = Path(__file__).parent / "profiles"
    return [(each.stem, "") for each in sorted(folder.glob("*.yml"))]


def _words(*texts: str) -> Callable[[_Line, str], list[Offer]]:
    return lambda _line, _word: [(text, "") for text in texts]


_VALUES: Final[dict[str, Callable[[_Line, str], Iterable[Offer]]]] = {
    "config get target": _rows_and_keys,
    "config set target": lambda line, _: _named(_config_keys(line)),
    "config unset target": lambda line, _: _named(_config_keys(line)),
    "config set value": lambda line, _: _allowed(_config_keys(line), line.args[0]),
    "config schema plugin": _plugins,
    "plugins info name": _plugins,
    "settings get key": lambda line, _: _named(_settings_keys(line)),
    "settings set key": lambda line, _: _named(_settings_keys(line)),
    "settings unset key": lambda line, _: _named(_settings_keys(line)),
    "settings set value": lambda line, _: _allowed(_settings_keys(line), line.args[0]),
    "attach agent": _agents,
    "send agent": _agents,
    "tail agent": _agents,
    "cancel agent": _agents,
    "stop daemon": _daemons,
    "inspect target": _running,
    "plugins graph target": _running,
    "run output": _words("text", "json", "stream-json"),
    "exec output": _words("text", "json", "stream-json"),
    "resume output": _words("text", "json", "stream-json"),
    "session": _sessions,
    "sessions": _sessions,
    "set_": _set_option,
    "profile": _profiles,
    "log_format": _words("text", "json"),
}
"""By command and parameter, or by parameter alone."""
