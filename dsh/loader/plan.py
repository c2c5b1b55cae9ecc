"""What an edit means: the rows as they shall be, compared with the entries that run. Nothing is touched here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from .entries import Entry, Shape, Standing, Tree, derive, same_shape, shape_of
from .expr import ExprError, evaluate, truthy
from .include import IncludeConfig, inline_layers
from .patches import Layer
from .problems import LoadError, Problem
from .row_checks import check_config, find_plugin, row_problem, unknown_keys
from .rows import Row
from .sources import Reading
from .yamlio import Expr, same_value

if TYPE_CHECKING:
    from dsh.cordis import Context
    from dsh.cordis.plugins import PluginSpec

Action = Literal["keep", "mount", "replace", "unload", "remove"]


@dataclass(slots=True, eq=False, kw_only=True)
class Step(Standing):
    """One row as it shall stand, and what has to happen to its entry for that."""

    entry: Entry
    is_new: bool = False
    enabled: bool = False
    spec: PluginSpec | None = None
    action: Action = "keep"
    rebases: bool = False
    updates: bool = False
    moved: bool = False
    renewed: bool = False
    """New code is put under the row."""
    problems: list[Problem] = field(default_factory=list)

    @property
    def starts(self) -> bool:
        """Whether a new fiber is mounted."""
        return self.action in ("mount", "replace")

    @property
    def leaves(self) -> bool:
        """Whether its fiber goes for good."""
        return self.action in ("unload", "remove")


@dataclass(slots=True)
class Plan:
    """An edit of one tree. `nested` are edits of includes whose patches change with it."""

    tree: Tree
    reading: Reading
    steps: list[Step] = field(default_factory=list)
    nested: list[Plan] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    inline: list[Layer] | None = None
    """The include's patches, if they change."""

    def walk(self) -> Iterator[Plan]:
        """This plan and those of includes below."""
        yield self
        for plan in self.nested:
            yield from plan.walk()


def kept(entry: Entry, action: Action = "keep") -> Step:
    """A step that leaves a row standing as it does."""
    step = Step(entry.row, entry.base, entry=entry, enabled=True, action=action)
    step.stand_as(entry)
    return step


def make_plan(tree: Tree, reading: Reading) -> Plan:
    """Compare a reading with what runs. Imports the plugins of rows that shall start, and checks their configs.

    Problems of single rows are collected in the plan and noted on their steps.
    """
    plan = Plan(tree, reading, warnings=reading.warnings)
    planner = _Planner(tree, plan)
    for row in reading.parsed.rows:
        planner.add(row, None)
    wanted = {step.entry for step in plan.steps}
    plan.steps += [kept(entry, "remove") for entry in tree.entries.values() if entry not in wanted]
    return plan


class _Planner:
    def __init__(self, tree: Tree, plan: Plan) -> None:
        self._tree = tree
        self._plan = plan
        self._bases: dict[Entry | None, tuple[Context, Shape]] = {None: (tree.ctx, ())}

    def add(self, row: Row, parent: Step | None) -> None:
        known = self._tree.entries.get(row.id)
        entry = known or Entry(self._tree, row)
        step = Step(row, entry.base, entry=entry, is_new=known is None)
        self._plan.steps.append(step)
        step.parent = parent.entry if parent is not None else None
        step.moved = not step.is_new and step.parent is not step.entry.parent
        outer = parent.injected if parent is not None else {}
        step.injected = {**outer, **row.inject}
        self._place(step)
        step.enabled = (parent is None or parent.enabled) and self._is_enabled(step)
        if step.enabled and not row.is_group and not step.problems:
            self._find_plugin(step)
        if row.unknown:
            self._plan.warnings += unknown_keys(self._tree.source, row, self._config_type(step))
        if row.is_group:
            step.action = "unload" if step.entry.is_mounted else "keep"
            for child in row.children:
                self.add(child, step)
            return
        if not step.problems:
            self._decide(step)

    def _refuse(self, step: Step, problem: Problem) -> None:
        step.problems.append(problem)
        self._plan.problems.append(problem)

    def _place(self, step: Step) -> None:
        """The context the row stands in; the one it has, if that means the same."""
        entry, row = step.entry, step.row
        outer_base, outer_shape = self._bases[step.parent]
        step.shape = shape_of(row, entry, outer_shape)
        if not step.is_new and same_shape(entry.shape, step.shape):
            step.base, step.shape = entry.base, entry.shape
        elif same_shape(outer_shape, step.shape):
            step.base, step.shape = outer_base, outer_shape
        else:
            step.base = derive(self._tree.ctx, step.shape)
        if row.is_group:
            self._bases[entry] = (step.base, step.shape)

    def _is_enabled(self, step: Step) -> bool:
        disabled = step.row.disabled
        if not isinstance(disabled, Expr):
            return not disabled
        try:
            return not truthy(evaluate(disabled, step.entry.scope(self._tree.loader.ctx.root)))
        except ExprError as error:
            message = f"{error.reason} (in `{error.source}`)"
            self._refuse(step, row_problem(self._tree.source, step.row, message, "config", ("disabled",), error=error))
            return False

    def _find_plugin(self, step: Step) -> None:
        entry, row = step.entry, step.row
        if not step.is_new and entry.plugin is not None and entry.row.name == row.name and entry.target is not None:
            step.target, step.plugin = entry.target, entry.plugin
            step.spec = self._tree.loader.ctx.runtime.registry.spec(entry.plugin)
            return
        found = find_plugin(self._tree.source, row, self._tree.loader.include)
        step.target, step.plugin, step.spec = found.target, found.plugin, found.spec
        if found.problem is not None:
            self._refuse(step, found.problem)
        if found.warning is not None:
            self._plan.warnings.append(found.warning)

    def _decide(self, step: Step) -> None:
        entry, row = step.entry, step.row
        wanted = step.enabled and step.plugin is not None
        if not wanted:
            step.action = "unload" if entry.is_mounted else "keep"
            return
        same_plugin = entry.plugin is step.plugin and same_value(entry.injected, step.injected)
        same_config = same_value(entry.row.config, row.config)
        if not entry.is_mounted:
            untouched = not step.is_new and same_plugin and same_config and entry.row.disabled == row.disabled
            step.action = "keep" if entry.stopped and untouched else "mount"
        elif not same_plugin:
            step.action = "replace"
        else:
            step.rebases = step.base is not entry.base
            step.updates = not same_config
        if step.starts or step.updates:
            self._check_config(step)
        if step.updates and entry.subtree is not None and not step.problems:
            self._plan_include(step, entry.subtree)

    def _check_config(self, step: Step) -> None:
        problems, warnings = check_config(self._tree.source, step.row, self._config_type(step))
        for problem in problems:
            self._refuse(step, problem)
        self._plan.warnings += warnings

    @staticmethod
    def _config_type(step: Step) -> Any:
        return None if step.spec is None or step.problems else step.spec.Config

    def _plan_include(self, step: Step, subtree: Tree) -> None:
        """An include whose patches change keeps its tree; the tree is edited along."""
        old = IncludeConfig.validate(step.entry.row.config)
        new = IncludeConfig.validate(step.row.config)
        if old.changed(new) <= {"patches", "enable_logs"}:
            layers = subtree.source.inline
            subtree.source.inline = inline_layers(step.entry.address, new)
            try:
                plan = make_plan(subtree, subtree.source.read())
                plan.inline = inline_layers(step.entry.address, new)
                self._plan.nested.append(plan)
            except LoadError as error:
                self._plan.problems += error.problems
            finally:
                subtree.source.inline = layers
