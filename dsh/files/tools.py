"""`tool-fs`: the tools `read`, `write` and `edit`, with a line of guidance each in the system prompt."""

from __future__ import annotations

from dsh.cordis import ConfigModel, Context, field
from dsh.core.system_prompt import SystemPrompt
from dsh.core.tools import Tools

from . import texts
from .edit_tool import edit_tool
from .read_tool import read_tool
from .service import Fs
from .write_tool import write_tool

name = "tool-fs"


class Config(ConfigModel):
    """Config of a row `tool-fs`."""

    read_limit: int = field(2000, min=1, description="Most lines one read returns")
    read_max_line_length: int = field(2000, min=1, live=True, description="Characters after which a line is cut")
    read_max_bytes: int = field(51_200, min=1, live=True, unit="bytes", description="Most text one read returns")
    read_stream_min_size: int = field(
        10_485_760, min=1, live=True, unit="bytes", description="From this size on a file is read in pieces"
    )


def apply(ctx: Context, config: Config, tools: Tools, fs: Fs, system_prompt: SystemPrompt) -> None:
    """Register the tools and their guidance."""
    tools.register(read_tool(ctx, fs, config))
    tools.register(write_tool(ctx, fs))
    tools.register(edit_tool(ctx, fs))
    system_prompt.section("tool:read", 100, texts.READ_GUIDANCE)
    system_prompt.section("tool:write", 101, texts.WRITE_GUIDANCE)
    system_prompt.section("tool:edit", 102, texts.EDIT_GUIDANCE)
