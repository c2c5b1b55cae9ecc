"""Why a row does not run, as problems with a place."""

from __future__ import annotations

import re
import traceback
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from dsh.cordis import FiberState, resolve_plugin
from dsh.cordis.errors import HarnessError, error_chain
from dsh.cordis.inspection import rings
from dsh.cordis.schema import ConfigError

from .entries import Entry, Tree
from .expr import ExprError
from .problems import LoadError, Problem, Stage
from .row_checks import issue_problem, row_problem
from .rows import Row

_HELD = re.compile(r"\balready\b|\bduplicate\b|\btaken\b|\bin use\b", re.I)


def explain(entry: Entry, row: Row, error: BaseException, stage: Stage = "apply") -> list[Problem]:
    """The problems behind an exception that a row's fiber or an update of it raised."""
    source = entry.tree.source
    if isinstance(error, LoadError):
        return list(error.problems)
    if isinstance(error, ConfigError) and error.issues:
        return [issue_problem(source, row, issue, error=error) for issue in error.issues]
    if isinstance(error, ExprError):
        keys = ("config", *getattr(error, "keys", ()))
        return [row_problem(source, row, str(error), "config", keys, error=error)]
    text, kind = error_chain(error), type(error).__name__
    named = isinstance(error, HarnessError) or text.startswith(kind)
    return [row_problem(source, row, text if named else f"{kind}: {text}", stage, error=error)]


def failures_of(entry: Entry, row: Row | None = None) -> list[Problem]:
    """Why an entry, or a row of the tree it includes, does not run; empty while nothing failed."""
    row = entry.row if row is None else row
    if entry.problems:
        return list(entry.problems)
    fiber = entry.fiber
    if fiber is not None and fiber.state is FiberState.FAILED:
        return explain(entry, row, fiber.error or RuntimeError("failed without an error"))
    if entry.subtree is None or entry.subtree.closed:
        return []
    return [problem for inner in entry.subtree.entries.values() for problem in failures_of(inner)]


def is_held(error: BaseException | None) -> bool:
    """Whether an error says that a name (of a service, tool, route, agent…) belongs to somebody else."""
    return any(
        str(getattr(each, "code", "")).startswith("DUPLICATE")
        or (isinstance(each, Exception) and not isinstance(each, ConfigError) and _HELD.search(str(each)) is not None)
        for each in _chain(error)
    )


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    pending = [error]
    while pending:
        each = pending.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        pending.append(each.__cause__)
        if isinstance(each, BaseExceptionGroup):
            pending.extend(each.exceptions)


def plugin_traceback(error: BaseException) -> str:
    """The traceback of the innermost cause, without the frames of the runtime around it."""
    innermost = list(_chain(error))[-1]
    frames = traceback.extract_tb(innermost.__traceback__)
    own = [frame for frame in frames if not _is_framework(frame.filename)]
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(own)] if own else []
    lines += traceback.format_exception_only(innermost)
    return "".join(lines).rstrip("\n")


def _is_framework(file: str) -> bool:
    path = file.replace("\\", "/")
    return any(part in path for part in ("/dsh/cordis/", "/dsh/loader/", "/importlib/", "<frozen importlib"))


class Offers(Protocol):
    """What is known of plugins apart from what they declare."""

    def plugins_for(self, service: str) -> list[str]:
        """The names of plugins that would provide a service."""

    def of(self, module: str | None) -> Collection[str]:
        """The services that the code of a module provides."""


def waiting(entries: Iterable[Entry], *, roots: bool = False, offers: Offers | None = None) -> dict[Entry, Problem]:
    """The rows that wait for services, each with what it waits for and which row would provide it.

    Rows that wait for each other share one problem. With `roots`, rows that only wait for rows that wait themselves are
    left out, unless those wait for each other.
    """
    rows = list(entries)
    lacking = {entry: missing for entry in rows if (missing := missing_services(entry))}
    gives = {entry: set(_declared(entry)) for entry in rows}
    for entry in lacking if offers is not None else ():
        gives[entry].update(offers.of(entry.module))  # type: ignore[union-attr]
    found: dict[Entry, Problem] = {}

    def after(entry: Entry) -> list[Entry]:
        return [each for each in lacking if each is not entry and not gives[each].isdisjoint(lacking[entry])]

    for ring in rings(lacking, after):
        pairs = zip(ring, [*ring[1:], ring[0]], strict=True)
        needs = [(each.address, [name for name in lacking[each] if name in gives[then]]) for each, then in pairs]
        problem = row_problem(ring[0].tree.source, ring[0].row, cycle_message(needs), "validate")
        for entry in ring:
            found.setdefault(entry, problem)
    for entry, missing in lacking.items():
        if entry in found:
            continue
        hints = {service: _would_provide(gives, service) for service in missing}
        if roots and all(hints.values()):
            continue
        message = f"waiting for services: {', '.join(missing)}"
        if any(hints.values()):
            message += f" ({'; '.join(filter(None, hints.values()))})"
        else:
            names = [name for service in missing for name in (offers.plugins_for(service) if offers else ())]
            message += ", which no running row provides" + (f": add one named {', '.join(names)}" if names else "")
        found[entry] = row_problem(entry.tree.source, entry.row, message, "validate")
    return found


def cycle_message(needs: Sequence[tuple[str, Collection[str]]]) -> str:
    """What is said of a ring of rows, each of which needs services of the next one (the last one of the first)."""
    pairs = zip(needs, [*needs[1:], needs[0]], strict=True)
    said = [f"{address} needs {', '.join(services)} of row {after}" for (address, services), (after, _) in pairs]
    remedy = "take one of these services out of inject, or let another row provide it"
    return f"rows wait for each other in a cycle and none can start: {', '.join(said)}; {remedy}"


def _declared(entry: Entry) -> Collection[str]:
    """The services that a row's plugin declares to provide."""
    spec = entry.fiber.spec if entry.fiber is not None else resolve_plugin(entry.plugin) if entry.plugin else None
    return spec.provides if spec is not None else ()


def _would_provide(gives: Mapping[Entry, Collection[str]], service: str) -> str:
    """Which rows provide a service, or would if they ran."""
    hints = []
    for entry in (entry for entry, services in gives.items() if service in services):
        where = "for rows of its own realm" if entry.state == "active" else f"but is {entry.state}"
        hints.append(f'row "{entry.address}" provides {service}, {where}')
    return "; ".join(hints)


def missing_services(entry: Entry) -> list[str]:
    """What a waiting row waits for."""
    return entry.fiber.missing() if entry.fiber is not None and not entry.fiber.is_retired else []


def not_running(tree: Tree) -> list[Problem]:
    """Which rows of a tree do not run, or publish a service for everybody."""
    problems: list[Problem] = []
    for entry in tree.walk():
        failures = failures_of(entry)
        problems += failures
        if failures or entry.state in ("group", "disabled", "skipped"):
            continue
        if entry.fiber is None or entry.fiber.state is not FiberState.ACTIVE:
            missing = ", ".join(missing_services(entry))
            message = f"it waits for services: {missing}" if missing else f"it is {entry.state}"
            problems.append(row_problem(entry.tree.source, entry.row, message, "apply"))
            continue
        for provided in entry.fiber.provided:
            if provided.realm is None:
                message = f'it publishes the service "{provided.name}" for everybody; isolate it in this file'
                problems.append(row_problem(entry.tree.source, entry.row, message, "apply"))
    return problems
