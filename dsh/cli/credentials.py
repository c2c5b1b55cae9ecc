"""``dsh credentials``: keys by name, kept in an owner-only file of the home folder; values are never printed."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import typer

from dsh.cli.output import fail, guarded, print_table, read_stdin, tell

app = typer.Typer(
    rich_markup_mode=None, add_completion=False, no_args_is_help=True, help="Keys by name; values are never printed."
)

Name = Annotated[str, typer.Argument(help="Name, e.g. DEEPSEEK_API_KEY.")]


@app.command("list")
def list_credentials() -> None:
    """Which names have a value, and where it comes from."""

    async def rows(credentials: Any) -> list[tuple[str, str]]:
        names = dict.fromkeys(["DEEPSEEK_API_KEY", *credentials.references()])
        return [(name, credentials.describe(name).source or "not set") for name in names]

    print_table(_with_credentials(rows), ("NAME", "FROM"))


@app.command("set")
def set_(name: Name) -> None:
    """Store a value: asked for without echo, or read from standard input."""
    value = (typer.prompt(f"Value of {name}", hide_input=True) if sys.stdin.isatty() else read_stdin()).strip()
    if "\n" in value:
        fail("the value has several lines; nothing was stored", 2)
    if not value:
        fail("the value is empty; nothing was stored", 2)
    _with_credentials(lambda credentials: credentials.set(name, value))
    typer.echo(f"stored {name}")


@app.command()
def unset(name: Name) -> None:
    """Forget a stored value."""

    async def forget(credentials: Any) -> bool:
        stored = name in credentials.references()
        await credentials.unset(name)
        return stored

    if not _with_credentials(forget):
        tell(f"nothing is stored as {name}")


def _with_credentials(work: Callable[[Any], Awaitable[Any]]) -> Any:
    import asyncio

    from dsh.cordis import Context
    from dsh.loader.environment import load_launch_environment
    from dsh.loader.home import resolve_home
    from dsh.settings import credentials

    async def run() -> Any:
        async with Context() as root:
            root.provide("launchEnvironment", load_launch_environment(resolve_home()))
            await root.plugin(credentials, {"watch": False})
            return await work(root["credentials"])

    return guarded(lambda: asyncio.run(run()))
