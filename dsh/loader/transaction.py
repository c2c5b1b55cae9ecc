"""Applying a plan: all of it, or back to what ran before.

Everything that can be checked was checked while planning, so what fails here is a plugin's own start. Leaving rows
go last, so that a refused edit need not bring them back; only a row whose service a new row provides leaves first,
and if a start fails because some other name is still held, the leaving rows go and the start is tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from dsh.cordis import Fiber, FiberState
from dsh.cordis.errors import error_chain

from .entries import Entry, Standing, Tree
from .events import EntryChange
from .failures import explain, failures_of, is_held
from .outcomes import outcomes
from .plan import Plan, Step
from .problems import LoadError, Problem
from .row_checks import row_problem

if TYPE_CHECKING:
    from .tree import Loader


class Transaction:
    """One edit, possibly of several trees."""

    def __init__(
        self,
        loader: Loader,
        plans: Iterable[Plan],
        undo_code: Callable[[], None] | None = None,
        *,
        keep_failed: bool = False,
    ) -> None:
        self._loader = loader
        self._plans = [each for plan in plans for each in plan.walk()]
        self._undo_code = undo_code
        self._keep_failed = keep_failed
        self._steps = [step for plan in self._plans for step in plan.steps]
        self._busy_before = {fiber for fiber in loader.fibers() if not fiber.is_settled}
        self._mounted: list[Step] = []
        self._gone: list[Step] = []
        self._rebased: list[Step] = []
        self._updated: list[Step] = []
        self._errors: dict[Step, BaseException] = {}
        self._before = {step: _Before(step.entry) for step in self._steps}

    async def run(self) -> None:
        """Apply and commit. Raises `LoadError` after everything is as it was."""
        judged = {step.entry for step in self._steps if step.starts or step.updates or step.rebases}
        self._loader.reports.judged |= judged
        try:
            await self._run()
        finally:
            self._loader.reports.judged -= judged

    async def _run(self) -> None:
        try:
            problems = await self._apply()
        except Exception as error:  # nothing of it may stay half done
            self._keep_failed = False
            problems = [Problem(f"the edit broke off: {error_chain(error)}", "apply", error=error)]
        if any(plan.tree.closed for plan in self._plans):
            return  # the tree is going: what fails now fails because of that
        if problems and not self._keep_failed:
            problems += await self._roll_back()
            raise LoadError(problems, [warning for plan in self._plans for warning in plan.warnings])
        await self._dispose(step for step in self._steps if step.leaves and step not in self._gone)
        self._commit()

    async def _apply(self) -> list[Problem]:
        replaced = [step for step in self._steps if step.action == "replace"]
        await self._dispose([*replaced, *self._displaced()])
        for step in self._steps:
            if step.rebases and step.entry.fiber is not None:
                step.entry.fiber.rebase(step.base)
                self._rebased.append(step)
        for step in self._steps:
            if step.starts:
                self._mount(step)
        await self._update([step for step in self._steps if step.updates])
        await self._settle()
        problems = self._failures()
        if problems and self._can_make_room():
            failed = [step for step in self._steps if self._failures_of(step)]
            await self._dispose(step for step in self._steps if step.leaves and step not in self._gone)
            self._errors.clear()
            for step in failed:
                if step.starts and step not in self._mounted:
                    self._mount(step)
                elif step.entry.fiber is not None and not step.updates:
                    step.entry.fiber.restart()
            await self._update([step for step in failed if step.updates])
            await self._settle()
            problems = self._failures()
        return problems

    def _displaced(self) -> list[Step]:
        """Leaving rows that provide what a starting row is known to provide."""
        incoming: set[Any] = set()
        for step in self._steps:
            if step.starts and step.spec is not None:
                incoming |= {(name, step.base.realm(name)) for name in step.spec.provides}
        return [
            step
            for step in self._steps
            if step.leaves
            and step.entry.fiber is not None
            and any((each.name, each.realm) in incoming for each in step.entry.fiber.provided)
        ]

    def _mount(self, step: Step) -> None:
        try:
            mount(step.entry, step, step.spec or step.plugin)
        except Exception as error:
            self._errors[step] = error
        else:
            self._mounted.append(step)

    async def _update(self, steps: list[Step]) -> None:
        self._updated += [step for step in steps if step not in self._updated]
        self._errors |= await self._configure({step: step.row.config for step in steps})

    async def _configure(self, configs: Mapping[Step, Any]) -> dict[Step, BaseException]:
        """Give running rows their configs; what came of it where it failed."""
        fibers = [(step, step.entry.fiber, config) for step, config in configs.items()]
        waits = {step: fiber.update(config, no_save=True) for step, fiber, config in fibers if fiber is not None}
        found = await outcomes(list(waits.values()), self._loader.options.settle_limit) or ()
        return {step: error for step, error in zip(waits, found, strict=False) if error is not None}

    async def _dispose(self, steps: Iterable[Step]) -> None:
        leaving = [step for step in dict.fromkeys(steps) if step not in self._gone and step.entry.is_mounted]
        self._gone += leaving
        await self._loader.dispose_fibers([step.entry.fiber for step in leaving if step.entry.fiber is not None])

    async def _settle(self) -> None:
        touched = [step.entry.fiber for step in self._steps if step.starts or step.updates or step.rebases]
        ignored = self._busy_before.difference(fiber for fiber in touched if fiber is not None)
        slow = await self._loader.settle_fibers(ignored)
        for entry in slow:
            self._loader.ctx.logger.warning(
                'row "%s" is still starting after %g s; the edit is applied, and it goes on',
                entry.address,
                self._loader.options.settle_limit,
            )

    def _failures_of(self, step: Step) -> list[Problem]:
        entry = step.entry
        if step in self._errors:
            return explain(entry, step.row, self._errors[step])
        before = self._before[step]
        if step.starts or (step.updates and entry.subtree is not before.subtree):
            return failures_of(entry, step.row)
        if step.updates or (step.rebases and not before.failed):
            error = _failure(entry)
            return [] if error is None else explain(entry, step.row, error)
        return []

    def _failures(self) -> list[Problem]:
        return list(dict.fromkeys(problem for step in self._steps for problem in self._failures_of(step)))

    def _can_make_room(self) -> bool:
        """Whether a start failed for a name that a leaving row may hold."""
        if not any(step.leaves and step not in self._gone and step.entry.is_mounted for step in self._steps):
            return False
        return any(is_held(problem.error) for problem in self._failures())

    def _commit(self) -> None:
        for plan in self._plans:
            commit(plan)
        for step in self._steps:
            for kind in changes(step):
                self._loader.announce(step.entry, kind)

    async def _roll_back(self) -> list[Problem]:
        """Undo what was applied, newest first. Returns the problems of rows that did not come back."""
        loader = self._loader
        for step in self._mounted:
            loader.announce(step.entry, "failed")
        await loader.dispose_fibers([step.entry.fiber for step in self._mounted if step.entry.fiber is not None])
        for step in self._mounted:
            if step.entry.fiber is not None:
                loader.forget_fiber(step.entry)
            before = self._before[step]
            step.entry.stopped, step.entry.problems = before.stopped, before.problems
        if self._undo_code is not None:
            self._undo_code()
        for step in reversed(self._rebased):
            if step.entry.is_mounted and step.entry.fiber is not None:
                step.entry.fiber.rebase(step.entry.base)
        back: list[Step] = []
        errors: dict[Step, BaseException] = {}
        for step in self._gone:
            try:
                mount(step.entry, step.entry, step.entry.plugin)
                back.append(step)
            except Exception as error:
                errors[step] = error
        restored = [step for step in self._updated if step.entry.is_mounted and step not in self._gone]
        errors |= await self._configure({step: step.entry.row.config for step in restored})
        await loader.settle_fibers(self._busy_before)
        problems: list[Problem] = []
        for step in dict.fromkeys([*back, *restored, *errors]):
            failure = errors.get(step) or _failure(step.entry)
            if failure is not None and not self._before[step].failed:
                problems.append(await self._give_up(step.entry, failure))
        return problems

    async def _give_up(self, entry: Entry, error: BaseException) -> Problem:
        """A row that cannot be brought back stays unmounted."""
        detail = explain(entry, entry.row, error)[0].message
        message = f"its former state could not be restored: {detail}; it stays unmounted"
        problem = row_problem(entry.tree.source, entry.row, message, "rollback", error=error)
        if entry.fiber is not None:
            await self._loader.dispose_fibers([entry.fiber])
            self._loader.forget_fiber(entry)
        entry.problems = [problem]
        self._loader.announce(entry, "failed")
        return problem


class _Before:
    """What has to be known of a row as it was: `failed` rows need not come back."""

    __slots__ = ("failed", "problems", "stopped", "subtree")

    def __init__(self, entry: Entry) -> None:
        self.failed = entry.fiber is not None and entry.fiber.state is FiberState.FAILED
        self.problems = entry.problems
        self.stopped = entry.stopped
        self.subtree = entry.subtree


def _failure(entry: Entry) -> BaseException | None:
    """The error of a mount that failed."""
    fiber = entry.fiber
    return fiber.error if fiber is not None and fiber.state is FiberState.FAILED else None


def mount(entry: Entry, standing: Standing, plugin: Any) -> Fiber:
    """Mount `plugin` for a row as it stands, or shall stand. Raises `CordisError`."""
    entry.problems = []
    entry.stopped = False
    entry.subtree = None
    row, inject = standing.row, dict(standing.injected)
    fiber: Fiber = standing.base.plugin(plugin, row.config, inject=inject, entry_id=entry.tree.source.prefix + row.id)
    fiber.generation = entry.generation
    entry.tree.loader.adopt_fiber(entry, fiber)
    return fiber


def commit(plan: Plan) -> None:
    """Make the planned rows the tree's rows."""
    tree: Tree = plan.tree
    entries: dict[str, Entry] = {}
    for step in plan.steps:
        entry = step.entry
        if step.leaves:
            tree.loader.forget_fiber(entry)
            entry.problems = []
        if step.action == "remove":
            continue
        entry.stand_as(step)
        if step.problems or not step.enabled:
            entry.problems = step.problems
        entries[entry.id] = entry
    tree.entries = entries
    tree.reading = plan.reading
    if plan.inline is not None:
        tree.source.inline = plan.inline


def changes(step: Step) -> list[EntryChange]:
    """What the step did to its row, as `loader/entry` tells it."""
    if step.leaves:
        return ["unload"] if step.entry.fiber is None else []
    kinds: list[EntryChange] = []
    if step.starts:
        kinds.append("apply" if step.action == "mount" else "reload")
    if step.updates:
        kinds.append("reload")
    if step.moved:
        kinds.append("moved")
    return kinds
