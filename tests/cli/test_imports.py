"""No command imports what it does not use: libraries that take time, by the modules loaded when it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.kit import Place

LIBRARIES = {
    "acp",
    "anyio",
    "asyncio",
    "httpx",
    "orjson",
    "prompt_toolkit",
    "pydantic",
    "rich",
    "schema",
    "uvloop",
    "watchfiles",
    "xllamacpp",
    "yaml",
    "zstandard",
}

FILES = {"yaml", "orjson", "asyncio", "anyio"}
"""Reading a composition or a document of the home folder, and looking at the classes of its plugins."""

LOGS = {"orjson", "asyncio"}

COMMANDS = {
    "": set(),
    "--help": set(),
    "--version": set(),
    "nonsense": set(),
    "run --nonsense": set(),
    **{
        f"{command} --help": set()
        for command in "run exec resume acp jsonrpc ps attach send tail cancel stop inspect sessions config settings "
        "credentials init local dev plugins models doctor completion".split()
    },
    "config show": FILES,
    "config check": FILES,
    "config get agent-loop": FILES,
    "config schema agent-loop": FILES,
    "settings list": FILES,
    "settings path": FILES,
    "completion bash": set(),
    "completion words -- con": set(),
    "completion words -- config set a": FILES,
    "completion words -- send a": set(),
    "settings set agent-loop.maxParallelToolCalls 4": FILES,
    "credentials list": FILES,
    "sessions list": LOGS,
    "sessions verify": LOGS,
    "sessions search hello": LOGS,
    "sessions fork gone": LOGS,
    "sessions rm gone --yes": LOGS,
    "sessions export gone": LOGS,
    "sessions import gone": LOGS,
    "plugins list": FILES,
    "plugins info tool-bash": FILES,
    "plugins graph": FILES | {"uvloop", "watchfiles"},
    "ps": set(),
    "stop": set(),
    "send main hello": LOGS,
    "tail main": LOGS,
    "init fresh": set(),
    "exec hello": FILES | {"uvloop", "watchfiles", "zstandard"},
}
"""Command lines, each with what it may import of LIBRARIES."""

TRACE = """
import atexit, json, sys
atexit.register(lambda: open({file!r}, "w").write(json.dumps([name for name in {names!r} if name in sys.modules])))
sys.argv = ["dsh", *{words!r}]
from dsh.cli.main import main
main()
"""


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_imports_what_it_uses(tmp_path: Path, command: str) -> None:
    place = Place.make(tmp_path)
    place.init()
    file = tmp_path / "imported.json"
    code = TRACE.format(file=str(file), names=sorted(LIBRARIES), words=command.split())
    subprocess.run(
        [sys.executable, "-c", code],
        cwd=place.work,
        env=place.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
    )
    assert set(json.loads(file.read_text())) <= COMMANDS[command]
