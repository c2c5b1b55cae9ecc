"""`tool-bash`: the tool `bash`, one command line a call, run to its end."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from dsh.cordis import AbortError, ConfigModel, Context, field
from dsh.core.agent_events import AgentDisposed
from dsh.core.system_prompt import SystemPrompt
from dsh.core.tools import Output, ToolDefinition, ToolRun, Tools, define_tool, text
from dsh.core.working_directory import working_directory

from . import texts
from .service import ChildProcess, Shell, ShellEnv, ShellRequest, ShellStream

if TYPE_CHECKING:
    from dsh.core.tool_presentation import CallCard, PresentedResult, ResultCard, TerminalCall, TerminalResult

name = "tool-bash"

_PILL = re.compile(r"\n\[(?:exit code: (-?\d+)|killed by signal: (\w+))\]\Z")
_STREAM = {
    "type": "object",
    "additionalProperties": False,
    "required": True,
    "properties": {
        "text": {"type": "string", "required": True},
        "truncated": {"type": "boolean", "required": True},
        "spillPath": {"type": "string"},
    },
}
VALUE = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "kind": {"type": "string", "const": "foreground", "required": True},
        "exitCode": {"oneOf": [{"type": "integer"}, {"type": "null"}], "required": True},
        "signal": {"oneOf": [{"type": "string"}, {"type": "null"}], "required": True},
        "timedOut": {"type": "boolean", "required": True},
        "aborted": {"type": "boolean", "required": True},
        "timeoutMs": {"type": "number", "required": True},
        "stdout": _STREAM,
        "stderr": _STREAM,
        "leftProcess": {"type": "boolean"},
    },
}


class Config(ConfigModel):
    """Config of a row `tool-bash`."""

    enable_run_in_background: bool = field(True, description="Let commands run in the background while jobs are there")
    allow_parallel: bool = field(False, live=True, description="Let the commands of one step run at the same time")


def apply(ctx: Context, config: Config, tools: Tools, shell: Shell, system_prompt: SystemPrompt) -> None:
    """Register the tool and its guidance."""
    tools.register(bash_tool(ctx, config, shell))
    system_prompt.section("tool:bash", 105, texts.GUIDANCE)


def bash_tool(ctx: Context, config: Config, shell: Shell) -> ToolDefinition:
    """The definition; `config` is read at each call."""
    left = _LeftProcesses(ctx)

    async def execute(args: Any, run: ToolRun) -> dict[str, Any]:
        command = args["command"]
        timeout = args.get("timeoutMs")
        if not command.strip():
            raise ValueError(texts.BLANK_COMMAND)
        if not args["description"].strip():
            raise ValueError(texts.BLANK_DESCRIPTION)
        if timeout is not None and timeout <= 0:
            raise ValueError(texts.bad_timeout(timeout))
        environment = ctx.get(ShellEnv)
        spec = shell.resolve(
            ShellRequest(
                command=command,
                workdir=_workdir(run, args.get("workdir")),
                timeout_ms=timeout,
                signal=run.signal,
                dsh_env=None if environment is None else environment.variables(run.agent),
            )
        )
        result = await shell.run(spec)
        if result.aborted:
            raise AbortError("tool call aborted", run.signal.reason)
        value: dict[str, Any] = {
            "kind": "foreground",
            "exitCode": result.exit_code,
            "signal": result.signal,
            "timedOut": result.timed_out,
            "aborted": False,
            "timeoutMs": result.timeout_ms,
            "stdout": _stream(result.stdout),
            "stderr": _stream(result.stderr),
        }
        if result.child is not None:
            left.keep(run, result.child)
            value["leftProcess"] = True
        return value

    return define_tool(
        "bash",
        texts.DESCRIPTION,
        {
            "command": {"type": "string", "required": True, "description": texts.COMMAND},
            "description": {"type": "string", "required": True, "description": texts.PURPOSE},
            "timeoutMs": {"type": "number", "description": texts.TIMEOUT},
            "workdir": {"type": "string", "description": texts.WORKDIR},
        },
        Output(schema=VALUE, render=lambda _args, value: [text(texts.foreground(value))]),
        execute,
        is_concurrency_safe=lambda _args: config.allow_parallel,
        present_call=_present_call,
        present_result=present_result,
    )


class _LeftProcesses:
    """What commands left running: ended when their turn is cancelled or their agent goes, at the latest with the
    process service."""

    def __init__(self, ctx: Context) -> None:
        self._by_session: dict[str, list[ChildProcess]] = {}
        ctx.on(AgentDisposed, self._end)

    def keep(self, run: ToolRun, child: ChildProcess) -> None:
        run.signal.on_abort(child.terminate)
        if run.agent is not None:
            known = self._by_session.setdefault(run.agent.session.id, [])
            known[:] = [other for other in known if other.left_processes]
            known.append(child)

    def _end(self, event: AgentDisposed) -> None:
        for child in self._by_session.pop(event.agent.session.id, ()):
            child.terminate()


def _workdir(run: ToolRun, asked: str | None) -> str | None:
    workspace = None if run.agent is None else working_directory(run.agent.session)
    return asked if workspace is None else os.path.join(workspace, asked or "")


def _stream(stream: ShellStream) -> dict[str, Any]:
    value: dict[str, Any] = {"text": stream.text, "truncated": stream.truncated}
    if stream.spill_path is not None:
        value["spillPath"] = stream.spill_path
    return value


def _present_call(args: Any) -> CallCard | None:
    card: TerminalCall = {"card": "terminal", "title": args["command"], "description": args["description"]}
    if "workdir" in args:
        card["cwd"] = args["workdir"]
    return card


def present_result(_args: Any, result: PresentedResult) -> ResultCard | None:
    output = "".join(block["text"] for block in result["content"] if block["type"] == "text")
    if result["isError"]:
        return {"card": "generic", "content": result["content"]}
    card: TerminalResult = {"card": "terminal", "output": output}
    pill = _PILL.search(output)
    if pill is None:
        card["exitCode"] = 0
    else:
        card["output"] = output[: pill.start()]
        if pill[1] is not None:
            card["exitCode"] = int(pill[1])
        else:
            card["signal"] = pill[2]
    return card
