"""Every text of the file tools that a model reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

BLANK_PATH = "file_path must be a non-empty string"
BAD_OFFSET = "offset must be a positive integer"
BAD_LIMIT = "limit must be a positive integer"
EMPTY_OLD_STRING = "old_string must be a non-empty string"
SAME_STRINGS = "old_string and new_string must differ"
REREAD = " — re-read the file, then retry"
READ_FIRST = " — read the file, then retry"


def limit_too_large(most: int) -> str:
    """More lines asked for than a window may hold."""
    return f"limit must be less than or equal to {most}"


def not_found(verb: str, path: str) -> str:
    """Nothing is there."""
    return f'cannot {verb} "{path}": not found'


def not_a_file(verb: str, path: str) -> str:
    """A directory, a device or the like."""
    return f'cannot {verb} "{path}": not a regular file'


def out_of_range(offset: int, path: str, total: int) -> str:
    """A window behind the last line."""
    return f'offset {offset} is out of range for "{path}" ({total} lines)'


def unread_edit(path: str) -> str:
    """An edit of a file whose content the model has not seen."""
    return f'edit requires reading "{path}" first'


def envelope(path: str, body: str) -> str:
    """The frame around what a file tool answers."""
    return f"<path>{path}</path>\n<type>file</type>\n<content>\n{body}\n</content>"


def window(path: str, offset: int, lines: Sequence[Any], total: int, limit: int) -> str:
    """A numbered window of a file and how to go on."""
    last = offset + len(lines) - 1
    if last >= total:
        footer = f"(End of file - total {total} lines)"
    elif len(lines) < limit:
        footer = f"(Output capped. Showing lines {offset}-{last}. Use offset={last + 1} to continue.)"
    else:
        footer = f"(Showing lines {offset}-{last} of {total}. Use offset={last + 1} to continue.)"
    if not lines:
        return envelope(path, footer)
    numbered = "\n".join(f"{line['number']}: {line['text']}" for line in lines)
    return envelope(path, f"{numbered}\n\n{footer}")


def written(path: str, operation: str) -> str:
    """A write that happened."""
    return envelope(path, "Created file" if operation == "create" else "Updated file")


def edited(path: str, replace_all: bool) -> str:
    """An edit that happened."""
    if replace_all:
        return f"The file {path} has been updated. All occurrences were successfully replaced."
    return f"The file {path} has been updated successfully."


READ_DESCRIPTION = """Read a text file. Each line of the result is prefixed by its number and a colon.

A call returns at most {limit} lines; the last line of the result says whether there is more and which `offset` \
continues. Very long lines are cut. Only regular UTF-8 text files can be read."""

READ_PATH = "Path of the file, absolute or relative to the working directory."
READ_OFFSET = "Number of the first line to return, counting from 1 (default 1)."
READ_LIMIT = "How many lines to return, at most {limit} (the default)."

WRITE_DESCRIPTION = """Write a whole text file: create it, with missing parent directories, or replace all of its \
content.

To replace an existing file, read it first. To change a part of a file, use `edit`."""

WRITE_PATH = "Path of the file, absolute or relative to the working directory."
WRITE_CONTENT = "The complete new content of the file."

EDIT_DESCRIPTION = """Replace an exact piece of text in a file that you have read.

`old_string` must match the file exactly, white space included (leave out the line numbers that `read` shows), and \
must occur once; add neighbouring lines until it does, or set `replace_all` to change every occurrence. Everything \
else in the file stays as it is."""

EDIT_PATH = "Path of the file, absolute or relative to the working directory."
EDIT_OLD = "The text to replace, exactly as it stands in the file."
EDIT_NEW = "The text to put in its place; must differ from old_string."
EDIT_ALL = "Replace every occurrence instead of exactly one (default false)."

READ_GUIDANCE = (
    "Use `read` to look at a file, not shell commands such as cat, head, tail or sed: it numbers the lines, bounds the "
    "output and lets `write` and `edit` know which version you have seen."
)
WRITE_GUIDANCE = (
    "Use `write` for new files and complete rewrites. It refuses to replace a file that you have not read or that "
    "changed since you read it."
)
EDIT_GUIDANCE = (
    "Use `edit` for changes inside a file. Read the file first and copy `old_string` from what you read; when a file "
    "changed meanwhile, read it again before the next edit."
)
