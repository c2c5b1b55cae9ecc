"""Problems of single rows, and checking a row's config before anything starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dsh.cordis.issues import path_text
from dsh.cordis.nearest import nearest
from dsh.cordis.schema import ConfigError, ConfigIssue, ConfigModel, inspect_config, validate_config

from .problems import Problem, Stage
from .rows import ROW_KEYS, Row
from .sources import Source
from .yamlio import Expr


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


def check_config(source: Source, row: Row, declared: Any) -> tuple[list[Problem], list[Problem]]:
    """What is wrong with a row's config whatever its expressions give, and what is odd (unknown keys).

    `declared` is the plugin's `Config`.
    """
    raw = {} if row.config is None else row.config
    found, warnings = inspect_config(declared, raw, lambda value: isinstance(value, Expr))
    issues: list[tuple[str, str]] = list(found)
    if declared is not None and not issues and not has_expression(raw):
        try:
            validate_config(declared, raw)
        except ConfigError as error:
            issues = error.issues
    problems = [issue_problem(source, row, issue) for issue in issues]
    return problems, [issue_problem(source, row, warning) for warning in warnings]


def unknown_keys(source: Source, row: Row, declared: Any = None) -> list[Problem]:
    """A warning for each key that no row has, with the nearest one: of rows, or of the plugin's config."""
    warnings: list[Problem] = []
    fields = declared.fields().values() if isinstance(declared, type) and issubclass(declared, ConfigModel) else ()
    for key in row.unknown:
        near = nearest(key, ROW_KEYS)
        if near is None:
            setting = nearest(key, [info.key for info in fields])
            near = f"config.{setting}" if setting is not None else None
        hint = f'; did you mean "{near}"?' if near else f" (a row has {', '.join(ROW_KEYS)}; settings go into config)"
        warnings.append(
            row_problem(source, row, f"unknown key{hint}", "validate", (key,), allowed=ROW_KEYS, nearest=near)
        )
    return warnings


def has_expression(value: Any) -> bool:
    """Whether an expression stands anywhere inside."""
    if isinstance(value, Expr):
        return True
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return any(has_expression(item) for item in items)
