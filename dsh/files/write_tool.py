"""The tool `write`: create a file or replace all of its content."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dsh.cordis import Context
from dsh.core.tools import Output, ToolDefinition, ToolRun, define_tool, text

from . import texts
from .service import Fs, FsError, FsObserved, FsWriteIntent, Present, WriteExpectation
from .text import valid_text
from .tool_support import diff_meta, diffs_of, target_of, with_advice

if TYPE_CHECKING:
    from dsh.core.tool_presentation import CallCard, PresentedResult, ResultCard

VALUE = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "path": {"type": "string", "required": True},
        "operation": {"type": "string", "enum": ["create", "update"], "required": True},
        "before": {"oneOf": [{"type": "string"}, {"type": "null"}], "required": True},
        "after": {"type": "string", "required": True},
    },
}


def write_tool(ctx: Context, fs: Fs) -> ToolDefinition:
    """The definition."""

    async def execute(args: Any, run: ToolRun) -> dict[str, Any]:
        target = await target_of(fs, args, run)
        try:
            expected = await ctx.waterfall(FsWriteIntent(target=target, actor=run), _unconditional)
            written = await fs.write_text(target, valid_text(args["content"]), expected, run.signal)
        except FsError as error:
            raise with_advice(error) from error
        ctx.emit(FsObserved(target=target, observation=Present(written.version), actor=run))
        return {
            "path": valid_text(target.display_path),
            "operation": written.operation,
            "before": written.before,
            "after": written.after,
        }

    return define_tool(
        "write",
        texts.WRITE_DESCRIPTION,
        {
            "file_path": {"type": "string", "required": True, "description": texts.WRITE_PATH},
            "content": {"type": "string", "required": True, "description": texts.WRITE_CONTENT},
        },
        Output(
            schema=VALUE,
            render=lambda _args, value: [text(texts.written(value["path"], value["operation"]))],
            presentation_meta=diff_meta,
        ),
        execute,
        present_call=_present_call,
        present_result=_present_result,
    )


async def _unconditional() -> WriteExpectation:
    return None


def _present_call(args: Any) -> CallCard | None:
    path = args["file_path"]
    return {
        "card": "diff",
        "title": path,
        "diffs": [{"path": path, "oldText": None, "newText": args["content"]}],
        "locations": [{"path": path}],
    }


def _present_result(args: Any, result: PresentedResult) -> ResultCard | None:
    if result["isError"]:
        return None
    diffs = diffs_of(result.get("meta"))
    return {"card": "generic", "title": args["file_path"]} if diffs is None else {"card": "diff", "diffs": diffs}
