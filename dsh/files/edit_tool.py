"""The tool `edit`: replace an exact piece of text in a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dsh.cordis import Context
from dsh.core.tools import Output, ToolDefinition, ToolRun, define_tool, text

from . import texts
from .service import Fs, FsEditIntent, FsError, FsObserved, Present, ReplaceIfVersion
from .text import valid_text
from .tool_support import diff_meta, diffs_of, target_of, with_advice

if TYPE_CHECKING:
    from dsh.core.tool_presentation import CallCard, PresentedResult, ResultCard

VALUE = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "path": {"type": "string", "required": True},
        "before": {"type": "string", "required": True},
        "after": {"type": "string", "required": True},
    },
}


def edit_tool(ctx: Context, fs: Fs) -> ToolDefinition:
    """The definition."""

    async def execute(args: Any, run: ToolRun) -> dict[str, Any]:
        old, new = args["old_string"], args["new_string"]
        if not args["file_path"].strip():
            raise ValueError(texts.BLANK_PATH)
        if not old:
            raise ValueError(texts.EMPTY_OLD_STRING)
        if old == new:
            raise ValueError(texts.SAME_STRINGS)
        target = await target_of(fs, args, run)
        try:
            expected = await ctx.waterfall(FsEditIntent(target=target, actor=run), _unconditional)
            edited = await fs.edit_text(target, old, new, args.get("replace_all", False), expected, run.signal)
        except FsError as error:
            raise with_advice(error) from error
        ctx.emit(FsObserved(target=target, observation=Present(edited.version), actor=run))
        return {"path": valid_text(target.display_path), "before": edited.before, "after": edited.after}

    return define_tool(
        "edit",
        texts.EDIT_DESCRIPTION,
        {
            "file_path": {"type": "string", "required": True, "description": texts.EDIT_PATH},
            "old_string": {"type": "string", "required": True, "description": texts.EDIT_OLD},
            "new_string": {"type": "string", "required": True, "description": texts.EDIT_NEW},
            "replace_all": {"type": "boolean", "description": texts.EDIT_ALL},
        },
        Output(
            schema=VALUE,
            render=lambda args, value: [text(texts.edited(value["path"], args.get("replace_all", False)))],
            presentation_meta=diff_meta,
        ),
        execute,
        present_call=_present_call,
        present_result=_present_result,
    )


async def _unconditional() -> ReplaceIfVersion | None:
    return None


def _present_call(args: Any) -> CallCard | None:
    path = args["file_path"]
    return {
        "card": "diff",
        "title": path,
        "diffs": [{"path": path, "oldText": args["old_string"], "newText": args["new_string"]}],
        "locations": [{"path": path}],
    }


def _present_result(_args: Any, result: PresentedResult) -> ResultCard | None:
    diffs = None if result["isError"] else diffs_of(result.get("meta"))
    return None if diffs is None else {"card": "diff", "diffs": diffs}
