"""``dsh dev``: helpers for people who build on dsh."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsh.cli.output import explain, fail

app = typer.Typer(
    rich_markup_mode=None, add_completion=False, no_args_is_help=True, help="Helpers for building on dsh."
)


@app.callback()
def dev() -> None:
    """Helpers for building on dsh."""


@app.command("mock-llm")
def mock_llm(
    behaviors: Annotated[
        list[str] | None,
        typer.Argument(help="One behaviour a request, e.g. success tool_call_success rate_limit; default success."),
    ] = None,
    script: Annotated[Path | None, typer.Option(help="JSON or YAML list of entries instead of behaviours.")] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="TCP port; 0 picks a free one.")] = 0,
    repeat_last: Annotated[bool, typer.Option(help="Answer further requests with the last entry.")] = False,
    api_key: Annotated[str | None, typer.Option(help="Refuse requests without this bearer key.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the behaviour `random`.")] = 0,
) -> None:
    """Serve scripted chat completions on loopback; prints one JSON line per event.

    Point dsh at it with DEEPSEEK_BASE_URL set to the printed url and any DEEPSEEK_API_KEY.
    """
    import asyncio

    from dsh.models.mock_server import load_script, serve

    if script is not None and behaviors:
        raise typer.BadParameter("give behaviours or --script, not both", param_hint="--script")
    try:
        entries = load_script(script) if script is not None else list(behaviors or ["success"])
    except OSError as error:
        raise typer.BadParameter(explain(error), param_hint="--script") from None
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--script") from None

    def write_line(line: str) -> None:
        print(line, flush=True)

    server = serve(entries, port=port, repeat_last=repeat_last, api_key=api_key, seed=seed, write_line=write_line)
    try:
        asyncio.run(server)
    except ValueError as error:
        fail(str(error))
    except OSError as error:
        fail(explain(error))
