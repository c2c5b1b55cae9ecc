"""Fields of a config model: what `field(...)` declares, and the checks an annotation may carry."""

from __future__ import annotations

import copy
import datetime
import enum
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field as data_field
from pathlib import Path
from typing import Any, Final, TypedDict, TypeVar, Unpack, overload

from .errors import CordisError, describe_error
from .issues import BAD, MISSING, Keys, Walk
from .records import struct
from .shapes import Checked, Choice, Shape

T = TypeVar("T")

CREDENTIAL_NAME: Final = "credential-name"
"""Role of a field that names a credential."""


class ConfigError(CordisError):
    """A config that cannot be used. `issues` are `(path, message)` pairs, all of them; `where` names the source."""

    code = "INVALID_CONFIG"

    def __init__(
        self,
        issues: Iterable[tuple[str, str]],
        where: str | None = None,
        warnings: Iterable[tuple[str, str]] = (),
    ) -> None:
        self.issues: list[tuple[str, str]] = list(issues)
        self.warnings: list[tuple[str, str]] = list(warnings)
        self.where = where
        lines = [f"{path}: {message}" if path else message for path, message in self.issues]
        prefix = f"{where}: " if where else ""
        super().__init__("INVALID_CONFIG", "\n".join(prefix + line for line in lines))

    def __reduce__(self) -> tuple[Any, ...]:
        plain = [tuple(issue) for issue in self.issues], self.where, [tuple(warning) for warning in self.warnings]
        return ConfigError, plain


@struct
class FieldInfo:
    """What a field of a config model declares. `key` is the name in the file, `name` the Python attribute."""

    default: Any = MISSING
    default_factory: Callable[[], Any] | None = None
    min: float | None = None
    max: float | None = None
    step: float | None = None
    pattern: str | None = None
    choices: tuple[Any, ...] | None = None
    unit: str | None = None
    role: str | None = None
    secret: bool = False
    live: bool = False
    deprecated: bool | str = False
    hidden: bool = False
    loose: bool = False
    description: str | None = None
    key: str = ""
    name: str = ""
    shape: Shape = data_field(default_factory=Shape)

    def __copy__(self) -> FieldInfo:
        made = object.__new__(FieldInfo)
        for name in FieldInfo.__slots__:  # type: ignore[attr-defined]
            setattr(made, name, getattr(self, name))
        return made

    @property
    def required(self) -> bool:
        """Whether the file must give the field."""
        return self.default is MISSING and self.default_factory is None and self.shape.default(Walk(), ()) is MISSING

    def make_default(self, walk: Walk, keys: Keys) -> Any:
        """A fresh default; `MISSING` if there is none."""
        if self.default_factory is not None:
            return self.default_factory()
        if self.default is not MISSING:
            return copy.deepcopy(self.default)
        return self.shape.default(walk, keys)

    # A FieldInfo is also a check on a value: it enforces the limits it declares.

    def check(self, value: Any, walk: Walk, keys: Keys) -> Any:
        """Note an issue and return `BAD` if `value` is outside the declared limits."""
        size, low, high, noun = value, "must be ≥", "must be ≤", f" {self.unit}" if self.unit else ""
        if hasattr(value, "__len__"):
            size, low, high = len(value), "must have at least", "must have at most"
            noun = " characters" if isinstance(value, str) else " items"
        if isinstance(size, (int, float)) and not isinstance(size, bool):
            got = value if size is value else MISSING
            if self.min is not None and size < self.min:
                return walk.fail(keys, f"{low} {_number(self.min)}{noun}", got, (f"≥ {_number(self.min)}",))
            if self.max is not None and size > self.max:
                return walk.fail(keys, f"{high} {_number(self.max)}{noun}", got, (f"≤ {_number(self.max)}",))
        if self.pattern is not None and isinstance(value, str) and re.search(self.pattern, value) is None:
            if self.role == CREDENTIAL_NAME:  # what stands in its place is likely to be the key itself: never shown
                example = f", such as {self.default}" if isinstance(self.default, str) and self.default else ""
                remedy = "store the key with `dsh credentials set NAME`"
                return walk.fail(keys, f"must be the name of a credential{example}, never the key itself; {remedy}")
            return walk.fail(keys, f"must match {self.pattern}", value, (self.pattern,))
        if self.choices is not None:
            return Choice(self.choices).read(value, walk, keys)
        return value

    def extend_schema(self, schema: dict[str, Any]) -> None:
        """Add the limits and the metadata to a JSON schema."""
        kinds = {str(option.get("type")) for option in schema.get("anyOf", [schema])}
        low, high = next(
            (words for kind, words in _SIZES.items() if kind in kinds),  # of several kinds, the sized one is meant
            ("minimum", "maximum"),
        )
        named = {low: self.min, high: self.max, "pattern": self.pattern, "description": self.description}
        schema.update({name: value for name, value in named.items() if value is not None})
        if self.choices is not None:
            schema["enum"] = list(self.choices)
        default = self.default if self.default_factory is None else self.default_factory()
        if default is not MISSING and not self.secret and (self.default_factory is None or _is_container(default)):
            schema["default"] = wire_value(default)
        for name in ("step", "unit", "role", "secret", "live", "deprecated", "hidden"):
            value = getattr(self, name)
            if value is not None and value is not False:
                schema[f"x-dsh-{name}"] = value


_SIZES: Final = {"string": ("minLength", "maxLength"), "array": ("minItems", "maxItems")}


def _is_container(value: Any) -> bool:
    """Whether a default that is made anew each time is the same each time; a number is one of this machine."""
    return isinstance(value, (list, tuple, set, Mapping)) or hasattr(value, "__read_config__")


def _number(value: float) -> str:
    return f"{value:g}" if isinstance(value, float) and abs(value) < 1e6 else str(value)


class FieldOptions(TypedDict, total=False):
    """What `field` may say besides the default; see there."""

    min: float | None
    max: float | None
    step: float | None
    pattern: str | None
    choices: Iterable[Any] | None
    unit: str | None
    role: str | None
    secret: bool
    live: bool
    deprecated: bool | str
    hidden: bool
    loose: bool
    description: str | None
    key: str | None


@overload
def field(default: T, **options: Unpack[FieldOptions]) -> T: ...
@overload
def field(*, default_factory: Callable[[], T], **options: Unpack[FieldOptions]) -> T: ...
@overload
def field(**options: Unpack[FieldOptions]) -> Any: ...
def field(default: Any = MISSING, **options: Any) -> Any:
    """Declare a field of a `ConfigModel`.

    `min`/`max` bound a number, or the length of text and lists. `pattern` is searched for in text. `choices` lists
    the allowed values. `live=True`: a change applies in place, without a restart. `secret=True` (or
    `role="secret"`): the value never appears in messages or `repr`. `loose=True`: a bad value falls back to the
    default. `key` is the name in the file (default: the attribute in camelCase). `unit`, `step`, `role`, `hidden`,
    `deprecated`, `description` are for documentation; a deprecated field that is set gives a warning.
    Without `default` or `default_factory` the field is required, except that lists, mappings, nested models and
    optional fields start empty.
    """
    choices = options.pop("choices", None)
    options["key"] = options.get("key") or ""
    options["secret"] = bool(options.get("secret")) or options.get("role") == "secret"
    return FieldInfo(default=default, choices=None if choices is None else tuple(choices), **options)


def wire_value(value: Any, of_model: Callable[[Any], Any] = lambda model: model.to_wire()) -> Any:
    """A typed config value as plain JSON data; `of_model` says what nested models become."""
    if hasattr(value, "__read_config__"):
        return of_model(value)
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): wire_value(item, of_model) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [wire_value(item, of_model) for item in value]
    if isinstance(value, re.Pattern):
        return value.pattern
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, datetime.date):
        return value.isoformat()
    return value


class _Validator:
    """One extra of an `Annotated`: an object with `validate(data)`, or a predicate."""

    def __init__(self, check: Any) -> None:
        self.validator = check if hasattr(check, "validate") else None
        self.predicate = None if hasattr(check, "validate") else check

    def check(self, value: Any, walk: Walk, keys: Keys) -> Any:
        try:
            if self.validator is not None:
                return self.validator.validate(value)
            if self.predicate(value):  # type: ignore[misc]
                return value
            reason = f"refused by {getattr(self.predicate, '__name__', 'its validator')}"
        except Exception as error:
            for path, message in foreign_issues(error, walk.secret):
                walk.fail((*keys, *path), message)
            return BAD
        return walk.fail(keys, reason, value)

    def extend_schema(self, schema: dict[str, Any]) -> None:
        pattern = getattr(self.validator, "pattern_str", None)
        if isinstance(pattern, str):
            schema["pattern"] = pattern


def with_checks(inner: Shape, extras: Iterable[Any]) -> Shape:
    """The shape of an `Annotated`: limits, validators and predicates on top of its type."""
    checks: list[Any] = []
    transforms = False
    for extra in extras:
        if isinstance(extra, FieldInfo):
            checks.append(extra)
        elif hasattr(extra, "validate") or (callable(extra) and not isinstance(extra, type)):
            checks.append(_Validator(extra))
            transforms = True
    return Checked(inner, checks, transforms) if checks else inner


_KEY_LINE = re.compile(r"Key (?:'(\w[^']*)'|(\d+)) error:")
_REASONS: Final = (
    (re.compile(r"^.* should be instance of '?(\w+)'?$", re.S), r"should be of type \1"),
    (re.compile(r"^(\w+)\(.*\) should evaluate to True$", re.S), r"refused by \1"),
    (re.compile(r"^Missing keys?: (.*)$", re.S), r"missing key \1"),
    (re.compile(r"^Wrong keys? (.*?) in .*$", re.S), r"unknown key \1"),
    (re.compile(r"^.* does not match ('.*'|\".*\"|-?[\w.]+)$", re.S), r"does not match \1"),
    (re.compile(r"^(\w+)\(.*\) raised (\w+)\(.*$", re.S), r"\1 refused it (\2)"),
)


def foreign_issues(error: Exception, secret: bool) -> list[tuple[Keys, str]]:
    """The key path and the reason of a foreign validator's error, without the input it embeds."""
    if isinstance(error, ConfigError):
        return [(getattr(issue, "keys", (issue[0],)), issue[1]) for issue in error.issues]
    autos = [text for text in getattr(error, "autos", ()) if isinstance(text, str)]
    if not autos and not hasattr(error, "errors"):
        return [((), f"refused ({type(error).__name__})" if secret else describe_error(error))]
    keys: list[str | int] = []
    reason = ""
    for text in autos:
        match = _KEY_LINE.match(text)
        if match:
            keys.append(match[1] or int(match[2]))
            continue
        reason = next((shape.sub(words, text) for shape, words in _REASONS if shape.match(text)), reason)
    said = [text for text in getattr(error, "errors", ()) if isinstance(text, str)]
    return [(tuple(keys), (said[-1] if said and not secret else "") or reason or "is not valid")]
