"""What the file tools share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dsh.core.tools import ToolRun
from dsh.core.working_directory import working_directory

from . import texts
from .diff import hunks
from .service import Fs, FsError, FsTarget
from .text import valid_text

if TYPE_CHECKING:
    from dsh.cordis.jsonio import JsonValue


async def target_of(fs: Fs, args: Any, run: ToolRun) -> FsTarget:
    """Where the call's `file_path` leads, from the workspace of the calling agent."""
    path = valid_text(args["file_path"])
    if not path.strip():
        raise ValueError(texts.BLANK_PATH)
    workspace = None if run.agent is None else working_directory(run.agent.session)
    return await fs.resolve(path, workspace, run.signal)


def with_advice(error: FsError) -> FsError:
    """The same error, telling the model what to do about a version it has not seen."""
    advice = {"FS_STALE_VERSION": texts.REREAD, "FS_NOT_OBSERVED": texts.READ_FIRST}.get(error.code)
    return error if advice is None else FsError(error.code, f"{error}{advice}")


def diff_meta(args: Any, value: Any) -> JsonValue:
    """What a person may be shown of a change; empty for a new file and where the old text is not known."""
    before = value["before"]
    if before is None:
        return {"diffs": []}
    path = valid_text(args["file_path"])
    return {"diffs": [{"path": path, **hunk} for hunk in hunks(before, value["after"])]}


def diffs_of(meta: Any) -> list[Any] | None:
    """The diffs in stored `meta`, None when there are none or it is no such meta."""
    if not isinstance(meta, dict) or not isinstance(meta.get("diffs"), list) or not meta["diffs"]:
        return None
    return list(meta["diffs"])
