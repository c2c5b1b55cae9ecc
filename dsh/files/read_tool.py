"""The tool `read`: a numbered window of a text file."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import anyio.to_thread

from dsh.cordis import Context
from dsh.core.tools import Output, ToolDefinition, ToolRun, define_tool, text

from . import texts
from .service import Absent, Fs, FsError, FsObserved, FsTarget, Present
from .text import valid_text
from .tool_support import target_of
from .window import PIECE, LineWindow, WindowLimits

if TYPE_CHECKING:
    from dsh.core.tool_presentation import CallCard, PresentedResult, ResultCard

    from .tools import Config

VALUE = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "path": {"type": "string", "required": True},
        "offset": {"type": "integer", "required": True},
        "lines": {
            "type": "array",
            "required": True,
            "items": {
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    "number": {"type": "integer", "required": True},
                    "text": {"type": "string", "required": True},
                },
            },
        },
        "totalLines": {"type": "integer", "required": True},
    },
}


def read_tool(ctx: Context, fs: Fs, config: Config) -> ToolDefinition:
    """The definition; `config` is read at each call."""

    async def execute(args: Any, run: ToolRun) -> dict[str, Any]:
        most = config.read_limit
        offset, limit = args.get("offset", 1), args.get("limit", most)
        if not _is_count(offset):
            raise ValueError(texts.BAD_OFFSET)
        if not _is_count(limit):
            raise ValueError(texts.BAD_LIMIT)
        if limit > most:
            raise ValueError(texts.limit_too_large(most))
        target = await target_of(fs, args, run)
        path = valid_text(target.display_path)
        stat = await fs.stat(target, run.signal)
        if stat is None:
            ctx.emit(FsObserved(target=target, observation=Absent(), actor=run))
            raise FsError("FS_NOT_FOUND", texts.not_found("read", path))
        if stat.type != "file":
            raise FsError("FS_NOT_REGULAR_FILE", texts.not_a_file("read", path))
        window = LineWindow(offset, WindowLimits(limit, config.read_max_line_length, config.read_max_bytes))
        await _fill(window, fs, target, run, streamed=stat.size is None or stat.size >= config.read_stream_min_size)
        if offset > max(window.total, 1):
            raise ValueError(texts.out_of_range(offset, path, window.total))
        # The version is the one from before reading: a change in between makes a later edit stale, never unseen.
        ctx.emit(FsObserved(target=target, observation=Present(stat.version), actor=run))
        lines = [{"number": offset + index, "text": line} for index, line in enumerate(window.lines)]
        return {"path": path, "offset": offset, "lines": lines, "totalLines": window.total}

    def render(args: Any, value: Any) -> list[Any]:
        limit = args.get("limit", config.read_limit)
        return [text(texts.window(value["path"], value["offset"], value["lines"], value["totalLines"], limit))]

    return define_tool(
        "read",
        texts.READ_DESCRIPTION.format(limit=config.read_limit),
        {
            "file_path": {"type": "string", "required": True, "description": texts.READ_PATH},
            "offset": {"type": "number", "description": texts.READ_OFFSET},
            "limit": {"type": "number", "description": texts.READ_LIMIT.format(limit=config.read_limit)},
        },
        Output(schema=VALUE, render=render, presentation_meta=lambda _args, value: value),
        execute,
        is_concurrency_safe=True,
        present_call=_present_call,
        present_result=_present_result,
    )


async def _fill(window: LineWindow, fs: Fs, target: FsTarget, run: ToolRun, *, streamed: bool) -> None:
    if streamed:
        async with aclosing(fs.stream_text(target, run.signal)) as pieces:  # type: ignore[type-var]
            async for piece in pieces:
                window.feed(piece)
        window.finish()
        return
    content = await fs.read_text(target, run.signal)
    if len(content) <= 4 * PIECE:
        window.feed_all(content)
    else:
        await anyio.to_thread.run_sync(window.feed_all, content)


def _is_count(number: Any) -> bool:
    return type(number) is int and number >= 1


def _present_call(args: Any) -> CallCard | None:
    path = args["file_path"]
    offset = args.get("offset")
    return {
        "card": "generic",
        "title": path,
        "kind": "read",
        "locations": [{"path": path, "line": offset} if _is_count(offset) else {"path": path}],
    }


def _present_result(_args: Any, result: PresentedResult) -> ResultCard | None:
    meta = result.get("meta")
    if result["isError"] or not isinstance(meta, dict) or not isinstance(meta["lines"], list):
        return None
    return {
        "card": "read",
        "path": meta["path"],
        "offset": meta["offset"],
        "lines": meta["lines"],
        "totalLines": meta["totalLines"],
    }
