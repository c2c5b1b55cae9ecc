"""Every text of `str_replace_editor` that a model reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

DESCRIPTION = """View, create and edit text files and look into directories.

* `view` shows a file with line numbers (`view_range` [first, last] shows a part, last -1 means to the end), or the \
files and directories up to 2 levels deep in a directory.
* `create` writes a new file with `file_text`; it never overwrites one.
* `str_replace` replaces `old_str` by `new_str` (nothing when left out). `old_str` must match the file exactly, white \
space included, and occur once: add neighbouring lines until it does.
* `insert` puts `new_str` behind line `insert_line`; 0 puts it before the first line."""

COMMAND = "What to do: view, create, str_replace or insert."
PATH = "Absolute path of the file or directory."
FILE_TEXT = "For create: the content of the new file."
INSERT_LINE = "For insert: number of the line behind which new_str goes, 0 for the beginning."
NEW_STR = "For str_replace: the replacement; for insert: the text to put in."
OLD_STR = "For str_replace: the text to replace, exactly as it stands in the file."
VIEW_RANGE = "For view of a file: first and last line to show, counting from 1; last -1 means to the end."

BAD_RANGE = "Invalid `view_range`. It should be a list of two integers."
EDITED = "The file {} has been edited successfully."
CLIPPED = (
    "<response clipped><NOTE>To save on context only part of this file has been shown to you. You should retry this "
    "tool after you have searched inside the file with `grep -n` in order to find the line numbers of what you are "
    "looking for.</NOTE>"
)


def not_absolute(path: str) -> str:
    """A relative path."""
    return f"The path {path} is not an absolute path, it should start with `/`. Maybe you meant /{path}?"


def missing_path(path: str) -> str:
    """Nothing is there."""
    return f"The path {path} does not exist. Please provide a valid path."


def missing_parameter(parameter: str, command: str) -> str:
    """A command without what it needs."""
    return f"Parameter `{parameter}` is required for command: {command}"


def is_directory(path: str) -> str:
    """A command for files was given a directory."""
    return f"The path {path} is a directory and only the `view` command can be used on directories."


def range_of_directory(path: str) -> str:
    """A part of a directory was asked for."""
    return f"The `view_range` parameter is not allowed when `path` points to a directory: {path}"


def bad_first(view_range: Sequence[int], total: int) -> str:
    """A range that begins outside of the file."""
    first, last = view_range
    return (
        f"Invalid `view_range`: [{first}, {last}]. Its first element `{first}` should be within the range of lines of "
        f"the file: [1, {total}]"
    )


def bad_last(view_range: Sequence[int]) -> str:
    """A range that ends before it begins."""
    first, last = view_range
    return (
        f"Invalid `view_range`: [{first}, {last}]. Its second element `{last}` should be -1 or not smaller than its "
        f"first element `{first}`"
    )


def file_head(path: str, total: int, view_range: Sequence[int] | None) -> str:
    """The line above the numbered lines of a file."""
    part = f" with view_range=[{view_range[0]}, {view_range[1]}]" if view_range else ""
    return f"Here's the content of {path} with line numbers (which has a total of {total} lines){part}:\n"


def numbered(number: int, line: str) -> str:
    """One line of a file."""
    return f"{number:6d}  {line}\n"


def directory(path: str, entries: Iterable[tuple[str, str]]) -> str:
    """What is in a directory: path and type letter of each entry."""
    listed = "".join(f"{letter}\t{entry}\n" for entry, letter in entries)
    return (
        f"Here're the files and directories up to 2 levels deep in {path}, excluding hidden items, node_modules, and "
        f"Python cache directories:\n{listed}"
    )


def created(path: str) -> str:
    """A create that happened."""
    return f"New file created successfully at: {path}"


def occupied(path: str) -> str:
    """A create of what is there already."""
    return f"File already exists at: {path}. Cannot overwrite files using command `create`."


def no_match(old: str, path: str) -> str:
    """A text that does not occur."""
    return f"No replacement was performed, old_str `{old}` did not appear verbatim in {path}."


def many_matches(old: str, lines: Sequence[int]) -> str:
    """A text that occurs more than once; `lines` are where."""
    return (
        f"No replacement was performed. Multiple occurrences of old_str `{old}` in lines {list(lines)}. "
        "Please ensure it is unique"
    )


def bad_insert_line(line: int, total: int) -> str:
    """An insert outside of the file."""
    return f"Invalid `insert_line` parameter: {line}. It should be within the range of lines of the file: [0, {total}]"
