"""Plugin `logger-console`: prints log records for a person, on stderr, because stdout may carry a protocol."""

from __future__ import annotations

import logging
import os
import sys
import time
from typing import Any, Final, Literal, TextIO

from .context import Context
from .logger import MAX_LINE, cut_line
from .schema import ConfigModel, field

name = "logger-console"

_LETTERS: Final = {logging.DEBUG: "D", logging.INFO: "I", logging.WARNING: "W", logging.ERROR: "E"}
_LEVEL_COLORS: Final = {logging.DEBUG: 8, logging.INFO: 2, logging.WARNING: 3, logging.ERROR: 1}
# Readable on dark and on light ground.
_NAME_COLORS: Final = (6, 2, 3, 4, 5, 1)
_RICH_NAME_COLORS: Final = (33, 36, 64, 136, 166, 125, 61, 37, 97, 130, 169, 72)


class Label(ConfigModel):
    """How the logger name stands in the line."""

    width: int = field(0, min=0, description="Pad to this many characters")
    margin: int = field(1, min=0, description="Spaces between name and text")
    align: Literal["left", "right"] = field("left", description="Side the name stands on")


class Config(ConfigModel):
    """Log output on the console."""

    colors: bool | Literal[0, 1, 2, 3] | None = field(
        None, live=True, description="false or 0 for none, 1 for 16, 2 for 256, 3 for all colours; by default automatic"
    )
    max_length: int = field(MAX_LINE, min=16, live=True, description="Longer lines are cut")
    levels: dict[str, Any] = field(
        default_factory=lambda: {"default": "info"}, description="Level by logger name; `default` for the others"
    )
    show_diff: bool = field(False, live=True, description="Append the time since the record before")
    show_time: str = field("yyyy-MM-dd hh:mm:ss ", live=True, description="Time in front of a line; empty for none")
    label: Label = field(default_factory=Label, live=True, description="Layout of the logger name")


class ConsoleHandler(logging.Handler):
    """Writes one record as one or more lines; never raises into the code that logs."""

    def __init__(self, config: Config, stream: TextIO) -> None:
        super().__init__()
        self._config = config
        self._stream = stream
        self._last: float | None = None
        self._plain = logging.Formatter()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._stream.write(self.render(record) + "\n")
            self._stream.flush()
        except Exception:
            self.handleError(record)

    def render(self, record: logging.LogRecord) -> str:
        """The text of a record: time, level letter, logger name, message; further lines are indented below it."""
        config, depth = self._config, self._depth()
        letter = _LETTERS.get(record.levelno, "E" if record.levelno > logging.ERROR else "D")
        head = format_time(config.show_time, record.created) + _paint(
            f"[{letter}]", _LEVEL_COLORS.get(record.levelno, 1), depth
        )
        shown = record.name.removeprefix("dsh.")
        padded = shown.ljust(config.label.width) if config.label.align == "left" else shown.rjust(config.label.width)
        palette = _RICH_NAME_COLORS if depth >= 2 else _NAME_COLORS
        label = _paint(padded, palette[sum(shown.encode()) % len(palette)], depth)
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + self._plain.formatException(record.exc_info)
        if config.show_diff and self._last is not None:
            text += f" +{round((record.created - self._last) * 1000)}ms"
        self._last = record.created
        lines = [cut_line(line, config.max_length) for line in text.splitlines() or [""]]
        return f"{head} {label}{' ' * config.label.margin}" + "\n    ".join(lines)

    def _depth(self) -> int:
        colors = self._config.colors
        if colors is None or colors is True:
            if "NO_COLOR" in os.environ or (colors is None and not self._stream.isatty()):
                return 0
            return 2 if "256" in os.environ.get("TERM", "") or os.environ.get("COLORTERM") else 1
        return int(colors)


def format_time(pattern: str, seconds: float) -> str:
    """Local time in a pattern of `yyyy MM dd hh mm ss SSS`."""
    if not pattern:
        return ""
    moment = time.localtime(seconds)
    parts = {
        "yyyy": f"{moment.tm_year:04}",
        "MM": f"{moment.tm_mon:02}",
        "dd": f"{moment.tm_mday:02}",
        "hh": f"{moment.tm_hour:02}",
        "mm": f"{moment.tm_min:02}",
        "ss": f"{moment.tm_sec:02}",
        "SSS": f"{int(seconds % 1 * 1000):03}",
    }
    for token, value in parts.items():
        pattern = pattern.replace(token, value)
    return pattern


def _paint(text: str, color: int, depth: int) -> str:
    if not depth:
        return text
    code = f"38;5;{color}" if depth >= 2 or color > 7 else f"3{color}"
    return f"\x1b[{code}m{text}\x1b[0m"


def apply(ctx: Context, config: Config) -> None:
    """Print this root's records on stderr while mounted; `levels` applies to the whole root."""
    hub = ctx.runtime.logs
    before = hub.levels
    hub.set_levels(config.levels)

    def restore() -> None:
        hub.levels = before

    ctx.defer(restore, "levels")
    ctx.logger.exporter(ConsoleHandler(config, sys.stderr))
