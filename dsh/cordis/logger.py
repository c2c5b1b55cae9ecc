"""Logging: stdlib loggers named after plugins, plus the exporters and the last records of a root."""

from __future__ import annotations

import logging
import re
import sys
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .context import Context
    from .effects import Disposer

KEPT_RECORDS: Final = 1000
MAX_LINE: Final = 10240

_NUMBERS = {0: logging.ERROR, 1: logging.INFO, 2: logging.INFO, 3: logging.DEBUG}


def level_number(level: Any) -> int:
    """A stdlib level from a name (`"debug"`, `"warn"`) or a number 0 (errors) to 3 (debug). Raises `ValueError`."""
    if isinstance(level, int) and not isinstance(level, bool) and level in _NUMBERS:
        return _NUMBERS[level]
    if isinstance(level, str):
        number = logging.getLevelNamesMapping().get(level.strip().upper())
        if number is not None:
            return number
    raise ValueError(f"unknown log level {level!r}: use debug, info, warning, error or 0 to 3")


def kebab(name: str) -> str:
    """`MyPlugin`, `my_plugin` and `my plugin` as `my-plugin`."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[\s_]+", "-", name)
    return re.sub(r"-+", "-", spaced).strip("-").lower()


class LogHub:
    """The log side of a root: who exports, how loud each logger is, and what was said last."""

    def __init__(self) -> None:
        self.records: deque[logging.LogRecord] = deque(maxlen=KEPT_RECORDS)
        self.exporters: list[logging.Handler] = []
        self.levels: dict[str, int] = {"default": logging.INFO}
        self.framework = logging.getLogger("dsh.cordis")
        self._bridge = _Bridge(self)

    def level_of(self, name: str) -> int:
        """The quietest level that a logger lets through: its own, that of a dotted parent, or `default`."""
        while name:
            if name in self.levels:
                return self.levels[name]
            name = name.rpartition(".")[0]
        return self.levels["default"]

    def set_levels(self, levels: Mapping[str, Any]) -> None:
        """Replace the level map (`default` and logger names without `dsh.`). Raises `ValueError`."""
        self.levels = {"default": logging.INFO, **{name: level_number(level) for name, level in levels.items()}}

    def handle(self, record: logging.LogRecord) -> None:
        """Keep a record and pass it to the exporters."""
        self.records.append(record)
        for exporter in self.exporters:
            if record.levelno >= exporter.level:
                exporter.handle(record)

    def add(self, handler: logging.Handler) -> None:
        if not self.exporters:
            logging.getLogger("dsh").addHandler(self._bridge)
        self.exporters.append(handler)

    def remove(self, handler: logging.Handler) -> None:
        if handler in self.exporters:
            self.exporters.remove(handler)
        if not self.exporters:
            self.close()

    def close(self) -> None:
        logging.getLogger("dsh").removeHandler(self._bridge)


class _Bridge(logging.Handler):
    """Brings records of plain `logging.getLogger("dsh.…")` calls to the exporters."""

    def __init__(self, hub: LogHub) -> None:
        super().__init__()
        self._hub = hub

    def emit(self, record: logging.LogRecord) -> None:
        if not hasattr(record, "dsh_plugin"):
            self._hub.handle(record)


class ContextLogger:
    """`ctx.logger`: logs under the name of the plugin. `ctx.logger("name")` logs under another."""

    __slots__ = ("_ctx", "_name")

    def __init__(self, ctx: Context, name: str | None = None) -> None:
        self._ctx = ctx
        self._name = name

    def __call__(self, name: str) -> ContextLogger:
        return ContextLogger(self._ctx, name)

    @property
    def name(self) -> str:
        """The logger name without the leading `dsh.`."""
        given = self._name or self._ctx.intercepted("logger").get("name")
        return str(given) if given else kebab(self._ctx.fiber.display_name)

    def is_enabled_for(self, level: int) -> bool:
        """Whether records of this stdlib level are kept and exported."""
        own = self._ctx.intercepted("logger").get("level")
        return level >= (level_number(own) if own is not None else self._ctx.runtime.logs.level_of(self.name))

    def debug(self, message: str, *args: object, exc_info: BaseException | bool | None = None) -> None:
        self._log(logging.DEBUG, message, args, exc_info)

    def info(self, message: str, *args: object, exc_info: BaseException | bool | None = None) -> None:
        self._log(logging.INFO, message, args, exc_info)

    def warning(self, message: str, *args: object, exc_info: BaseException | bool | None = None) -> None:
        self._log(logging.WARNING, message, args, exc_info)

    def error(self, message: str, *args: object, exc_info: BaseException | bool | None = None) -> None:
        self._log(logging.ERROR, message, args, exc_info)

    def exception(self, message: str, *args: object) -> None:
        """As `error`, with the exception being handled."""
        self._log(logging.ERROR, message, args, True)

    def exporter(self, handler: logging.Handler) -> Disposer:
        """Send all records of this root to a stdlib handler, as an effect of this context."""
        hub = self._ctx.runtime.logs
        hub.add(handler)
        return self._ctx.defer(lambda: hub.remove(handler), "logger.exporter")

    def _log(self, level: int, message: str, args: tuple[object, ...], exc_info: BaseException | bool | None) -> None:
        enabled = self.is_enabled_for(level)
        stdlib = logging.getLogger(f"dsh.{self.name}")
        if not enabled and not stdlib.isEnabledFor(level):
            return
        info: Any = None
        if isinstance(exc_info, BaseException):
            info = (type(exc_info), exc_info, exc_info.__traceback__)
        elif exc_info:
            info = sys.exc_info()
        path, line, function, _ = stdlib.findCaller(stacklevel=3)
        extra = {"dsh_plugin": self._ctx.fiber.display_name}
        record = stdlib.makeRecord(stdlib.name, level, path, line, message, args, info, function, extra)
        if enabled:
            self._ctx.runtime.logs.handle(record)
        if stdlib.isEnabledFor(level):
            stdlib.handle(record)


def cut_line(text: str, limit: int = MAX_LINE) -> str:
    """A line of at most `limit` characters."""
    return text if len(text) <= limit else text[: limit - 1] + "…"
