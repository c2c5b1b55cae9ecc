"""The logged request header (what, besides messages, defined a request) and the request context beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from dsh.cordis.jsonio import JsonObject, freeze_json, json_equal
from dsh.core.session_event import SessionError

HEADER_TYPES: Final = frozenset({"request/header", "request/header-delta"})
"""The event types that are, or once were, a request's header."""

_EMPTY_IS_ABSENT: Final = ("system", "tools", "adapterDefaults")
_ADAPTER_DEFAULTS: Final = frozenset({"reasoningEffort", "maxTokens"})


def canonical_header(header: JsonObject) -> JsonObject:
    """The frozen header with empty `system`, `tools` and `adapterDefaults` left out; itself when there are none."""
    empty = [key for key in _EMPTY_IS_ABSENT if key in header and not header[key]]
    if empty:
        header = {key: value for key, value in header.items() if key not in empty}
    return cast("JsonObject", freeze_json(header))


def headers_equal(a: JsonObject, b: JsonObject) -> bool:
    """True if two headers define the same request: config, default markers, system, and tools in order.

    Absent tools equal `[]`; an absent `stop` does not equal `[]`. Unknown keys do not count.
    """
    if a is b:
        return True
    return json_equal(a.get("config"), b.get("config")) and all(
        json_equal(a.get(key) or None, b.get(key) or None) for key in _EMPTY_IS_ABSENT
    )


def refuse_legacy_header(type_: str, data: Any, subject: str) -> None:
    """Refuse the two retired ways of logging a header; `subject` starts the message."""
    if type_ == "request/header-delta":
        raise SessionError(f"{subject} uses unsupported legacy request/header-delta format")
    if type_ == "request/header" and isinstance(data, Mapping) and data.get("reason") == "fallback":
        raise SessionError(f'{subject} uses unsupported legacy request/header reason "fallback"')


def check_header(data: Any, subject: str) -> None:
    """Check the data of an imported `request/header` event. Raises SessionError starting with `subject`."""
    header = data.get("header") if isinstance(data, Mapping) else None
    config = header.get("config") if isinstance(header, Mapping) else None
    if not isinstance(header, Mapping) or not isinstance(config, Mapping):
        raise SessionError(f"{subject} lacks provider/model")
    if not all(isinstance(config.get(key), str) and config[key] for key in ("provider", "model")):
        raise SessionError(f"{subject} lacks provider/model")
    if "reasoningEffort" in config and not (isinstance(config["reasoningEffort"], str) and config["reasoningEffort"]):
        raise SessionError(f"{subject} has an invalid reasoningEffort")
    if "adapterDefaults" in header:
        marks = header["adapterDefaults"]
        if not isinstance(marks, Mapping) or not all(
            key in _ADAPTER_DEFAULTS and value is True and key in config for key, value in marks.items()
        ):
            raise SessionError(f"{subject} has invalid adapterDefaults")


def logged_header(data: Any) -> JsonObject | None:
    """The header in the data of a `request/header` event, canonical and frozen."""
    header = data.get("header") if isinstance(data, dict) else None
    return canonical_header(header) if isinstance(header, dict) else None
