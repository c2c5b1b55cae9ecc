"""A composition started only to be looked at: no agents, no front end, no following of edits."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

from dsh.cli.output import fail

if TYPE_CHECKING:
    from dsh.cordis import Context
    from dsh.loader.boot import App


@asynccontextmanager
async def started(file: Path) -> AsyncIterator[App]:
    """The composition while the block runs, in which standard output is standard error.

    Raises BootError, DotenvRefusedError.
    """
    from dsh.interfaces.plugin_offers import PluginOffers
    from dsh.loader.boot import boot
    from dsh.loader.environment import load_launch_environment
    from dsh.loader.home import resolve_home

    home = resolve_home()

    def prepare(root: Context) -> None:
        root.provide("pluginOffers", PluginOffers())
        root.provide("configuredAgentSessions", {})
        root.provide("startConfiguredAgents", False)
        root.provide("followFiles", False)

    environment = load_launch_environment(home)
    with redirect_stdout(sys.stderr):  # what plugins print is not what the command prints
        async with boot(file, environment=environment, home=home, prepare=prepare) as app:
            yield app


@asynccontextmanager
async def started_or_fail(file: Path) -> AsyncIterator[App]:
    """The same for a command: one that cannot be started ends the command."""
    from dsh.loader.boot import BootError
    from dsh.loader.environment import DotenvRefusedError

    try:
        async with started(file) as app:
            yield app
    except (BootError, DotenvRefusedError) as error:
        fail(str(error).removeprefix("dsh: "))
