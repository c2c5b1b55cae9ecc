"""Settings and config keys as one completes them: names, current values, what a schema allows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dsh.cordis import HarnessError

from .commands import Suggestion
from .front import SettingLine

if TYPE_CHECKING:
    from dsh.loader.tree import Loader


class ValueTextError(HarnessError):
    """Text that is no value."""

    code = "VALUE"


def value_of(text: str) -> Any:
    """The value that a text stands for, written as in a composition. Raises ValueTextError."""
    from dsh.loader.yamlio import YamlError, detach, parse_yaml

    try:
        return detach(parse_yaml(text.strip(), file="value"))
    except YamlError as error:
        raise ValueTextError(f"{text.strip()}: {error.reason}") from None


def setting_keys(known: Sequence[SettingLine]) -> list[Suggestion]:
    """Every key with its value now and what it means."""
    return [Suggestion(each.key, _about(each)) for each in known]


def setting_values(known: Sequence[SettingLine], key: str) -> Iterable[Suggestion]:
    """What a key may be set to, as far as its schema lists that, and what it is now."""
    from .builtin_commands import shown

    found = next((each for each in known if each.key == key), None)
    if found is None:
        return
    schema = found.schema or {}
    allowed: list[Any] = list(schema.get("enum", ()))
    if schema.get("type") == "boolean" or isinstance(found.value, bool):
        allowed = [True, False]
    offered = [found.value, *(each for each in allowed if each != found.value)]
    for value in offered:
        if value is not None and not isinstance(value, Mapping):
            yield Suggestion(shown(value), "now" if value is found.value else "")


def leaves(
    section: str, value: Mapping[str, Any], schema: Mapping[str, Any], layers: Sequence[tuple[str, Mapping[str, Any]]]
) -> Iterator[SettingLine]:
    """The keys of a section's or row's value, and those that its schema knows beyond. ``layers``: who says what, the
    strongest first."""
    for path, found, part in _walk(value, schema, ()):
        layer = next((name for name, given in layers if _has(given, path)), "default")
        yield SettingLine(".".join((section, *path)), found, layer, part)


def _walk(value: Any, schema: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    properties: Mapping[str, Any] = schema.get("properties") or {}
    if path and not isinstance(value, Mapping) and not properties:
        yield path, value, schema
        return
    given: Mapping[str, Any] = value if isinstance(value, Mapping) else {}
    if path and not given and not properties:
        yield path, value, schema
        return
    for key in dict.fromkeys([*properties, *given]):
        part = properties.get(key)
        part = part if isinstance(part, Mapping) else {}
        default = part.get("default")
        yield from _walk(given.get(key, default), part, (*path, str(key)))


def _has(value: Any, path: Sequence[str]) -> bool:
    for key in path:
        if not isinstance(value, Mapping) or key not in value:
            return False
        value = value[key]
    return True


def _about(line: SettingLine) -> str:
    from .builtin_commands import shown

    about = str((line.schema or {}).get("description", ""))
    value = "" if line.value is None else shown(line.value)
    return f"{value if len(value) <= 30 else value[:29] + '…'}  {about}".strip()


def config_keys(loader: Loader) -> list[SettingLine]:
    """The keys of the rows of a running composition: what their files say, and what their plugins' schemas know."""
    found: list[SettingLine] = []
    for entry in loader.entries():
        fiber = entry.fiber if entry.is_mounted else None
        config = fiber.config if fiber is not None else None
        model = type(config) if config is not None and hasattr(type(config), "json_schema") else None
        schema = model.json_schema() if model is not None else {}
        value = config.to_wire(redact=True) if model is not None and config is not None else {}
        raw = fiber.raw_config if fiber is not None else None
        layers = [("file", raw)] if isinstance(raw, Mapping) else []
        found += leaves(entry.id, value, schema, layers)
    return found
