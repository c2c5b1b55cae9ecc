"""Every text of the two `bash` tools that a model reads."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

NO_OUTPUT = "(no output)"
STDERR = "[stderr]"
BLANK_COMMAND = "invalid command: expected a non-empty string"
BLANK_DESCRIPTION = "invalid description: expected a non-empty string"
LEFT_PROCESS = (
    "[a process started by this command is still running; it ends when this session ends or the turn is cancelled]"
)


def bad_timeout(value: Any) -> str:
    """A time limit that is none."""
    return f"invalid timeoutMs: expected a positive number, got {json.dumps(value)}"


def milliseconds(value: float) -> str:
    """A time in milliseconds without a needless fraction."""
    return str(int(value)) if value == int(value) else str(value)


def foreground(value: Mapping[str, Any]) -> str:
    """What a finished command printed and how it ended."""
    text = _stream(value["stdout"])
    stderr = _stream(value["stderr"])
    if stderr:
        text = on_new_line(text, f"{STDERR}\n{stderr}")
    text = text or NO_OUTPUT
    if value.get("leftProcess"):
        text = on_new_line(text, LEFT_PROCESS)
    if value["timedOut"]:
        text = on_new_line(text, f"[timed out after {milliseconds(value['timeoutMs'])}ms]")
    if value["signal"] is not None:
        return on_new_line(text, f"[killed by signal: {value['signal']}]")
    if value["exitCode"]:
        return on_new_line(text, f"[exit code: {value['exitCode']}]")
    return text


def _stream(stream: Mapping[str, Any]) -> str:
    text: str = stream["text"]
    if stream["truncated"]:
        text += f"\n[output truncated; full output: {stream.get('spillPath', '(unavailable)')}]"
    return text


DESCRIPTION = """Run a command with bash and return what it printed.

Each call starts a fresh, non-interactive shell in the workspace, so `cd`, variables and functions do not carry over \
to the next call. Nothing can be typed into a running command. A command that runs longer than its time limit is \
ended with everything it started."""

COMMAND = "The command line, as bash reads it."
PURPOSE = "What the command does, in a few words, for the person watching."
TIMEOUT = "Time limit in milliseconds; capped by the deployment."
WORKDIR = "Directory to run in, absolute or relative to the workspace (default: the workspace)."

GUIDANCE = (
    "Use `bash` for builds, tests, version control and other programs. Use the file tools to read and change files. "
    "A nonzero exit code is reported at the end of the output and is not an error of the tool."
)

PERSISTENT_DESCRIPTION = """Run a command in a persistent bash shell and return what it printed.

All calls share one shell: the current directory, variables, functions and background jobs carry over to the next \
call. Nothing can be typed into a running command. A command that runs longer than its time limit is ended, and the \
shell with it; the next call then starts in a fresh one."""

PERSISTENT_NO_OWNER = "bash requires an owning agent"
NUL_IN_COMMAND = "invalid command: a command line cannot hold a NUL character"
SHELL_RESET = (
    "The persistent bash shell was reset; the next bash call starts from the workspace with a fresh current directory "
    "and environment."
)
LOST_OUTPUT = "[earlier output was lost: the terminal keeps only the last part of it]"
INPUT_WANTED = "[the command waits for input, which cannot be given; it was interrupted]"


def shell_exited(exit_code: int | None, signal: str | None) -> str:
    """How the persistent shell ended."""
    if signal is not None:
        return f"[shell killed by signal: {signal}]"
    return "[shell exited]" if exit_code is None else f"[shell exited: code {exit_code}]"


def persistent_timeout(timeout_ms: float) -> str:
    """The line above the partial output of a command that took too long."""
    return (
        f"Your command timed out after {timeout_ms / 1000:g} seconds or experienced an OOM error. "
        "Below is partial output:"
    )


def clipped(text: str, most: int) -> str:
    """`text` with its middle left out when it is longer than `most` characters."""
    if len(text) <= most:
        return text
    head = most // 2
    return f"{text[:head]}\n[... {len(text) - most} characters left out ...]\n{text[len(text) - (most - head) :]}"


def on_new_line(text: str, line: str) -> str:
    """`line` behind `text`, on a line of its own."""
    return f"{text}{line}" if not text or text.endswith("\n") else f"{text}\n{line}"
