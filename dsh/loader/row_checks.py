"""Problems of single rows, and checking a row's config before anything starts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dsh.cordis import CordisError, resolve_plugin
from dsh.cordis.errors import describe_error
from dsh.cordis.issues import path_text
from dsh.cordis.nearest import meant, nearest
from dsh.cordis.plugins import PluginSpec
from dsh.cordis.schema import ConfigError, ConfigIssue, ConfigModel, inspect_config, validate_config

from .problems import Problem, Stage
from .resolve import PluginImportError, ResolveError, Target, load, resolve
from .rows import ROW_KEYS, Row
from .sources import Source
from .yamlio import Expr, expressions_in

SECRET_KEY = re.compile(r"(?:api[-_]?key|token|secret|password|passphrase)$", re.I)
"""What a key that holds a secret may be called; such a value is never printed."""


def row_problem(
    source: Source, row: Row, message: str, stage: Stage, keys: tuple[str | int, ...] = (), **extra: Any
) -> Problem:
    """A problem of one row, with its place."""
    problem = Problem(
        message,
        stage,
        file=source.shown,
        row=source.prefix + row.id,
        key=path_text(keys) or None,
        plugin=row.name,
        **extra,
    )
    return problem.at(row.find_mark(keys))


def issue_problem(source: Source, row: Row, issue: tuple[str, str], **extra: Any) -> Problem:
    """A config issue of one row."""
    if not isinstance(issue, ConfigIssue):  # of a foreign validator: its path cannot be followed
        path, message = issue
        return row_problem(source, row, f"{path}: {message}" if path else message, "config", ("config",), **extra)
    extra.update(allowed=issue.allowed, nearest=issue.nearest)
    return row_problem(source, row, issue.message, "config", ("config", *issue.keys), **extra)


@dataclass(slots=True)
class Found:
    """What the name of a row leads to; `problem` says why it leads nowhere, `warning` why nothing is mounted."""

    target: Target | None = None
    plugin: Any = None
    spec: PluginSpec | None = None
    problem: Problem | None = None
    warning: Problem | None = None


def find_plugin(source: Source, row: Row, include: Any) -> Found:
    """Resolve and import the plugin of a row that is no group; `include` is the plugin of include rows."""
    found = Found()
    try:
        found.target = resolve(row.name, source.base_dir)
        if found.target.kind == "skipped":
            message = "it belongs to a browser page; the row is kept and not mounted"
            found.warning = row_problem(source, row, message, "import")
        else:
            found.plugin = include if found.target.kind == "include" else load(found.target)
            found.spec = resolve_plugin(found.plugin)
    except ResolveError as error:
        found.problem = row_problem(source, row, describe_error(error), "import", ("name",), nearest=error.nearest)
    except (PluginImportError, CordisError) as error:
        found.problem = row_problem(source, row, describe_error(error), "import", error=error.__cause__ or error)
    return found


def check_config(source: Source, row: Row, declared: Any) -> tuple[list[Problem], list[Problem]]:
    """What is wrong with a row's config whatever its expressions give, and what is odd (unknown keys).

    `declared` is the plugin's `Config`.
    """
    raw = {} if row.config is None else row.config
    found, warnings = inspect_config(declared, raw, lambda value: isinstance(value, Expr))
    issues: list[tuple[str, str]] = list(found)
    if declared is not None and not issues and not any(expressions_in(raw)):
        try:
            validate_config(declared, raw)
        except ConfigError as error:
            issues = error.issues
    problems = [issue_problem(source, row, issue) for issue in issues]
    return problems, [issue_problem(source, row, _about_secret(raw, warning)) for warning in warnings]


def _about_secret(config: Any, warning: ConfigIssue) -> ConfigIssue:
    """What is said of an unknown key, with the place for secrets if it holds one."""
    *path, last = warning.keys or ("",)
    for key in path:
        try:
            config = config[key]
        except (KeyError, IndexError, TypeError):
            return warning
    value = config.get(last) if isinstance(config, Mapping) else None
    if not isinstance(value, str) or not SECRET_KEY.search(str(last)):
        return warning
    message = f"{warning.message} (a secret never stands in a composition: `dsh credentials set NAME` stores it)"
    return ConfigIssue(warning.keys, message, warning.allowed, warning.nearest)


def unknown_keys(source: Source, row: Row, declared: Any = None) -> list[Problem]:
    """A warning for each key that no row has, with the nearest one: of rows, or of the plugin's config."""
    warnings: list[Problem] = []
    fields = declared.fields().values() if isinstance(declared, type) and issubclass(declared, ConfigModel) else ()
    for key in row.unknown:
        near = nearest(key, ROW_KEYS)
        if near is None:
            setting = nearest(key, [info.key for info in fields])
            near = f"config.{setting}" if setting is not None else None
        hint = meant(near) or f" (a row has {', '.join(ROW_KEYS)}; settings go into config)"
        warnings.append(
            row_problem(source, row, f"unknown key{hint}", "validate", (key,), allowed=ROW_KEYS, nearest=near)
        )
    return warnings
