"""A tool that tells the time. Shows: a tool from type hints, and a live setting.

Edit ``timezone`` in cordis.yml while the agent runs: the next call uses it and nothing restarts.
"""

from __future__ import annotations

from datetime import datetime

from dsh.cordis import ConfigModel, Context, HarnessError, field
from dsh.core.tools import Tools


class Config(ConfigModel):
    timezone: str = field("local", live=True, description="IANA name such as Europe/Berlin, or local")


def apply(ctx: Context, config: Config, tools: Tools) -> None:
    @tools.tool
    async def now() -> str:
        """Tell the current date and time."""
        if config.timezone == "local":
            return datetime.now().astimezone().isoformat(timespec="seconds")
        from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # only now: this import takes a while

        try:
            return datetime.now(ZoneInfo(config.timezone)).isoformat(timespec="seconds")
        except (ZoneInfoNotFoundError, ValueError):
            raise HarnessError(f"unknown time zone {config.timezone!r}", code="UNKNOWN_TIMEZONE") from None
