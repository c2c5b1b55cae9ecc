"""What was noted while a config was read: problems and oddities, each with the path of its value."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Any, Final, TypeAlias

from .nearest import meant
from .records import identity_struct

Keys: TypeAlias = tuple[str | int, ...]

BAD: Final = object()
"""What a shape returns after it noted an issue."""
MISSING: Final = object()
_PLAIN_KEY = re.compile(r"[A-Za-z_$@/][\w$@/.-]*")


def path_text(keys: Keys) -> str:
    """`("agents", 0, "maxTokens")` as `agents[0].maxTokens`."""
    text = ""
    for key in keys:
        if isinstance(key, int):
            text += f"[{key}]"
        elif _PLAIN_KEY.fullmatch(key) and "." not in key:
            text += f".{key}" if text else key
        else:
            text += f'["{key}"]'
    return text


class ConfigIssue(tuple[str, str]):
    """One problem: the pair `(path, message)`, with the parts a front end may want to show on their own."""

    keys: Keys
    allowed: tuple[str, ...]
    nearest: str | None

    def __new__(cls, keys: Keys, message: str, allowed: Iterable[str] = (), nearest: str | None = None) -> ConfigIssue:
        issue = super().__new__(cls, (path_text(keys), message))
        issue.keys = keys
        issue.allowed = tuple(allowed)
        issue.nearest = nearest
        return issue

    @property
    def path(self) -> str:
        """Where the value stands, e.g. `agents[0].maxTokens`; empty for the config itself."""
        return self[0]

    @property
    def message(self) -> str:
        """What is wrong and what would be right."""
        return self[1]


@identity_struct
class Walk:
    """The notes taken while one config is read."""

    strict: bool = False
    opaque: Callable[[Any], bool] | None = None
    secret: bool = False
    issues: list[ConfigIssue] = field(default_factory=list)
    warnings: list[ConfigIssue] = field(default_factory=list)

    def fork(self) -> Walk:
        """Notes for one attempt that may be thrown away."""
        return Walk(self.strict, self.opaque, self.secret)

    def join(self, other: Walk) -> None:
        """Keep what an attempt noted."""
        self.issues += other.issues
        self.warnings += other.warnings

    def fail(
        self,
        keys: Keys,
        message: str,
        got: Any = MISSING,
        allowed: Iterable[str] = (),
        near: str | None = None,
        remedy: str = "",
    ) -> Any:
        """Note an issue; the offending value is shown unless it is secret. Returns `BAD`."""
        if got is not MISSING and not self.secret:
            message += f", got {show(got)}"
        message += f" ({remedy})" if remedy else ""
        if not self.secret:
            message += meant(near)
        self.issues.append(ConfigIssue(keys, message, allowed, near))
        return BAD

    def warn(self, keys: Keys, message: str, allowed: Iterable[str] = (), near: str | None = None) -> None:
        """Note something that does not refuse the config (unless `strict`)."""
        (self.issues if self.strict else self.warnings).append(ConfigIssue(keys, message, allowed, near))


def show(value: Any) -> str:
    """A value as a person wrote it, shortened; containers by kind only."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value}"' if len(value) <= 60 else f'"{value[:57]}..."'
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    if isinstance(value, (int, float)):
        return repr(value)
    return f"a {type(value).__name__}"
