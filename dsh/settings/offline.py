"""The settings document without a running daemon: what `dsh settings` reads, checks and writes.

Nobody has registered a section here, so the schemas of built-in sections are found by an explicit table. A running
daemon picks a write up by its watcher.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from dsh.cordis import ConfigError, ConfigModel
from dsh.cordis.issues import ConfigIssue, path_text
from dsh.cordis.jsonio import JsonObject, encode_str, snapshot_json, thaw
from dsh.cordis.nearest import meant, nearest
from dsh.cordis.records import record
from dsh.loader.home import Home
from dsh.loader.row_checks import SECRET_KEY
from dsh.loader.yamlio import Mark, find_mark
from dsh.settings.document import Document, DocumentError, document_path
from dsh.settings.file import DEFAULT_FILE, checked_sections, sections_of, with_section
from dsh.settings.keys import KeyInfo, keys_of
from dsh.settings.sections import (
    NAMESPACE,
    Redactor,
    SettingsError,
    check_data,
    layered,
    operated,
    refuse_unknown,
)

SECTIONS: dict[str, str] = {
    "agent-loop": "dsh.core.agent_loop:LoopSettings",
    "agent-default-model": "dsh.models.default_model:Selection",
    "llm-deepseek": "dsh.models.deepseek:Config",
    "shell": "dsh.shell.bash:Config",
    "console": "dsh.interfaces.console:Display",
}
"""Section name -> `module:attribute` of its schema (a `ConfigModel`)."""


_LONGEST_DEFAULT = 40
"""Characters of a default that the template shows."""

RowPlace = Callable[[str, Sequence[str]], str | None]
"""Section and path to the file and line where a row says the value."""


@record
class SettingValue:
    """One value in force: `key` is dotted, `layer` says where it comes from (`user`, `row` or `default`).

    `value` is None for a setting that is not set and has no default; `place` is the file and line that say it.
    """

    key: str
    value: Any
    layer: str
    place: str | None = None


def schema_of(ns: str) -> type[ConfigModel] | None:
    """The schema of a built-in section, None for a section this installation does not know."""
    place = SECTIONS.get(ns)
    if place is None:
        return None
    module, _, attribute = place.partition(":")
    found = getattr(import_module(module), attribute)
    assert isinstance(found, type) and issubclass(found, ConfigModel)
    return found


def known_keys() -> list[KeyInfo]:
    """The keys of the built-in sections, as their schemas declare them."""
    return [each for ns in SECTIONS for each in keys_of(schema_of(ns), ns)]


def validate_offline(
    ns: str, section: Mapping[str, Any], base: Mapping[str, Any] | None = None, edits: Sequence[JsonObject] = ()
) -> list[str]:
    """Check a user section as the daemon would; `base` is the row's config where it is known.

    `edits` are those that made it: with `known` they may set no unknown key. Returns warnings (unknown keys, an
    unknown section). Raises SettingsError with every reason.
    """
    if not NAMESPACE.fullmatch(ns):
        raise SettingsError(f'settings section "{ns}": the name must match [a-z][a-z0-9-]*', "SETTINGS_INVALID")
    schema = schema_of(ns)
    if schema is None:
        near = nearest(ns, SECTIONS)
        hint = meant(near) if near else f" (built-in: {', '.join(sorted(SECTIONS))})"
        return [f"section {ns} is not a built-in one and is stored unchecked{hint}"]
    issues, warnings = _issues(schema, section, base)
    if issues:
        problems = "; ".join(f"{ns}.{path}: {text}" if path else text for path, text in issues)
        raise SettingsError(f'settings section "{ns}" is refused: {problems}', "SETTINGS_INVALID")
    refuse_unknown(ns, edits, warnings)
    return [f"{ns}.{path}: {text}" for path, text in warnings]


def _issues(
    schema: type[ConfigModel], section: Mapping[str, Any], base: Mapping[str, Any] | None
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """What is wrong with a user section, and what is odd; `base` is the row's config where it is known."""
    try:
        issues: list[tuple[str, str]] = []
        warnings = schema.validate(layered(base or {}, section)).warnings
    except ConfigError as error:
        issues, warnings = error.issues, error.warnings
    # The row has keys that are none of the section, and may lack none.
    own = [each for each in issues if base is not None or not _missing(section, each[0])]
    return own, [each for each in warnings if not _missing(section, each[0])]


def _missing(section: Mapping[str, Any], path: str) -> bool:
    """Whether the section says nothing at `path`: what is required there may stand in the row."""
    at: Any = section
    for key in path.split("."):
        if not isinstance(at, Mapping) or key not in at:
            return True
        at = at[key]
    return False


class OfflineSettings:
    """The document of one home folder. Every call reads it anew; writes hold its lock."""

    def __init__(self, home: Home, path: str | None = None) -> None:
        self.path: Path = document_path(home, path, DEFAULT_FILE)
        self._document = Document(self.path, home)

    @property
    def shown(self) -> str:
        """The path as a message may print it."""
        return self._document.shown

    def sections(self) -> dict[str, JsonObject]:
        """The user's sections. Raises DocumentError."""
        return sections_of(self._document, self._document.read())

    def values(
        self, bases: Mapping[str, Mapping[str, Any]] | None = None, row_place: RowPlace | None = None
    ) -> list[SettingValue]:
        """Every value of the built-in and the stored sections with its layer; `bases` holds row configs by section,
        `row_place` tells where a row says a value."""
        marked = self._document.parse(self._document.read())
        stored, bases = checked_sections(self._document, marked), bases or {}
        found: list[SettingValue] = []
        for ns in dict.fromkeys([*SECTIONS, *stored]):
            user, row = stored.get(ns, {}), bases.get(ns, {})
            merged = layered(row, user)
            schema = schema_of(ns)
            if schema is not None:
                try:
                    merged = schema.validate(merged).to_wire(redact=True)
                except ConfigError:  # shown as it is stored; `dsh settings set` says what is wrong
                    merged = Redactor(schema.json_schema()).cut(merged)
            leaves = dict(_leaves(merged))
            for key in keys_of(schema, ns) if schema is not None else ():
                path = tuple(key.path.split("."))
                if key.is_place and not key.hidden and not any(each[: len(path)] == path for each in leaves):
                    leaves[path] = None
            for path, value in leaves.items():
                layer, place = "default", None
                if _has(user, path):
                    layer, place = "user", self._place(find_mark(marked, [ns, *path]))
                elif _has(row, path):
                    layer, place = "row", row_place(ns, path) if row_place is not None else None
                found.append(SettingValue(".".join((ns, *path)), value, layer, place))
        return found

    def _place(self, mark: Mark | None) -> str:
        return self.shown if mark is None else f"{self.shown}:{mark.line}"

    # -- the whole text ----------------------------------------------------------------------------------------------

    def text(self) -> str | None:
        """The document as it is, None when there is none. Raises DocumentError."""
        return self._document.read()

    def template(self) -> str:
        """A document that sets nothing and tells what it may set, for one that is not there yet."""
        lines = ["# Your settings: over every composition, live in running ones. Take the mark off what you set.", "#"]
        for ns in SECTIONS:
            lines.append(f"# {ns}:")
            for key in known_keys():
                if key.row == ns and key.is_place and "." not in key.path and not key.secret and not key.hidden:
                    default = "" if key.default is None else encode_str(snapshot_json(key.default))
                    default = default if len(default) <= _LONGEST_DEFAULT else ""
                    lines.append(f"#   {f'{key.path}: {default}'.rstrip():<34}  # {key.description}")
        return "\n".join(lines) + "\n"

    def check(self, text: str, bases: Mapping[str, Mapping[str, Any]] | None = None) -> tuple[list[str], list[str]]:
        """What keeps a text from being the document, and what is odd in it, each with its line."""
        try:
            marked = self._document.parse(text)
            sections = checked_sections(self._document, marked)
        except DocumentError as error:
            return [str(error)], []
        problems: list[str] = []
        warnings: list[str] = []

        def told(ns: str, issue: tuple[str, str]) -> str:
            keys = [ns, *getattr(issue, "keys", ())]
            return f"{self._place(find_mark(marked, keys))}: {path_text(tuple(keys))}: {issue[1]}"

        for ns, section in sections.items():
            schema = schema_of(ns)
            if schema is None:
                near = meant(nearest(ns, SECTIONS))
                warnings.append(told(ns, ("", f"no built-in section is called so, it is kept unchecked{near}")))
                continue
            wrong, odd = _issues(schema, section, (bases or {}).get(ns))
            for path, value in _leaves(section):
                if path and isinstance(value, str) and SECRET_KEY.search(path[-1]):
                    text = "a secret does not belong into settings; `dsh credentials set NAME` stores it"
                    warnings.append(told(ns, ConfigIssue(path, text)))
            problems += [told(ns, each) for each in wrong]
            warnings += [told(ns, each) for each in odd]
        return problems, warnings

    def replace(self, before: str | None, text: str) -> None:
        """Make `text` the document if it still is `before`. Raises SettingsError, DocumentError, LockTimeoutError."""
        with self._document.lock():
            if self._document.read() != before:
                raise SettingsError(f"{self.shown} was changed by somebody else meanwhile", "SETTINGS_CONFLICT")
            self._document.write(text)

    # -- single values -----------------------------------------------------------------------------------------------

    def get(self, key: str) -> Any:
        """The user's value under a dotted key, None if there is none. Raises DocumentError, SettingsError."""
        ns, path = split_key(key)
        at: Any = self.sections().get(ns)
        for part in path:
            at = at.get(part) if isinstance(at, Mapping) else None
        return thaw(at)

    def set(self, key: str, value: Any, *, known_only: bool = True) -> list[str]:
        """Store a value under a dotted key; returns warnings. A refused value changes no byte.

        known_only: refuse a key that its section does not have; a section that is not built in takes any. Raises
        SettingsError, DocumentError, LockTimeoutError.
        """
        return self._change(key, {"op": "set", "value": value, "known": known_only})

    def unset(self, key: str) -> list[str]:
        """Forget the user's value under a dotted key; what is not there is no error."""
        return self._change(key, {"op": "unset"})

    def _change(self, key: str, operation: JsonObject) -> list[str]:
        ns, path = split_key(key)
        operation = check_data(ns, {**operation, "path": list(path)}, "the value")
        if not path and operation["op"] == "set" and not isinstance(operation["value"], dict):
            raise SettingsError(f'settings "{ns}": name a key of the section, as in {ns}.key', "SETTINGS_INVALID")
        before = self._document.read()
        after, warnings = self._edited(before, ns, operation)
        # Looking at it takes long on a busy machine; who waits for the lock shall wait for the writing alone.
        if after is not None:
            with self._document.lock():
                text = self._document.read()
                if text != before:
                    after, warnings = self._edited(text, ns, operation)
                if after is not None:
                    self._document.write(after)
        return warnings

    def _edited(self, text: str | None, ns: str, operation: JsonObject) -> tuple[str | None, list[str]]:
        """The document's text after an edit of one section, None if that changes nothing, and warnings."""
        sections = sections_of(self._document, text)
        section = operated(sections.get(ns, {}), [operation])
        # Taking something away must work even when what remains is refused.
        warnings = [] if operation["op"] == "unset" else validate_offline(ns, section, edits=[operation])
        intended = with_section(sections, ns, section)
        return (None if intended == sections else self._document.edited(text, intended)), warnings


def split_key(key: str) -> tuple[str, Sequence[str]]:
    """A dotted key as section and path. Raises SettingsError."""
    ns, *path = key.split(".")
    if not NAMESPACE.fullmatch(ns) or not all(path):
        raise SettingsError(
            f'settings key "{key}": write section.key, as in agent-loop.maxParallelToolCalls', "SETTINGS_INVALID"
        )
    return ns, path


def _leaves(value: Any, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    if not isinstance(value, Mapping) or (path and not value):
        return [(path, thaw(value))]
    return [leaf for key, item in value.items() for leaf in _leaves(item, (*path, key))]


def _has(value: Any, path: Sequence[str]) -> bool:
    for key in path:
        if not isinstance(value, Mapping) or key not in value:
            return False
        value = value[key]
    return True
