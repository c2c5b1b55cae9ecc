"""`tool-str-replace-editor`: one tool with the commands view, create, str_replace and insert, on absolute paths."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import anyio.to_thread

from dsh.cordis import ConfigModel, Context, field
from dsh.core.tools import Output, ToolRun, Tools, define_tool, text

from . import editor_texts as texts
from .service import (
    Absent,
    CreateIfAbsent,
    FileStat,
    Fs,
    FsEditIntent,
    FsError,
    FsObserved,
    FsTarget,
    FsWriteIntent,
    Observation,
    Present,
    ReplaceIfVersion,
    WriteExpectation,
)
from .text import to_lf, valid_text, without_bom
from .texts import not_a_file
from .tool_support import diff_meta, diffs_of, with_advice

if TYPE_CHECKING:
    from dsh.cordis.jsonio import JsonValue
    from dsh.core.tool_presentation import CallCard, PresentedResult, ResultCard

T = TypeVar("T")

name = "tool-str-replace-editor"

MAX_BYTES = 64 * 1024 * 1024
"""Files above this size are not opened."""

_AT_ONCE = 256 * 1024
_SKIPPED = frozenset({"node_modules", "__pycache__"})
_LETTERS: Mapping[str, str] = {"directory": "d", "file": "f"}

_VALUE = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "output": {"type": "string", "required": True},
        "before": {"oneOf": [{"type": "string"}, {"type": "null"}], "required": True},
        "after": {"oneOf": [{"type": "string"}, {"type": "null"}], "required": True},
    },
}


class Config(ConfigModel):
    """Config of a row `tool-str-replace-editor`."""

    max_output_chars: int = field(16_000, min=1, live=True, description="Characters after which a view is clipped")
    description: str | None = field(None, description="What the model is told of the tool, instead of our own text")


def apply(ctx: Context, config: Config, tools: Tools, fs: Fs) -> None:
    """Register the tool."""
    editor = _Editor(ctx, fs, config)
    tools.register(
        define_tool(
            "str_replace_editor",
            config.description or texts.DESCRIPTION,
            {
                "command": {
                    "type": "string",
                    "enum": ["view", "create", "str_replace", "insert"],
                    "required": True,
                    "description": texts.COMMAND,
                },
                "path": {"type": "string", "required": True, "description": texts.PATH},
                "file_text": {"type": "string", "description": texts.FILE_TEXT},
                "insert_line": {"type": "integer", "description": texts.INSERT_LINE},
                "new_str": {"type": "string", "description": texts.NEW_STR},
                "old_str": {"type": "string", "description": texts.OLD_STR},
                "view_range": {"type": "array", "items": {"type": "integer"}, "description": texts.VIEW_RANGE},
            },
            Output(
                schema=_VALUE,
                render=lambda _args, value: [text(value["output"])],
                presentation_meta=_meta,
            ),
            editor.execute,
            present_call=_present_call,
            present_result=_present_result,
        )
    )


class _Editor:
    def __init__(self, ctx: Context, fs: Fs, config: Config) -> None:
        self._ctx = ctx
        self._fs = fs
        self._config = config

    async def execute(self, args: Any, run: ToolRun) -> dict[str, Any]:
        path, command = valid_text(args["path"]), args["command"]
        if not path.startswith("/"):
            raise ValueError(texts.not_absolute(path))
        target = await self._fs.resolve(path, None, run.signal)
        stat = await self._fs.stat(target, run.signal)
        if stat is None:
            self._observe(target, Absent(), run)
        if command == "create":
            return await self._create(path, target, stat, args, run)
        if stat is None:
            raise FsError("FS_NOT_FOUND", texts.missing_path(path))
        if stat.type == "directory":
            if command != "view":
                raise FsError("FS_NOT_REGULAR_FILE", texts.is_directory(path))
            if "view_range" in args:
                raise ValueError(texts.range_of_directory(path))
            return _said(self._clip(await self._tree(path, target, run)))
        if command == "view":
            return await self._view(path, target, stat, args, run)
        change = _replacing(path, args) if command == "str_replace" else _inserting(args)
        return await self._change(path, target, stat, change, run)

    async def _create(
        self, path: str, target: FsTarget, stat: FileStat | None, args: Any, run: ToolRun
    ) -> dict[str, Any]:
        content = valid_text(_needed(args, "file_text"))
        if stat is not None:
            raise FsError("FS_NOT_OBSERVED", texts.occupied(path))

        async def only_if_absent() -> WriteExpectation:
            return CreateIfAbsent()

        try:
            expected = await self._ctx.waterfall(FsWriteIntent(target=target, actor=run), only_if_absent)
            written = await self._fs.write_text(target, content, expected or CreateIfAbsent(), run.signal)
        except FsError as error:
            if error.code == "FS_NOT_OBSERVED":  # somebody else was quicker
                raise FsError(error.code, texts.occupied(path)) from error
            raise with_advice(error) from error
        self._observe(target, Present(written.version), run)
        return _said(texts.created(path), None, written.after)

    async def _view(self, path: str, target: FsTarget, stat: FileStat, args: Any, run: ToolRun) -> dict[str, Any]:
        view_range = args.get("view_range")
        if view_range is not None and len(view_range) != 2:
            raise ValueError(texts.BAD_RANGE)
        content = without_bom(await self._read("read", target, stat, run))
        shown = await _off_loop(len(content), lambda: self._numbered(path, content, view_range))
        self._observe(target, Present(stat.version), run)
        return _said(shown)

    def _numbered(self, path: str, content: str, view_range: list[int] | None) -> str:
        lines = content.split("\n")
        total = len(lines)
        first, last = view_range or (1, -1)
        if not 1 <= first <= total:
            raise ValueError(texts.bad_first((first, last), total))
        if last != -1 and last < first:
            raise ValueError(texts.bad_last((first, last)))
        parts = [texts.file_head(path, total, view_range)]
        length = len(parts[0])
        for number in range(first, (total if last == -1 else min(last, total)) + 1):
            parts.append(texts.numbered(number, lines[number - 1]))
            length += len(parts[-1])
            if length > self._config.max_output_chars:
                break
        return self._clip("".join(parts))

    def _clip(self, shown: str) -> str:
        most = self._config.max_output_chars
        return shown if len(shown) <= most else shown[:most] + texts.CLIPPED

    async def _tree(self, path: str, target: FsTarget, run: ToolRun) -> str:
        found: list[tuple[str, str]] = []
        for name, kind in await self._entries(target, run):
            place = f"{path.rstrip('/')}/{name}"
            found.append((valid_text(place), _LETTERS.get(kind, "?")))
            if kind == "directory":
                inner = await self._fs.resolve(place, None, run.signal)
                try:
                    below = await self._entries(inner, run)
                except FsError as error:
                    if error.code == "FS_ABORTED":
                        raise
                    continue  # gone or not ours to read: its name alone is shown
                found.extend((valid_text(f"{place}/{deeper}"), _LETTERS.get(sort, "?")) for deeper, sort in below)
        return texts.directory(path, sorted(found))

    async def _entries(self, target: FsTarget, run: ToolRun) -> list[tuple[str, str]]:
        listed = await self._fs.list_dir(target, run.signal)
        return [
            (each.name, each.type) for each in listed if not each.name.startswith(".") and each.name not in _SKIPPED
        ]

    async def _change(
        self, path: str, target: FsTarget, stat: FileStat, change: Callable[[str], str], run: ToolRun
    ) -> dict[str, Any]:
        seen = ReplaceIfVersion(stat.version)

        async def as_it_is() -> ReplaceIfVersion | None:
            return seen

        try:
            expected = await self._ctx.waterfall(FsEditIntent(target=target, actor=run), as_it_is) or seen
            if expected.version != stat.version:
                raise FsError("FS_STALE_VERSION", f'cannot edit "{path}": file changed since it was read')
            content = await self._read("edit", target, stat, run)
            plain = without_bom(content)
            mark = content[: len(content) - len(plain)]
            changed = await _off_loop(len(plain), lambda: valid_text(change(plain)))
            written = await self._fs.write_text(target, mark + changed, expected, run.signal)
        except FsError as error:
            raise with_advice(error) from error
        self._observe(target, Present(written.version), run)
        return _said(texts.EDITED.format(path), to_lf(plain), to_lf(changed))

    async def _read(self, verb: str, target: FsTarget, stat: FileStat, run: ToolRun) -> str:
        """The text of a file with its byte order mark, which a write must not lose."""
        shown = valid_text(target.display_path)
        if stat.type != "file":
            raise FsError("FS_NOT_REGULAR_FILE", not_a_file(verb, shown))
        content = await self._fs.read_bytes(target, run.signal, max_bytes=MAX_BYTES)
        if b"\0" in content:
            raise FsError("FS_NOT_TEXT", f'cannot {verb} "{shown}": binary file')
        try:
            return await _off_loop(len(content), content.decode)
        except UnicodeDecodeError as error:
            raise FsError("FS_NOT_TEXT", f'cannot {verb} "{shown}": invalid UTF-8 text') from error

    def _observe(self, target: FsTarget, observation: Observation, run: ToolRun) -> None:
        self._ctx.emit(FsObserved(target=target, observation=observation, actor=run))


def _replacing(path: str, args: Any) -> Callable[[str], str]:
    old, new = _needed(args, "old_str"), args.get("new_str", "")
    if not old:
        raise ValueError(texts.missing_parameter("old_str", args["command"]))

    def change(content: str) -> str:
        found = content.count(old)
        if not found:
            raise FsError("FS_EDIT_NOT_FOUND", texts.no_match(old, path))
        if found > 1:
            raise FsError("FS_AMBIGUOUS_EDIT", texts.many_matches(old, _lines_of(content, old)))
        return content.replace(old, new)

    return change


def _inserting(args: Any) -> Callable[[str], str]:
    line, new = _needed(args, "insert_line"), _needed(args, "new_str")

    def change(content: str) -> str:
        lines = content.split("\n")
        if not 0 <= line <= len(lines):
            raise ValueError(texts.bad_insert_line(line, len(lines)))
        return "\n".join([*lines[:line], new, *lines[line:]])

    return change


def _lines_of(content: str, old: str) -> list[int]:
    """The lines on which an occurrence begins, each once."""
    lines: list[int] = []
    at, counted, line = content.find(old), 0, 1
    while at >= 0:
        line += content.count("\n", counted, at)
        counted = at
        if not lines or lines[-1] != line:
            lines.append(line)
        at = content.find(old, at + len(old))
    return lines


def _needed(args: Any, parameter: str) -> Any:
    if parameter not in args:
        raise ValueError(texts.missing_parameter(parameter, args["command"]))
    return args[parameter]


def _said(output: str, before: str | None = None, after: str | None = None) -> dict[str, Any]:
    return {"output": output, "before": before, "after": after}


async def _off_loop(size: int, work: Callable[[], T]) -> T:
    """Do text work at once, or in a thread when there is much of it."""
    return work() if size <= _AT_ONCE else await anyio.to_thread.run_sync(work)


def _meta(args: Any, value: Any) -> JsonValue:
    return None if value["after"] is None else diff_meta({"file_path": args["path"]}, value)


def _present_call(args: Any) -> CallCard | None:
    path, command = args["path"], args["command"]
    if command == "view":
        return {"card": "generic", "title": path, "kind": "read", "locations": [{"path": path}]}
    new = args.get("file_text" if command == "create" else "new_str", "")
    old = args.get("old_str") if command == "str_replace" else None
    return {
        "card": "diff",
        "title": path,
        "diffs": [{"path": path, "oldText": old, "newText": new}],
        "locations": [{"path": path}],
    }


def _present_result(_args: Any, result: PresentedResult) -> ResultCard | None:
    diffs = None if result["isError"] else diffs_of(result.get("meta"))
    return None if diffs is None else {"card": "diff", "diffs": diffs}
