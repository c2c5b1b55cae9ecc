"""Typed, validated plugin configuration.

    class Config(ConfigModel):
        greeting: str = field("Hello", description="Word before the name", live=True)
        max_retries: int = field(3, min=0)

The file says `maxRetries`, the plugin reads `config.max_retries`. Reading a config collects every problem with its
path, suggests the nearest valid key for an unknown one, and never shows the value of a secret field.
"""

from __future__ import annotations

import copy
import inspect
import logging
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, Self, cast, get_type_hints

from .errors import CordisError, describe_error
from .fields import ConfigError as ConfigError
from .fields import FieldInfo as FieldInfo
from .fields import field as field
from .fields import foreign_issues, wire_value, with_checks
from .issues import BAD, MISSING, Keys, Walk
from .issues import ConfigIssue as ConfigIssue
from .jsonio import json_equal
from .nearest import meant, nearest
from .shapes import Checked, remedy, shape_of


class ConfigModel:
    """Base of typed configs: annotate attributes, optionally with `field(...)`. Instances are read-only.

    Supports str, int, float, bool, `T | None`, unions (tried in order), `Literal`, enums, `list`, `tuple`, `set`,
    `dict[str, T]`, nested models, paths, patterns, dates, `Any`, and `Annotated[T, ...]` with validators of the
    `schema` package, `field(...)` limits or predicates. Several models are combined by inheriting from all.
    """

    _own_names: ClassVar[frozenset[str]]

    def __init__(self, **values: Any) -> None:
        """Build from Python values by attribute name. Raises `ConfigError`."""
        known = self.fields()
        walk = Walk(strict=True)
        self._load({known[name].key if name in known else name: value for name, value in values.items()}, walk, ())
        if walk.issues:
            raise ConfigError(walk.issues, type(self).__name__)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        taken = [name for name in inspect.get_annotations(cls) if name in ConfigModel._own_names]
        if taken:
            raise TypeError(
                f"{cls.__qualname__}: {taken[0]!r} is a method of ConfigModel; name the field {taken[0]}_ instead"
            )
        if "<locals>" in cls.__qualname__:
            # Annotations written as text may name classes of the enclosing function: only its frame knows them.
            cls._local_names = dict(sys._getframe(1).f_locals)

    _local_names: ClassVar[Mapping[str, Any] | None] = None

    @classmethod
    def fields(cls) -> dict[str, FieldInfo]:
        """All fields by attribute name, base classes first. Raises `CordisError` for an annotation no one can read."""
        found: dict[str, FieldInfo] | None = cls.__dict__.get("_fields")
        if found is None:
            found = _collect_fields(cls)
            cls._fields = found  # type: ignore[attr-defined]
        return found

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """Draft-07 JSON schema of the config, metadata as `x-dsh-*`."""
        defs: dict[str, Any] = {}
        schema = cls.__config_schema__(defs)
        if defs:
            schema = {**schema, "definitions": defs}
        return {"$schema": "http://json-schema.org/draft-07/schema#", **schema}

    @classmethod
    def __config_schema__(cls, defs: dict[str, Any]) -> dict[str, Any]:
        if cls.__name__ in defs:  # a model inside itself
            return {"$ref": f"#/definitions/{cls.__name__}"}
        defs[cls.__name__] = None
        properties: dict[str, Any] = {}
        required: list[str] = []
        for info in cls.fields().values():
            properties[info.key] = info.shape.schema(defs)
            if info.required:
                required.append(info.key)
        schema: dict[str, Any] = {"type": "object", "properties": properties}
        if required:
            schema["required"] = required
        if cls.__doc__ and cls.__doc__ != ConfigModel.__doc__:
            schema["description"] = cls.__doc__.strip().split("\n\n")[0]
        if _refers_to(properties, f"#/definitions/{cls.__name__}"):
            defs[cls.__name__] = schema
            return {"$ref": f"#/definitions/{cls.__name__}"}
        del defs[cls.__name__]
        return schema

    @classmethod
    def validate(cls, raw: Any, *, where: str | None = None, strict: bool = False, **_: Any) -> Self:
        """Read a raw config (a mapping in file spelling; null is an empty one) into an instance.

        Unknown keys are listed in `warnings`; with `strict` they are errors. `where` names the source in messages.
        Raises `ConfigError` with all issues.
        """
        walk = Walk(strict=strict)
        result = cls.__read_config__(raw, walk, ())
        if walk.issues:
            raise ConfigError(walk.issues, where, walk.warnings)
        result.__dict__["_warnings"] = list(walk.warnings)
        return cast(Self, result)

    @classmethod
    def __read_config__(cls, raw: Any, walk: Walk, keys: Keys) -> Any:
        if isinstance(raw, cls):
            return raw
        instance = cls.__new__(cls)
        return instance if instance._load(raw, walk, keys) else BAD

    def _load(self, raw: Any, walk: Walk, keys: Keys) -> bool:
        known = self.fields()
        if isinstance(raw, ConfigModel):
            raw = raw.to_wire()
        if raw is None:
            raw = {}
        if not isinstance(raw, Mapping):
            first = min(known.values(), key=lambda info: not info.required, default=None)
            keyless = f"write its keys, such as {first.key}: …" if first and not isinstance(raw, (list, tuple)) else ""
            walk.fail(keys, "must be a mapping", raw, remedy=remedy("a mapping", raw) or keyless)
            return False
        before = len(walk.issues)
        values: dict[str, Any] = {}
        given: dict[str, Any] = {}
        for info in known.values():
            item = raw.get(info.key)
            at = (*keys, info.key)
            if item is None:
                value = info.make_default(walk, at)
                if value is MISSING:
                    walk.fail(at, f"required ({info.shape.words})")
                values[info.name] = value
                continue
            if info.deprecated:
                hint = f": {info.deprecated}" if isinstance(info.deprecated, str) else ""
                walk.warnings.append(ConfigIssue(at, f"deprecated{hint}"))
            values[info.name] = _read_field(info, item, walk, at)
            if info.shape.has_validators:
                given[info.name] = item
        self._note_unknown(raw, walk, keys)
        if len(walk.issues) > before:
            return False
        self.__dict__.update(values, _given=given, _warnings=[], _watchers=[])
        if walk.opaque is None:
            for path, message in self.cross_check():
                walk.fail((*keys, path) if path else keys, message)
        return len(walk.issues) == before

    def _note_unknown(self, raw: Mapping[Any, Any], walk: Walk, keys: Keys) -> None:
        known = [info.key for info in self.fields().values()]
        for key in raw:
            if key in known:
                continue
            near = nearest(str(key), known)  # also one that is set already: who sets a value misspells that one
            visible = [info.key for info in self.fields().values() if not info.hidden]
            near = near or _deeper(self.fields().values(), str(key))
            hint = meant(near)
            if near is None and 0 < len(visible) <= 12:
                hint = f" (known keys: {', '.join(visible)})"
            walk.warn((*keys, str(key)), f"unknown key{hint}", visible, near)

    def cross_check(self) -> Iterable[tuple[str, str]]:
        """Rules between fields, for subclasses: yield `(key, message)` for each one broken."""
        return ()

    def check_surroundings(self, base_dir: Path) -> Iterable[tuple[Keys, str]]:
        """What a config in a file of `base_dir` needs of the machine, for subclasses: yield `(keys, message)` for each
        thing that is not there. Asked by a check that starts nothing; a start finds out by itself."""
        return ()

    @property
    def warnings(self) -> list[tuple[str, str]]:
        """`(path, message)` of what was odd but accepted: unknown keys, deprecated fields."""
        return list(self.__dict__.get("_warnings", ()))

    def to_wire(self, *, redact: bool = False) -> dict[str, Any]:
        """The config as plain JSON data in file spelling. With `redact`, set secrets read `"***"`."""
        result: dict[str, Any] = {}
        for info in self.fields().values():
            value = getattr(self, info.name)
            if value is None:
                continue
            if redact:
                # Never from what was given: that is plain data, which does not know its secrets.
                value = REDACTED if info.secret else wire_value(value, lambda model: model.to_wire(redact=True))
            else:
                value = wire_value(self.__dict__["_given"].get(info.name, value))
            result[info.key] = value
        return result

    def simplify(self) -> dict[str, Any]:
        """`to_wire` without the values that equal their defaults: what is worth writing into a file."""
        result: dict[str, Any] = {}
        for info in self.fields().values():
            value = getattr(self, info.name)
            default = info.make_default(Walk(), ())
            if value is None or (default is not MISSING and default is not BAD and json_equal(value, default)):
                continue
            given = self.__dict__["_given"].get(info.name, value)
            result[info.key] = wire_value(given, lambda model: model.simplify())
        return result

    def changed(self, new: ConfigModel) -> frozenset[str]:
        """Attribute names whose value differs in `new`, a config of the same model."""
        names = set(self.fields()) | set(new.fields())
        return frozenset(name for name in names if not _same_field(self, new, name))

    def can_swap(self, new: ConfigModel) -> bool:
        """Whether every difference to `new` is in fields declared `live`, so that `swap` may apply it."""
        known = self.fields()
        for name in self.changed(new):
            info = known.get(name)
            if info is None:
                return False
            if info.live:
                continue
            old_value, new_value = getattr(self, name), getattr(new, name, None)
            nested = isinstance(old_value, ConfigModel) and isinstance(new_value, ConfigModel)
            if not nested or not old_value.can_swap(new_value):
                return False
        return True

    def swap(self, new: ConfigModel) -> frozenset[str]:
        """Take over the values of `new` in place and tell the watchers. Returns the changed attribute names."""
        changed = self.changed(new)
        for name in changed:
            old_value, new_value = getattr(self, name), getattr(new, name)
            if isinstance(old_value, ConfigModel) and isinstance(new_value, ConfigModel):
                old_value.swap(new_value)
            else:
                self.__dict__[name] = new_value
        self.__dict__["_given"] = new.__dict__.get("_given", {})
        self.__dict__["_warnings"] = new.warnings
        if changed:
            for watcher in list(self.__dict__["_watchers"]):
                try:
                    watcher()
                except Exception:
                    logging.getLogger("dsh.config").exception("a config watcher raised")
        return changed

    def watch(self, fn: Callable[[], object]) -> Callable[[], None]:
        """Call `fn()` after live values were swapped in. Returns the undo. A raising `fn` is logged."""
        watchers: list[Callable[[], object]] = self.__dict__["_watchers"]
        watchers.append(fn)

        def undo() -> None:
            # By identity: two equal callables are two registrations.
            for index, watcher in enumerate(watchers):
                if watcher is fn:
                    del watchers[index]
                    return

        return undo

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} is read-only: a config changes through its file")

    __delattr__ = __setattr__  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConfigModel) or set(self.fields()) != set(other.fields()):
            return NotImplemented
        return not self.changed(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown: list[str] = []
        for info in self.fields().values():
            value = getattr(self, info.name)
            shown.append(f"{info.name}={REDACTED if info.secret and value is not None else repr(value)}")
        return f"{type(self).__name__}({', '.join(shown)})"


ConfigModel._own_names = frozenset(name for name in vars(ConfigModel) if not name.startswith("__"))


_PLAIN: Final[dict[str, Any]] = {
    **{each.__name__: each for each in (str, int, float, bool)},
    **{f"{each.__name__} | None": each | None for each in (str, int, float, bool)},
    "list[str]": list[str],
}
"""Annotations that mean the same everywhere: most of them, and evaluating one takes a while."""


def _models(cls: type[ConfigModel]) -> list[type[ConfigModel]]:
    """The models that make up a model, base classes first."""
    return [base for base in reversed(cls.__mro__) if issubclass(base, ConfigModel) and base is not ConfigModel]


def _hints(cls: type[ConfigModel]) -> dict[str, Any]:
    """The types of all fields, those of base classes first."""
    found: dict[str, Any] = {}
    for base in _models(cls):
        written = inspect.get_annotations(base)
        plain = {name: _PLAIN[text] for name, text in written.items() if isinstance(text, str) and text in _PLAIN}
        rest = {name: value for name, value in written.items() if name not in plain}
        if rest:
            holder = type(base.__name__, (), {"__annotations__": rest, "__module__": base.__module__})
            plain |= get_type_hints(holder, localns=dict(cls._local_names or {}), include_extras=True)
        found |= {name: plain[name] for name in written}
    return found


def _collect_fields(cls: type[ConfigModel]) -> dict[str, FieldInfo]:
    try:
        hints = _hints(cls)
    except Exception as error:
        raise CordisError(
            "INVALID_CONFIG",
            f"{cls.__module__}.{cls.__qualname__}: an annotation cannot be evaluated ({describe_error(error)}); "
            "import what it names outside TYPE_CHECKING",
        ) from error
    fields: dict[str, FieldInfo] = {}
    for base in _models(cls):
        for name in inspect.get_annotations(base):
            if name.startswith("_") or getattr(hints[name], "__origin__", None) is ClassVar or hints[name] is ClassVar:
                continue
            declared = base.__dict__.get(name, MISSING)
            info = copy.copy(declared) if isinstance(declared, FieldInfo) else FieldInfo(default=declared)
            info.name = name
            info.key = info.key or _camel(name)
            try:
                info.shape = Checked(shape_of(hints[name], with_checks), [info])
            except TypeError as error:
                raise CordisError("INVALID_CONFIG", f"{cls.__module__}.{cls.__qualname__}.{name}: {error}") from None
            fields[name] = info
    return fields


def _camel(name: str) -> str:
    head, *rest = name.rstrip("_").split("_")
    return head + "".join(part[:1].upper() + part[1:] for part in rest)


def _deeper(fields: Iterable[FieldInfo], key: str) -> str | None:
    """The path of a key that exists, but inside one of the fields."""
    for info in fields:
        for name, path in info.shape.nested_keys():
            if nearest(key, [name]) == name and (len(key) > 2 or key == name):
                return f"{info.key}.{path}"
    return None


def _read_field(info: FieldInfo, item: Any, walk: Walk, at: Keys) -> Any:
    if walk.opaque is not None and walk.opaque(item):
        return item
    attempt = walk.fork()
    attempt.secret = walk.secret or info.secret
    value = info.shape.read(item, attempt, at)
    if info.loose and attempt.issues:
        default = info.make_default(walk, at)
        for issue in attempt.issues:
            walk.warnings.append(ConfigIssue(issue.keys, f"{issue.message}; the default is used"))
        return default
    walk.join(attempt)
    return value


def _same_field(old: ConfigModel, new: ConfigModel, name: str) -> bool:
    old_given, new_given = old.__dict__.get("_given", {}), new.__dict__.get("_given", {})
    if name in old_given and name in new_given:
        # A transformed value may not compare; what was written does.
        return json_equal(old_given[name], new_given[name])
    return json_equal(getattr(old, name, MISSING), getattr(new, name, MISSING))


REDACTED: Final = "***"


def _refers_to(schema: Any, ref: str) -> bool:
    if isinstance(schema, dict):
        return schema.get("$ref") == ref or any(_refers_to(item, ref) for item in schema.values())
    return isinstance(schema, list) and any(_refers_to(item, ref) for item in schema)


def validate_config(declared: Any, raw: Any, *, where: str | None = None) -> Any:
    """Validate `raw` by a plugin's `Config`: a `ConfigModel`, a `schema.Schema` or anything with `validate(data)`.

    `None` as declaration passes `raw` through. Raises `ConfigError`.
    """
    if declared is None:
        return raw
    if isinstance(declared, type) and issubclass(declared, ConfigModel):
        return declared.validate(raw, where=where)
    try:
        return declared.validate(raw)
    except ConfigError as error:
        raise ConfigError(error.issues, error.where or where, error.warnings) from error.__cause__
    except Exception as error:
        # The cause is left out on purpose: its message embeds the whole input, secrets included.
        raise ConfigError([ConfigIssue(*issue) for issue in foreign_issues(error, False)], where) from None


def inspect_config(
    declared: Any, raw: Any, opaque: Callable[[Any], bool]
) -> tuple[list[ConfigIssue], list[ConfigIssue]]:
    """Check a config that is not evaluated yet: values for which `opaque` is true are taken as they are.

    Returns `(issues, warnings)`. Declarations other than `ConfigModel` are not checked.
    """
    if not (isinstance(declared, type) and issubclass(declared, ConfigModel)) or opaque(raw):
        return [], []
    walk = Walk(opaque=opaque)
    declared.__read_config__(raw, walk, ())
    return walk.issues, walk.warnings
