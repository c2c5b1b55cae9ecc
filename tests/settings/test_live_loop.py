"""The model case of a live setting: `maxParallelToolCalls`, set by another process while agents run."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from dsh.loader.boot import boot
from dsh.loader.environment import LaunchEnvironment
from dsh.loader.home import Home
from tests.settings.helpers import until

ROWS = """\
- {id: session, name: dsh-session}
- {id: agent, name: dsh-agent}
- {id: llm, name: dsh-llm}
- {id: tools, name: dsh-tools}
- {id: system-prompt, name: dsh-system-prompt}
- {id: loop, name: dsh-agent-loop, config: {maxParallelToolCalls: 7}}
- {id: settings, name: dsh-settings-file, config: {debounceMs: 40}}
- {id: hmr, name: dsh-hmr, config: {debounce: 20}}
"""


async def command(folder: Path, *args: str) -> tuple[int, str]:
    """Run `dsh` with this folder's home; exit code and what it said on stderr."""
    environment = {**os.environ, "DSH_HOME": str(folder / "home")}
    done: Any = await anyio.run_process(
        [sys.executable, "-m", "dsh.cli.main", *args], env=environment, cwd=folder, check=False
    )
    return done.returncode, done.stderr.decode()


@pytest.mark.timeout(120)
async def test_b21b_the_limit_of_a_running_loop_follows_the_command_line_the_row_and_each_falls_back(
    tmp_path: Path,
) -> None:
    config = tmp_path / "cordis.yml"
    config.write_text(ROWS)
    home = Home(tmp_path / "home", "$DSH_HOME")
    async with boot(config, home=home, environment=LaunchEnvironment([]), cwd=tmp_path) as app:
        loop = app.root["agentLoop"]
        fiber = app.loader.resolve("loop").fiber
        assert loop.max_parallel_tool_calls == 7
        assert (await command(tmp_path, "settings", "set", "agent-loop.maxParallelToolCalls", "2"))[0] == 0
        await until(lambda: loop.max_parallel_tool_calls == 2)
        stored = home.join("settings.yaml").read_bytes()
        for bad in ("0", "1.5", "x"):
            code, said = await command(tmp_path, "settings", "set", "agent-loop.maxParallelToolCalls", bad)
            assert code != 0
            assert "agent-loop.maxParallelToolCalls: must be" in said
            assert home.join("settings.yaml").read_bytes() == stored
        config.write_text(ROWS.replace("Calls: 7", "Calls: 9"))
        await until(lambda: app.loader.resolve("loop").row.config["maxParallelToolCalls"] == 9)
        assert loop.max_parallel_tool_calls == 2
        assert (await command(tmp_path, "settings", "unset", "agent-loop.maxParallelToolCalls"))[0] == 0
        await until(lambda: loop.max_parallel_tool_calls == 9)
        home.join("settings.yaml").write_text("agent-loop: {maxParallelToolCalls: 3}\n")
        await until(lambda: loop.max_parallel_tool_calls == 3)
        config.write_text(
            ROWS.replace("Calls: 7", "Calls: 9").replace("- {id: settings", "- {id: settings, disabled: true")
        )
        await until(lambda: loop.max_parallel_tool_calls == 9)
        assert app.loader.resolve("loop").fiber is fiber
