"""The composition: does it check, are there keys, does its model answer."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from dsh.cli.health.finding import Finding, ok, problem, warning

SHOWN = 3
"""Problems and warnings that are printed."""

ANSWER_SECONDS = 60.0
QUESTION = "Answer with the one word: ready"


def mounted_plugins(file: Path) -> set[str]:
    """The short names of the built-in plugins that a composition mounts; empty for one that cannot be read."""
    from dsh.cordis.errors import HarnessError
    from dsh.loader.boot import make_source
    from dsh.loader.include import walk_composition
    from dsh.loader.names import short_name

    try:
        rows = [row for _, row in walk_composition(make_source(file)) if row.disabled is not True]
    except HarnessError:
        return set()
    return {name for row in rows if (name := short_name(row.name)) is not None}


def check_composition(file: Path, *, packaged: bool) -> Iterator[Finding]:
    """packaged: it is the one that ships with dsh, because there is no cordis.yml here."""
    from dsh.interfaces.offline import check
    from dsh.loader.boot import make_source
    from dsh.loader.resolve import show_path

    with redirect_stdout(sys.stderr):  # plugins are imported, and some print
        result = check(make_source(file))
    shown = "the packaged composition (no cordis.yml here)" if packaged else show_path(file)
    for each in result.problems[:SHOWN]:
        yield problem("composition", str(each))
    hidden = len(result.problems) - SHOWN
    if hidden > 0:
        yield problem("composition", f"{hidden} more problems", f"`dsh config check {show_path(file)}` names all")
    for each in result.warnings[:SHOWN]:
        yield warning("composition", str(each))
    if len(result.warnings) > SHOWN:
        text = f"{len(result.warnings) - SHOWN} more warnings"
        yield warning("composition", text, f"`dsh config check {show_path(file)}` names all")
    if not result.problems:
        yield ok("composition", f"{shown}, {result.rows} rows")


async def check_models(file: Path, *, online: bool) -> list[Finding]:
    """Which keys are there, and which model answers agents that name none; asks it for a word when `online`.

    Starts the composition without its agents.
    """
    from dsh.cli.looking import started
    from dsh.loader.boot import BootError
    from dsh.loader.environment import DotenvRefusedError

    try:
        async with started(file) as app:
            return [*_keys(app.root), *await _models(app.root, online=online)]
    except (BootError, DotenvRefusedError) as error:
        return [problem("start", str(error).removeprefix("dsh: "))]


def _keys(root: Any) -> Iterator[Finding]:
    from dsh.settings.service import Credentials

    credentials = root.get(Credentials)
    if credentials is None:
        return
    asked_for = [getattr(fiber.config, "api_key_env", None) for fiber in root["loader"].fibers()]
    stored: list[str] = getattr(credentials, "references", list)()
    for name in dict.fromkeys(name for name in (*asked_for, *stored) if isinstance(name, str)):
        found = credentials.describe(name)
        if found.configured:
            yield ok("credentials", f"{name} from {found.source}")
        else:
            yield warning("credentials", f"{name} is not set", f"`dsh credentials set {name}`, or export it")


async def _models(root: Any, *, online: bool) -> list[Finding]:
    from dsh.interfaces.catalog import catalog
    from dsh.llm.service import Llm

    llm = root.get(Llm)
    if llm is None:
        return [warning("model", "no row of this composition calls models")]
    found = await catalog(root, llm)
    default = found["default"]
    if default is None:
        return [warning("model", "there is no default: every agent has to name its model", "`dsh models`")]
    route = f"{default['provider']}/{default['model']}"
    reasons = {each["id"]: each["unusable"] for each in found["providers"]}
    reason = reasons.get(default["provider"], f'no row offers the provider "{default["provider"]}"')
    if reason is not None:
        return [problem("model", f"the default {route} cannot be used: {reason}", "`dsh models` shows what can")]
    findings = [ok("model", f"the default is {route}" + ("" if online else "; --online asks it"))]
    if default["provider"] == "demo":
        findings = [warning("model", f"the default is {route}: scripted replies", "`dsh models` says what others lack")]
    return [*findings, await _asked(llm, default)] if online else findings


async def _asked(llm: Any, route: dict[str, Any]) -> Finding:
    import asyncio

    from dsh.llm.call_config import CallConfig
    from dsh.llm.failure import failure_of
    from dsh.llm.message import create_user_message
    from dsh.llm.types import LlmRequest

    name = f"{route['provider']}/{route['model']}"
    begin = time.monotonic()
    failure: str | None = None
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            config = CallConfig(route["provider"], route["model"], max_tokens=64)
            call = await llm.prepare_call(config)
            request = LlmRequest(call.config, [create_user_message(QUESTION)], purpose="doctor")
            async for chunk in call.stream(request):
                if chunk["type"] == "finish" and chunk["reason"]["kind"] == "error":
                    failure = str(chunk["reason"].get("failure", {}).get("message", "it failed"))
    except TimeoutError:
        failure = f"no answer within {ANSWER_SECONDS:g} s"
    except Exception as error:
        failure = failure_of(error).message
    if failure is not None:
        return problem("model", f"{name} does not answer: {failure}")
    return ok("model", f"{name} answered in {time.monotonic() - begin:.1f} s")
