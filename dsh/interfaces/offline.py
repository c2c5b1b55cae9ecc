"""Looking at a composition without starting it: what `dsh config show` prints and `dsh config check` reports."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dsh.cordis import ConfigModel, Context, plugin
from dsh.cordis.schema import REDACTED, ConfigError
from dsh.loader.expr import ExprError, names_read
from dsh.loader.expr_names import language_names, unknown_name
from dsh.loader.failures import cycle_message
from dsh.loader.include import IncludeConfig, included
from dsh.loader.operations import PROGRAM
from dsh.loader.patches import Composition, Origin
from dsh.loader.problems import LoadError, Problem
from dsh.loader.raw_rows import walk_rows
from dsh.loader.row_checks import SECRET_KEY, check_config, find_plugin, issue_problem, row_problem, unknown_keys
from dsh.loader.rows import Row
from dsh.loader.sources import Reading, Source
from dsh.loader.yamlio import dump_yaml, expressions_in

from .known_plugins import providers_of
from .offered_routes import unknown_providers
from .service_graph import LAUNCHER_SERVICES, RowServices, ServiceGraph, provided_names

# --- show -----------------------------------------------------------------------------------------------------------


def show(source: Source, *, user_layers: bool = True, reading: Reading | None = None) -> tuple[str, list[Problem]]:
    """The composed rows as one YAML document that loads to the same rows, and the warnings of its layers.

    `reading` is what was read of the source before; without it the files are read now.
    A comment `# == <origin>[, patched by <layers>]` stands before each run of rows that share their provenance.
    Expressions are written as they are, text under keys named like secrets is not. Raises `LoadError`.
    """
    reading = reading or source.read(user_layers=user_layers)
    composition = reading.composition
    parts: list[str] = []
    last = ""
    for row in composition.rows:
        heading = _heading(composition, row)
        if heading != last:
            parts.append(heading)
            last = heading
        parts.append(dump_yaml([redacted(row)]))
    return "".join(parts) or "[]\n", reading.warnings


def _heading(composition: Composition, row: Any) -> str:
    origin = composition.origin(row) or Origin(PROGRAM)
    layers = list(origin.patched_by)
    for inner in walk_rows([row]):
        found = composition.origin(inner)
        if found is not None and inner is not row:
            layers += [name for name in (found.source, *found.patched_by) if name != origin.source]
    patched = f", patched by {', '.join(dict.fromkeys(layers))}" if layers else ""
    return f"# == {origin.source}{patched}\n"


def redacted(value: Any) -> Any:
    """`value` without the texts under keys named like secrets."""
    if isinstance(value, Mapping):
        return {
            key: REDACTED if isinstance(item, str) and SECRET_KEY.search(key) else redacted(item)
            for key, item in value.items()
        }
    return [redacted(item) for item in value] if isinstance(value, list) else value


# --- check ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class CheckResult:
    """What a check found. `rows` counts the rows that would be mounted."""

    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    rows: int = 0
    services: list[RowServices] = field(default_factory=list)
    """What each of the rows needs and provides."""

    @property
    def ok(self) -> bool:
        """Whether the composition can be started, as far as that can be told without starting it."""
        return not self.problems


def check(source: Source, texts: Mapping[Path, str | None] | None = None) -> CheckResult:
    """Read, compose, resolve and import everything, check configs, and look for missing providers and cycles.

    `texts` takes the place of files, so that an edit can be looked at before it is made.
    No plugin is started and no expression evaluated: a row whose `disabled` is an expression counts as enabled, a
    config value that is one counts as right.
    """
    result = CheckResult()
    _Checker(result, result.services, texts).check_tree(source, [])
    result.rows = len(result.services)
    _check_services(result, result.services)
    unread = any(problem.stage == "import" for problem in result.problems)  # whatever those offer
    for problem, certain in () if unread else unknown_providers(result.services):
        (result.problems if certain else result.warnings).append(problem)
    return result


@plugin(name="include", Config=IncludeConfig)
def _include(ctx: Context, config: IncludeConfig) -> None:
    """Stands for the plugin of include rows, which needs a running loader."""


class _Checker:
    def __init__(
        self, result: CheckResult, candidates: list[RowServices], texts: Mapping[Path, str | None] | None
    ) -> None:
        self._result = result
        self._candidates = candidates
        self._texts = texts

    def check_tree(self, source: Source, outer: list[Source]) -> None:
        try:
            reading = source.read(texts=self._texts)
        except LoadError as error:
            self._result.problems += error.problems
            self._result.warnings += error.warnings
            return
        self._result.warnings += reading.warnings
        for row in reading.parsed.rows:
            self._check_row(source, row, {}, [source, *outer])

    def _check_row(self, source: Source, row: Row, injected: Mapping[str, Any], trees: list[Source]) -> None:
        if row.disabled is True or row.is_group:
            self._result.warnings += unknown_keys(source, row)
        if row.disabled is True:
            return
        injected = {**injected, **row.inject}
        if row.is_group:
            for child in row.children:
                self._check_row(source, child, injected, trees)
            return
        found = find_plugin(source, row, _include)
        self._result.problems += [found.problem] if found.problem is not None else []
        self._result.warnings += [found.warning] if found.warning is not None else []
        if found.spec is None:
            return
        self._result.warnings += unknown_keys(source, row, found.spec.Config)
        problems, warnings = check_config(source, row, found.spec.Config)
        self._result.problems += problems
        self._result.warnings += warnings
        self._check_names(source, row, {*found.spec.needs, *injected})
        if not problems:
            self._check_surroundings(source, row, found.spec.Config)
        if found.plugin is not _include:
            assert found.target is not None
            provided, opaque = provided_names(sys.modules.get(found.target.module or ""))
            needs = {*found.spec.needs, *injected}
            self._candidates.append(
                RowServices(
                    source.prefix + row.id, row.name, needs, {*found.spec.provides, *provided}, opaque, source, row
                )
            )
        elif not problems:
            self._check_include(source, row, trees)

    def _check_names(self, source: Source, row: Row, services: set[str]) -> None:
        """Look for names in expressions that stand for nothing; one that may never be read is odd, not wrong."""
        known = {*language_names(), *LAUNCHER_SERVICES, *services}
        for keys, expression in expressions_in(row.config, ("config",)):
            try:
                read = names_read(expression)
            except ExprError:  # was said when the rows were read
                continue
            for name, always in read.items():
                if name not in known:
                    text = f"expression `{expression.source}`: {unknown_name(name)}"
                    problem = row_problem(source, row, text, "config", keys)
                    (self._result.problems if always else self._result.warnings).append(problem)

    def _check_surroundings(self, source: Source, row: Row, declared: Any) -> None:
        if not (isinstance(declared, type) and issubclass(declared, ConfigModel)) or any(expressions_in(row.config)):
            return
        for keys, message in declared.validate(row.config).check_surroundings(source.base_dir):
            self._result.problems.append(row_problem(source, row, message, "config", ("config", *keys)))

    def _check_include(self, source: Source, row: Row, trees: list[Source]) -> None:
        try:
            inner = included(IncludeConfig.validate(row.config), source.prefix + row.id, trees)
        except ConfigError as error:
            self._result.problems += [issue_problem(source, row, issue) for issue in error.issues]
        else:
            self.check_tree(inner, trees)


def _check_services(result: CheckResult, rows: Sequence[RowServices]) -> None:
    graph = ServiceGraph(rows)
    for each, service in graph.missing():
        message = f'it needs the service "{service}", which no row provides'
        if service in each.provides:
            message = f'it needs the service "{service}", which only it provides: it would wait for itself'
        elif graph.opaque:
            message += f" (unless {', '.join(graph.opaque)} does)"
        elif names := providers_of(service):
            message += f": add one named {' or '.join(names)}"
        may_be = graph.opaque and service not in each.provides
        (result.warnings if may_be else result.problems).append(_problem(each, message))
    for cycle in graph.cycles():
        needs = [
            (each.address, sorted(each.needs & after.provides))
            for each, after in zip(cycle, [*cycle[1:], cycle[0]], strict=True)
        ]
        result.problems.append(_problem(cycle[0], cycle_message(needs)))


def _problem(each: RowServices, message: str) -> Problem:
    assert each.source is not None and each.row is not None
    return row_problem(each.source, each.row, message, "validate")
