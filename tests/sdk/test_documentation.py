"""The examples of the docstrings run as they stand."""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import textwrap
from pathlib import Path
from typing import Any

import pytest

import dsh.sdk
import dsh.sdk.sync
from dsh.models.mock_server import MockLlmServer
from dsh.sdk import events, run, session, settings

from .kit import call, made

DOCUMENTED = {
    "dsh.sdk": dsh.sdk,
    "Harness": dsh.sdk.Harness,
    "Session": session.Session,
    "Run": run.Run,
    "settings": settings.HarnessSettings,
    "events": events,
}


def example(documented: Any) -> str:
    """The indented block of a docstring."""
    text = inspect.getdoc(documented)
    assert text is not None
    block = []
    for line in text.split("\n"):
        if line.startswith("    ") or (block and not line):
            block.append(line)
        elif block:
            break
    return textwrap.dedent("\n".join(block))


@pytest.mark.parametrize("name", DOCUMENTED)
async def test_an_example_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = made(tmp_path / "place")
    monkeypatch.chdir(place.work)
    monkeypatch.setenv("DSH_HOME", str(place.home))
    reply = {"text": "A cordis.yml.", **call("bash", '{"command": "ls", "description": "look"}')}
    async with MockLlmServer([reply, *[{"text": "A cordis.yml."}] * 3]) as server:
        monkeypatch.setenv("DEEPSEEK_BASE_URL", server.url)
        monkeypatch.setenv("DEEPSEEK_API_KEY", "key")
        code = compile(example(DOCUMENTED[name]), name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        async with dsh.sdk.Harness() as harness:
            names = {**vars(dsh.sdk), "asyncio": asyncio, "harness": harness, "session": await harness.session()}
            await eval(code, names)
    printed = capsys.readouterr().out
    assert name == "settings" or "A cordis.yml." in printed, printed


def test_the_example_without_a_loop_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from .test_sync import serving

    place = made(tmp_path / "place")
    monkeypatch.chdir(place.work)
    with serving([{"text": "A cordis.yml."}]) as server:
        for key, value in (
            ("DSH_HOME", str(place.home)), ("DEEPSEEK_BASE_URL", server.url), ("DEEPSEEK_API_KEY", "key")
        ):  # fmt: skip
            monkeypatch.setenv(key, value)
        exec(example(dsh.sdk.sync), {})
    assert "turn/end" in (printed := capsys.readouterr().out) and printed.endswith("A cordis.yml.\n")
    assert os.environ["DSH_HOME"] == str(place.home)
