"""Settings and config keys as one lists and completes them: names, current values, what may stand there."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dsh.cordis import HarnessError

from .commands import Suggestion
from .front import SettingLine

if TYPE_CHECKING:
    from dsh.loader.tree import Loader
    from dsh.settings.keys import KeyInfo


class ValueTextError(HarnessError):
    """Text that is no value."""

    code = "VALUE"


def value_of(text: str) -> Any:
    """The value that a text stands for, written as in a composition. Raises ValueTextError."""
    from dsh.loader.yamlio import YamlError, detach, parse_value

    try:
        return detach(parse_value(text))
    except YamlError as error:
        quoted = json.dumps(text.strip(), ensure_ascii=False)
        raise ValueTextError(f"{text.strip()}: {error.reason}; a text like this needs quotes: {quoted}") from None


def shown(value: Any) -> str:
    """A value as a person reads it."""
    if isinstance(value, str):
        return value
    from dsh.cordis.jsonio import encode_str, snapshot_json

    return encode_str(snapshot_json(value))


# -- completion -------------------------------------------------------------------------------------------------------


def setting_keys(known: Sequence[SettingLine]) -> list[Suggestion]:
    """Every key with its value now and what it means."""
    return [Suggestion(each.key, f"{_short(each.value)}  {each.about}".strip()) for each in known]


def setting_values(known: Sequence[SettingLine], key: str) -> Iterable[Suggestion]:
    """What a key is now, and what else it may be, as far as that can be listed."""
    found = next((each for each in known if each.key == key), None)
    if found is None:
        return
    if found.value is not None and not isinstance(found.value, Mapping):
        yield Suggestion(shown(found.value), "now")
    for value in found.allowed:
        if value != found.value:
            yield Suggestion(shown(value))


def _short(value: Any) -> str:
    text = "" if value is None else shown(value)
    return text if len(text) <= 30 else text[:29] + "…"


# -- lines ------------------------------------------------------------------------------------------------------------


def lines_of(
    section: str,
    infos: Sequence[KeyInfo],
    value: Mapping[str, Any],
    layers: Sequence[tuple[str, Mapping[str, Any]]] = (),
) -> Iterator[SettingLine]:
    """The keys of a section or row: those that are declared, and those that have a value all the same.

    ``layers``: who says what, the strongest first.
    """
    places = {tuple(info.path.split(".")): info for info in infos if info.is_place and not info.hidden}
    above = {path[:length] for path in places for length in range(1, len(path))}
    given = [path for path in _leaves(value, ()) if path not in places and path not in above]
    for path in [*(path for path in places if path not in above), *given]:
        info = places.get(path)
        found = _at(value, path)
        if found is None and info is not None:
            found = info.default
        layer = next((name for name, one in layers if _at(one, path) is not None), "default")
        about = "" if info is None else " ".join(filter(None, (info.description, info.bounds and f"({info.bounds})")))
        yield SettingLine(".".join((section, *path)), found, layer, about, () if info is None else info.allowed)


def config_lines(loader: Loader) -> list[SettingLine]:
    """The keys of the rows of a running composition."""
    from dsh.settings.keys import keys_of

    found: list[SettingLine] = []
    for entry in loader.entries():
        fiber = entry.fiber if entry.is_mounted else None
        if fiber is None:
            continue
        config, raw = fiber.config, fiber.raw_config
        value = config.to_wire(redact=True) if hasattr(config, "to_wire") else {}
        layers = [("file", raw)] if isinstance(raw, Mapping) else []
        found += lines_of(entry.address, keys_of(type(config)), value, layers)
    return found


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if not isinstance(value, Mapping) or (path and not value):
        yield path
        return
    for key, item in value.items():
        yield from _leaves(item, (*path, str(key)))


def _at(value: Any, path: Sequence[str]) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
