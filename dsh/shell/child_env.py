"""The environment of a child process: the harness's own without secrets, then what the caller asks for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_SECRET = re.compile(rb"KEY|PASSWORD|SECRET|TOKEN", re.IGNORECASE)
_OWN = b"DSH_"
_LONE_SURROGATES = re.compile("[\ud800-\udfff]")


def scrub(environment: Mapping[bytes, bytes], extra: Iterable[re.Pattern[bytes]] = ()) -> dict[bytes, bytes]:
    """`environment` without variables whose name says secret, matches one of `extra`, or is the harness's own."""
    patterns = (_SECRET, *extra)
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith(_OWN) and not any(pattern.search(name) for pattern in patterns)
    }


def merge(base: dict[bytes, bytes], overrides: Mapping[str, str | None] | None) -> dict[bytes, bytes]:
    """`base` with `overrides` on top; None takes a name away. Raises `ValueError` for what no system takes."""
    if not overrides:
        return base
    merged = dict(base)
    for name, value in overrides.items():
        if not name or "=" in name or "\0" in name or (value is not None and "\0" in value):
            raise ValueError(f"environment variable {name!r} cannot be set: empty name, `=` or NUL")
        if value is None:
            merged.pop(os_bytes(name), None)
        else:
            merged[os_bytes(name)] = os_bytes(value)
    return merged


def os_bytes(text: str) -> bytes:
    """Text as the operating system takes it: UTF-8, surrogate escapes turned back, other lone surrogates U+FFFD."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return _LONE_SURROGATES.sub("\ufffd", text).encode()
