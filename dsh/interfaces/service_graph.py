"""Which row provides what to whom, as far as plugins declare it or their source says it."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Final

from dsh.cordis.inspection import rings
from dsh.loader.rows import Row
from dsh.loader.sources import Source

LAUNCHER_SERVICES: Final = frozenset(
    {"events", "registry", "logger", "timer", "loader", "cmdlineArgs", "appExit", "launchEnvironment", "dshHomePath"}
)
"""What is there before any row."""

_PROVIDE: Final = re.compile(r"\bprovide\b")


@dataclass(slots=True, eq=False)
class RowServices:
    """A row that is or would be mounted, with the services that its plugin needs and provides."""

    address: str
    plugin: str
    """The row's `name`."""
    needs: set[str]
    provides: set[str]
    opaque: bool = False
    """Its code provides something whose name cannot be read from the source."""
    source: Source | None = None
    row: Row | None = None
    state: str | None = None
    """Its state in a running composition."""


class ServiceGraph:
    """The rows of one composition by what they provide to each other.

    Says nothing of private realms: a service that is isolated for a group counts as one that everybody sees.
    """

    def __init__(self, rows: Sequence[RowServices], given: Collection[str] = LAUNCHER_SERVICES) -> None:
        self.rows = rows
        self.given = frozenset(given)
        """What is there though no row provides it."""
        self.providers: dict[str, list[RowServices]] = {}
        self.users: dict[str, list[RowServices]] = {}
        for each in rows:
            for name in sorted(each.provides):
                self.providers.setdefault(name, []).append(each)
            for name in sorted(each.needs):
                self.users.setdefault(name, []).append(each)
        self.opaque = [each.address for each in rows if each.opaque]

    def missing(self) -> Iterator[tuple[RowServices, str]]:
        """Each row that needs a service which no other row provides, with that service."""
        for each in self.rows:
            for service in sorted(each.needs - self.given):
                if not any(provider is not each for provider in self.providers.get(service, ())):
                    yield each, service

    def cycles(self) -> Iterator[list[RowServices]]:
        """Rings of rows that need each other; a service with several providers makes no ring."""

        def after(each: RowServices) -> list[RowServices]:
            found = [self.providers.get(service, []) for service in sorted(each.needs - each.provides)]
            return [only[0] for only in found if len(only) == 1]

        return rings(self.rows, after)


def provided_names(module: ModuleType | None) -> tuple[set[str], bool]:
    """Services that a module's code provides by `….provide(…)`, read from its source; and whether it also provides
    something whose name cannot be told."""
    try:
        source = inspect.getsource(module) if module is not None else ""
        if not _PROVIDE.search(source):
            return set(), False  # most are like this, and a syntax tree takes its time
        tree = ast.parse(source)
    except (OSError, TypeError, SyntaxError):
        return set(), True
    names: set[str] = set()
    opaque = False
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr == "provide" and node.args:
            name = service_name(node.args[0], module, tree)
            if name is None:
                opaque = True
            else:
                names.add(name)
    return names, opaque


def service_name(node: ast.expr, module: ModuleType | None, tree: ast.AST | None = None) -> str | None:
    """The service that an argument in source means: a name, a service class, or an instance of one."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.Call):
        return service_name(node.func, module)
    if not isinstance(node, ast.Name):
        return None
    found = getattr(module, node.id, None)
    name = getattr(found, "service_name", None)
    if isinstance(name, str) and name:
        return name
    for assigned in ast.walk(tree) if tree is not None else ():
        targets = assigned.targets if isinstance(assigned, ast.Assign) else []
        if isinstance(assigned, ast.Assign) and any(isinstance(t, ast.Name) and t.id == node.id for t in targets):
            return service_name(assigned.value, module)
    return None
