"""File names and commands under a locale that knows ASCII only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import asyncio, json, sys
import dsh.shell.bash, dsh.shell.env, dsh.shell.subprocess, dsh.shell.tool_bash
import dsh.files.local, dsh.files.observation_policy, dsh.files.tools
from pathlib import Path
from tests.files.helpers import FakeAgent, call, root_with_tools, told

async def main():
    rows = (dsh.files.local, dsh.files.observation_policy, dsh.files.tools)
    shell = (dsh.shell.subprocess, dsh.shell.bash, dsh.shell.env, dsh.shell.tool_bash)
    folder = json.loads(sys.argv[1])
    name = json.loads(sys.argv[2])
    agent = FakeAgent(Path(folder))
    async with root_with_tools(*((row, {}) for row in rows + shell)) as root:
        results = [
            await call(root, "write", {"file_path": name, "content": "gr\\u00f6\\u00dfe\\n"}, agent),
            await call(root, "edit", {"file_path": name, "old_string": "\\u00f6", "new_string": "\\u76ee"}, agent),
            await call(root, "read", {"file_path": name}, agent),
            await call(root, "bash", {"command": f"cat '{name}'; pwd", "description": "x"}, agent),
            await call(root, "bash", {"command": "pwd", "description": "x"}),
        ]
    print(json.dumps({"encoding": sys.getfilesystemencoding(), "told": [told(result) for result in results]}))

asyncio.run(main())
"""


def test_f58d_the_locale_does_not_matter(tmp_path: Path) -> None:
    folder = tmp_path / 'ä 目录 "q" 😀'
    folder.mkdir()
    name = "ö 文.txt"
    for extra, encoding in (
        ({"LANG": "C", "PYTHONUTF8": "0"}, None),
        ({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, "ascii"),
    ):
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("LC_", "LANG"))}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, json.dumps(str(folder)), json.dumps(name)],
            env={**environment, **extra, "PYTHONPATH": str(Path(__file__).parents[2])},
            cwd=folder,
            capture_output=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        answer = json.loads(done.stdout)
        if encoding is not None:
            assert answer["encoding"] == encoding
        assert "Created file" in answer["told"][0]
        assert answer["told"][1] == f"The file {folder}/{name} has been updated successfully."
        assert "1: gr目ße" in answer["told"][2]
        assert answer["told"][3] == f"gr目ße\n{folder}\n"
        assert answer["told"][4] == f"{folder}\n"
        assert (folder / name).read_text("utf-8") == "gr目ße\n"
        (folder / name).unlink()
