"""The file tools on a running root, called the way the loop calls them."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import dsh.core.system_prompt
import dsh.core.tools
import dsh.files.local
import dsh.files.observation_policy
import dsh.files.tools
from dsh.cordis import AbortSignal, Context
from dsh.core.session import Session
from dsh.core.session_header import SessionHeader
from dsh.core.tools import ToolInput as Input
from dsh.core.tools import ToolResult, Tools

_ids = itertools.count(1)


class FakeAgent:
    """What tools need of an agent: a session with a workspace, and identity."""

    def __init__(self, workspace: Path | None = None, name: str | None = None) -> None:
        self.id = name or f"agent-{next(_ids)}"
        cwd = None if workspace is None else str(workspace)
        self.session = Session(self.id, header=SessionHeader(id=self.id, created_at=0, cwd=cwd))


@asynccontextmanager
async def root_with_tools(*rows: tuple[ModuleType, Mapping[str, Any]]) -> AsyncIterator[Context]:
    """A root with prompt, tool registry and these plugins, all active."""
    async with Context() as root:
        await root.plugin(dsh.core.system_prompt, {})
        await root.plugin(dsh.core.tools, {})
        for module, config in rows:
            await root.plugin(module, dict(config))
        yield root


@asynccontextmanager
async def root_with_files(
    *, policy: bool = True, fs: Mapping[str, Any] | None = None, tools: Mapping[str, Any] | None = None
) -> AsyncIterator[Context]:
    """A root with `fs-local` and `tool-fs`, and the observation policy unless switched off."""
    rows: list[tuple[ModuleType, Mapping[str, Any]]] = [(dsh.files.local, fs or {}), (dsh.files.tools, tools or {})]
    if policy:
        rows.insert(1, (dsh.files.observation_policy, {}))
    async with root_with_tools(*rows) as root:
        yield root


async def call(
    root: Context, name: str, arguments: Any, agent: Any = None, signal: AbortSignal | None = None
) -> ToolResult:
    """One call through the whole pipeline."""
    return await root[Tools].execute(
        Input(call_id=f"call-{next(_ids)}", name=name, arguments=arguments, agent=agent, signal=signal)
    )


def told(result: ToolResult) -> str:
    """The single text block a model reads."""
    (block,) = result.content
    assert block["type"] == "text"
    return block["text"]


def code(result: ToolResult) -> tuple[str, str] | None:
    """Class name and code of a failure."""
    info = None if result.error is None else result.error.info
    return None if info is None else (info["name"], info["code"])
