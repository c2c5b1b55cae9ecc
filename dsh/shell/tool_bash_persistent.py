"""`tool-bash-persistent`: a tool `bash` whose calls share one shell on a terminal, for each agent its own."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import signal
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from dsh.cordis import AbortError, ConfigModel, Context, field
from dsh.core.agent_events import AgentDisposed
from dsh.core.tools import Output, ToolRun, Tools, define_tool, text
from dsh.core.working_directory import working_directory
from dsh.llm.waiting import until_abort

from . import texts
from .child_env import os_bytes
from .terminal import Sent, Terminals, TerminalSession
from .tool_bash import present_result

if TYPE_CHECKING:
    from dsh.core.agent import Agent
    from dsh.core.tool_presentation import CallCard

name = "tool-bash-persistent"

RECOVERY_MS = 2_000
"""How long an interrupted command may take to give the shell back."""

_VALUE = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "output": {"type": "string", "required": True},
        "exitCode": {"oneOf": [{"type": "integer"}, {"type": "null"}], "required": True},
    },
}


class Config(ConfigModel):
    """Config of a row `tool-bash-persistent`."""

    backend_type: str = field("shell", min=1, description="Type of terminal that the shells run on")
    timeout_ms: int = field(300_000, min=1, live=True, unit="ms", description="Time limit of a command")
    max_output_chars: int = field(16_000, min=1, live=True, description="Characters after which output is shortened")
    description: str | None = field(None, description="What the model is told of the tool, instead of our own text")


def apply(ctx: Context, config: Config, tools: Tools, terminals: Terminals) -> None:
    """Register the tool."""
    shells: WeakKeyDictionary[Agent, _Shell] = WeakKeyDictionary()  # a late call of a gone agent leaves nothing

    @ctx.on(AgentDisposed)
    def forget(event: AgentDisposed) -> None:
        shells.pop(event.agent, None)  # its terminal ends with the agent

    async def close_all() -> None:
        await asyncio.gather(*(shell.reset() for shell in list(shells.values())))

    async def execute(args: Any, run: ToolRun) -> dict[str, Any]:
        command = args["command"]
        if not command.strip():
            raise ValueError(texts.BLANK_COMMAND)
        if "\0" in command:
            raise ValueError(texts.NUL_IN_COMMAND)
        if run.agent is None:
            raise ValueError(texts.PERSISTENT_NO_OWNER)
        shell = shells.get(run.agent)
        if shell is None:
            shell = shells[run.agent] = _Shell(terminals, config)
        async with shell.turn:
            try:
                run.signal.raise_if_aborted()
                return await shell.run(command, run, run.agent)
            except AbortError as error:
                raise AbortError("tool call aborted", run.signal.reason) from error

    ctx.defer(close_all)
    tools.register(
        define_tool(
            "bash",
            config.description or texts.PERSISTENT_DESCRIPTION,
            {"command": {"type": "string", "required": True, "description": texts.COMMAND}},
            Output(schema=_VALUE, render=lambda _args, value: [text(value["output"])]),
            execute,
            present_call=_present_call,
            present_result=present_result,
        )
    )


class _Shell:
    """The shell of one agent. `turn` is held by the call that uses it."""

    def __init__(self, terminals: Terminals, config: Config) -> None:
        self.turn = asyncio.Lock()
        self._terminals = terminals
        self._config = config
        self._session: TerminalSession | None = None

    async def run(self, command: str, run: ToolRun, agent: Agent) -> dict[str, Any]:
        """Run a command and say what came of it; whatever breaks off costs the shell."""
        try:
            died = self._session is not None and self._session.exit is not None
            if died:  # between two calls, by a background job or with its backend
                await self.reset()
            session = self._session or await self._open(run, agent)
            value = await self._run(session, command, run)
        except BaseException:
            await self.reset()
            raise
        if died:
            value["output"] = f"{texts.SHELL_RESET}\n{value['output']}"
        return value

    async def reset(self) -> None:
        """End the shell and everything in it; the next call starts another."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _open(self, run: ToolRun, agent: Agent) -> TerminalSession:
        cwd = working_directory(agent.session) or os.getcwd()
        opening = self._terminals.open(agent, self._config.backend_type, cwd=cwd)
        session = self._session = await until_abort(opening, run.signal)
        await session.send(" stty -echo", signal=run.signal, patient=True)
        return session

    async def _run(self, session: TerminalSession, command: str, run: ToolRun) -> dict[str, Any]:
        mark = secrets.token_hex(12)
        timeout = self._config.timeout_ms
        sent = await session.send(_wrapped(command, mark), signal=run.signal, timeout_ms=timeout, patient=True)
        output, code = _unwrapped(sent, mark)
        output = texts.clipped(output, self._config.max_output_chars)
        if sent.lossy:
            output = f"{texts.LOST_OUTPUT}\n{output}"
        if code is not None:
            output = output or texts.NO_OUTPUT
            return _value(texts.on_new_line(output, f"[exit code: {code}]") if code else output, code)
        if sent.reason == "timeout":
            output = f"{texts.persistent_timeout(timeout)}\n{output}"
        elif sent.reason == "session_exit":
            ended = session.exit
            how = texts.shell_exited(ended.exit_code, ended.signal) if ended else texts.shell_exited(None, None)
            output = texts.on_new_line(output, how)
        else:
            output = texts.on_new_line(output, texts.INPUT_WANTED)
            if await self._recovers(session, run):
                return _value(output, None)
        await self.reset()
        return _value(texts.on_new_line(output, texts.SHELL_RESET), None)

    async def _recovers(self, session: TerminalSession, run: ToolRun) -> bool:
        """Interrupt what waits for input; whether the shell then takes commands again."""
        try:
            session.terminal.signal(signal.SIGINT)
        except (ProcessLookupError, PermissionError):
            return False
        mark = secrets.token_hex(12)
        limits: Any = {"signal": run.signal, "timeout_ms": RECOVERY_MS, "patient": True}
        await session.send("", submit=False, **limits)  # until its prompt is back
        sent = await session.send(_wrapped(":", mark), **limits)
        return _unwrapped(sent, mark)[1] == 0


def _wrapped(command: str, mark: str) -> str:
    """One line that runs `command` in the shell itself, between two marks that even redirected output cannot hide.

    A mark is written in two parts, so that the line itself, should the terminal show it, is none. The CAN before it
    calls off an escape sequence that the command left unfinished.
    """
    return (
        f" printf '\\030%s%s\\n' {mark} :begin >/dev/tty; eval -- {_quoted(command)}; "
        f"printf '\\030%s%s:%s\\n' {mark} :end \"$?\" >/dev/tty"
    )


def _unwrapped(sent: Sent, mark: str) -> tuple[str, int | None]:
    """What the command printed and its exit code, None if it did not come to its end."""
    output = sent.output
    ended = re.search(rf"{mark}:end:(\d+)\n", output)
    if ended is not None:
        output = output[: ended.start()]
    _, begun, behind = output.partition(f"{mark}:begin\n")
    return behind if begun or not sent.lossy else output, None if ended is None else int(ended[1])


def _quoted(command: str) -> str:
    """`command` as one word of bash in printable ASCII, so that no line editor sees a key in it."""
    plain = "".join(
        chr(byte) if 32 <= byte < 127 and byte not in b"'\\!" else f"\\x{byte:02x}" for byte in os_bytes(command)
    )
    return f"$'{plain}'"


def _value(output: str, exit_code: int | None) -> dict[str, Any]:
    return {"output": output, "exitCode": exit_code}


def _present_call(args: Any) -> CallCard | None:
    return {"card": "terminal", "title": args["command"]}
