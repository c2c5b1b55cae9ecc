"""Whether a tree runs: the report a start fails with."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dsh.cordis import ConfigModel, HarnessError
from dsh.cordis.schema import REDACTED

from .failures import failures_of, plugin_traceback
from .problems import Problem
from .row_checks import row_problem
from .tree import Loader

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.I)


def audit(loader: Loader) -> list[Problem]:
    """Every enabled row that does not run: failed, waiting for services, or never started.

    A row of the program, which stands in no file, only waits for what the file lacks: it is named when nothing else is.
    """
    problems: list[Problem] = []
    ours: list[Problem] = []
    waits = loader.reports.waiting()
    for entry in loader.entries():
        if not entry.tree.audited or entry.stopped or entry.state in ("group", "disabled", "skipped", "active"):
            continue
        failures = [] if entry.subtree is not None else failures_of(entry)
        if failures:
            problems += failures
            continue
        problem = waits.get(entry)
        if problem is None:
            message = "never started" if entry.fiber is None else f"is still {entry.state}"
            problem = row_problem(entry.tree.source, entry.row, message, "validate")
        known = problems if entry.row.mark is not None else ours
        if problem not in known:  # rows that wait for each other share one
            known.append(problem)
    return problems or ours


def report(problems: Iterable[Problem]) -> str:
    """Problems with the traceback of the plugin that raised, where there is one.

    What a plugin says of its configuration or surroundings (`HarnessError`) is for the person who wrote the file; where
    in the plugin it was said is shown only to whoever asked for more log lines.
    """
    parts: list[str] = []
    asked = logging.getLogger("dsh").isEnabledFor(logging.INFO)
    for problem in problems:
        parts.append(str(problem))
        if problem.error is None or problem.stage not in ("apply", "import", "rollback"):
            continue
        if asked or not isinstance(problem.error, HarnessError):
            parts.append(plugin_traceback(problem.error))
    return "\n".join(parts)


def secrets_of(loader: Loader | None, env: Mapping[str, str]) -> set[str]:
    """Values that must not be printed: environment variables named like secrets, and secret config fields."""
    found = {value for name, value in env.items() if _SECRET_NAME.search(name)}
    for fiber in loader.fibers() if loader is not None else ():
        found.update(_secret_values(fiber.config, False))
    return {value for value in found if len(value) >= 6}


def _secret_values(value: Any, secret: bool) -> Iterator[str]:
    """The texts under secret fields, wherever in a config they lie."""
    if isinstance(value, ConfigModel):
        for info in value.fields().values():
            yield from _secret_values(getattr(value, info.name), secret or info.secret)
    elif isinstance(value, (Mapping, list, tuple, set, frozenset)):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _secret_values(item, secret)
    elif secret and isinstance(value, str):
        yield value


def masked(text: str, secrets: Iterable[str]) -> str:
    """`text` without the given values."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, REDACTED)
    return text
