"""Which module imports which, read from source text without running it.

The text is the one a module was loaded from, not the file as it is now: a changed file may not even parse.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModuleSource:
    """A loaded module: its name, its file, and the text it was loaded from."""

    name: str
    file: str
    text: str
    is_package: bool = False

    @property
    def digest(self) -> str:
        """The hash of the text."""
        return digest_of(self.text)


def digest_of(text: str | bytes) -> str:
    """A content hash: equal texts have equal digests."""
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return hashlib.blake2b(data, digest_size=16).hexdigest()


class ImportGraph:
    """Import edges between modules of one process; parsed texts are remembered by hash."""

    def __init__(self) -> None:
        self._parsed: dict[tuple[str, bool, str], frozenset[str]] = {}

    def edges(self, sources: Mapping[str, ModuleSource]) -> dict[str, frozenset[str]]:
        """For each module the modules of `sources` it imports. A module also needs the packages around it."""
        parsed: dict[tuple[str, bool, str], frozenset[str]] = {}
        result: dict[str, frozenset[str]] = {}
        for name, source in sources.items():
            key = (name, source.is_package, source.digest)
            found = self._parsed.get(key)
            if found is None:
                found = imported_names(source.text, name, is_package=source.is_package)
            parsed[key] = found
            result[name] = frozenset(other for other in found if other in sources and other != name)
        self._parsed = parsed
        return result


def reaching(edges: Mapping[str, Iterable[str]], targets: Iterable[str]) -> set[str]:
    """The modules from which a target can be reached, the targets included."""
    importers: dict[str, list[str]] = {}
    for name, imported in edges.items():
        for other in imported:
            importers.setdefault(other, []).append(name)
    return _closure(importers, targets)


def reachable(edges: Mapping[str, Iterable[str]], starts: Iterable[str]) -> set[str]:
    """The modules that can be reached from a start, the starts included."""
    return _closure(edges, starts)


def _closure(edges: Mapping[str, Iterable[str]], starts: Iterable[str]) -> set[str]:
    found: set[str] = set()
    pending = list(starts)
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending.extend(edges.get(name, ()))
    return found


def imported_names(text: str, module: str, *, is_package: bool = False) -> frozenset[str]:
    """Every module name that `text` may import, at its top or inside functions.

    `from a import b` counts as `a` and `a.b`; importing `a.b` counts as `a` too. Blocks that only a type checker
    reads do not count. Text that does not parse imports nothing.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()
    package = module if is_package else module.rpartition(".")[0]
    collector = _Collector(package)
    collector.visit(tree)
    names = set(collector.names)
    names.add(module)
    for name in list(names):
        while "." in name:
            name = name.rpartition(".")[0]
            names.add(name)
    names.discard(module)
    return frozenset(names)


class _Collector(ast.NodeVisitor):
    def __init__(self, package: str) -> None:
        self._package = package
        self.names: set[str] = set()

    def visit_If(self, node: ast.If) -> None:
        if _is_type_checking(node.test):
            for statement in node.orelse:
                self.visit(statement)
        else:
            self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        self.names.update(alias.name for alias in node.names)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        base = self._absolute(node.level, node.module or "")
        if base:
            self.names.add(base)
            self.names.update(f"{base}.{alias.name}" for alias in node.names if alias.name != "*")

    def visit_Call(self, node: ast.Call) -> None:
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called in ("import_module", "__import__") and node.args:
            name = node.args[0]
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                bare = name.value.lstrip(".")
                self.names.add(self._absolute(len(name.value) - len(bare), bare))
        self.generic_visit(node)

    def _absolute(self, level: int, name: str) -> str:
        if not level:
            return name
        parts = self._package.split(".")
        base = ".".join(parts[: len(parts) - (level - 1)])
        return f"{base}.{name}" if name and base else base or name


def _is_type_checking(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )
