"""Command line values that take the short way are those typer would have made, and the start stays light."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import typer

from dsh.cli import quick_values
from dsh.cli.main import COMMANDS, app

LINES: list[list[str]] = [
    ["run"],
    ["run", "cordis.yml", "--patch", "a.yml", "--patch", "b.yml", "--set", "x.y=1", "--set", "x.z=2", "--no-watch"],
    ["exec", "task", "--timeout", "2.5", "--cwd", "."],
    ["exec", "task", "--timeout", "soon"],
    ["exec", "task", "--timeout", "0"],
    ["exec"],
    ["dev", "mock-llm", "success", "stall", "--port", "8080"],
    ["dev", "mock-llm"],
    ["dev", "mock-llm", "--port", "70000"],
    ["sessions", "list", "--all", "--cwd", "x"],
    ["resume", "--last", "go on"],
    ["init", "new"],
    ["init"],
]


def outcome(line: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """The arguments the command would get, or what typer complains about."""
    group = typer.main.get_command(app)
    seen: list[Any] = []
    with monkeypatch.context() as patch:
        context = group.make_context("dsh", list(line))
        name, command, rest = group.resolve_command(context, [*line])  # type: ignore[attr-defined]
        try:
            inner = command.make_context(name, rest, parent=context)
            while getattr(command, "commands", None):
                name, command, rest = command.resolve_command(inner, [*inner._protected_args, *inner.args])
                inner = command.make_context(name, rest, parent=inner)
            seen.append(inner.params)
        except Exception as error:
            seen.append((type(error).__name__, str(error)))
        del patch
    return seen


@pytest.mark.parametrize("line", LINES, ids=" ".join)
def test_values_equal_those_of_typer(line: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    quick = outcome(line, monkeypatch)
    monkeypatch.setattr(quick_values.QuickValue, "coerce", _typers_own)
    assert quick == outcome(line, monkeypatch)


def _typers_own(_self: object, value: Any, param: Any, ctx: Any) -> Any:
    param._runtime_param = None
    return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


def test_parameters_of_another_shape_are_left_alone() -> None:
    class Strange:
        _runtime_param = None

    strange = Strange()
    assert quick_values.use_quick_values([strange]) == [strange] and strange._runtime_param is None


@pytest.mark.parametrize("line", [["--help"], ["run", "--help"], ["sessions", "list"]], ids=" ".join)
async def test_the_start_imports_no_slow_library(line: list[str], tmp_path: Path) -> None:
    code = (
        "import sys, atexit\n"
        "from dsh.cli.main import main\n"
        "heavy = {'pydantic', 'httpx', 'rich', 'prompt_toolkit', 'watchfiles'}\n"
        "atexit.register(lambda: print('HEAVY', sorted(heavy & set(sys.modules)), file=sys.stderr))\n"
        f"sys.argv = ['dsh', *{line!r}]\n"
        "main()"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        code,
        env={"DSH_HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, err = await asyncio.wait_for(process.communicate(), 40)
    assert process.returncode == 0 and b"HEAVY []" in err


def test_every_command_of_the_table_is_there() -> None:
    group = typer.main.get_command(app)
    context = group.make_context("dsh", ["run"])
    assert all(group.get_command(context, name) is not None for name in COMMANDS)  # type: ignore[attr-defined]
