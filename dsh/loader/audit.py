"""Whether a tree runs: the report a start fails with."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dsh.cordis import ConfigModel, HarnessError
from dsh.cordis.inspection import dependency_cycles
from dsh.cordis.schema import REDACTED

from .failures import failures_of, missing_services, plugin_traceback
from .problems import Problem
from .row_checks import row_problem
from .tree import Loader

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.I)


def audit(loader: Loader) -> list[Problem]:
    """Every enabled row that does not run: failed, waiting for services, or never started."""
    problems: list[Problem] = []
    cycles = [" -> ".join([*cycle, cycle[0]]) for cycle in dependency_cycles(loader.fibers())]
    for entry in loader.entries():
        if not entry.tree.audited or entry.stopped or entry.state in ("group", "disabled", "skipped", "active"):
            continue
        failures = [] if entry.subtree is not None else failures_of(entry)
        if failures:
            problems += failures
            continue
        missing = missing_services(entry)
        if missing:
            message = f"waiting for services: {', '.join(missing)}"
            mine = entry.fiber.display_name if entry.fiber is not None else ""
            circle = next((cycle for cycle in cycles if mine in cycle.split(" -> ")), None)
            message += f" (they wait for each other: {circle})" if circle else _provider_hint(loader, missing)
        else:
            message = "never started" if entry.fiber is None else f"is still {entry.state}"
        problems.append(row_problem(entry.tree.source, entry.row, message, "validate"))
    return problems


def _provider_hint(loader: Loader, missing: Iterable[str]) -> str:
    """Which rows would provide what is missing, if they ran."""
    hints: list[str] = []
    for service in missing:
        for entry in loader.entries():
            spec = entry.fiber.spec if entry.fiber is not None else None
            if spec is not None and service in spec.provides and entry.state != "active":
                hints.append(f'row "{entry.address}" provides {service}, but is {entry.state}')
    return f" ({'; '.join(hints)})" if hints else ""


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
