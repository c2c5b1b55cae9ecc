"""The user's settings from a program: read, change, observe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from dsh.cordis import HarnessError
from dsh.cordis.nearest import did_you_mean

if TYPE_CHECKING:
    from .backend import Backend


class HarnessSettings:
    """The settings of a running composition, by dotted key.

        await harness.settings.set("agent-loop.maxParallelToolCalls", 2)
        await harness.settings.get("agent-loop.maxParallelToolCalls")  # 2

    A change is stored in the user's document and in force at once.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def get(self, key: str | None = None) -> Any:
        """The value in force: of one setting, of a section, or of all sections (no key).

        Raises ``HarnessError`` naming the nearest one when there is no such setting.
        """
        sections = (await self._backend.ask("settings"))["sections"]
        value: Any = sections
        for part in key.split(".") if key else ():
            if not isinstance(value, Mapping) or part not in value:
                raise HarnessError(f'no setting "{key}"{did_you_mean(str(key), _keys(sections))}', code="NO_SETTING")
            value = value[part]
        return value

    async def set(self, key: str, value: Any) -> None:
        """Store one value, such as ``shell.timeoutMs``. Raises ``HarnessError`` for a refused one; nothing changes."""
        await self._change(key, op="set", value=value)

    async def unset(self, key: str) -> None:
        """Forget one value, or a whole section; the row's or the default answers again."""
        await self._change(key, op="unset")

    def watch(self, key: str, callback: Callable[[Any], Any]) -> Callable[[], object]:
        """Call ``callback(value)`` whenever the setting, or something in the section, changes; returns the undo."""
        section, *path = key.split(".")
        last: list[Any] = []

        def changed(name: str, value: Any) -> None:
            if name != section:
                return
            for part in path:
                value = value.get(part) if isinstance(value, Mapping) else None
            if last != [value]:
                last[:] = [value]
                callback(value)

        watchers = self._backend.watchers
        watchers.append(changed)
        return lambda: watchers.remove(changed) if changed in watchers else None

    async def _change(self, key: str, **operation: Any) -> None:
        section, *path = key.split(".")
        await self._backend.ask("change-setting", section=section, path=path, **operation)


def _keys(value: Any, prefix: str = "") -> list[str]:
    if not isinstance(value, Mapping):
        return [prefix[:-1]]
    return [prefix[:-1], *(key for name, inner in value.items() for key in _keys(inner, f"{prefix}{name}."))]
