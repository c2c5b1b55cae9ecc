"""Which module imports which, read from source text without running it.

The text is the one a module was loaded from, not the file as it is now: a changed file may not even parse.
"""

from __future__ import annotations

import ast
import gc
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class ModuleSource:
    """A loaded module: its name, its file, and the text it was loaded from."""

    name: str
    file: str
    text: str
    is_package: bool = False

    @cached_property
    def digest(self) -> str:
        """The hash of the text."""
        return digest_of(self.text)


def digest_of(text: str | bytes) -> str:
    """A content hash: equal texts have equal digests."""
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return hashlib.blake2b(data, digest_size=16).hexdigest()


class ImportGraph:
    """Who imports whom among the modules of one process; parsed texts are remembered by hash."""

    def __init__(self) -> None:
        self._parsed: dict[tuple[str, str], frozenset[str]] = {}

    def importers(self, sources: Mapping[str, ModuleSource], targets: Iterable[str]) -> dict[str, set[str]]:
        """For each target, and each module on a way to one, the modules that import it directly.

        Only texts that can mean the module are parsed: its last name occurs in them, and its first one too unless they
        lie in the same package. A module also needs the packages around it.
        """
        found: dict[str, set[str]] = {}
        pending = [name for name in targets if name in sources]
        while pending:
            name = pending.pop()
            if name in found:
                continue
            found[name] = {
                other
                for other, source in sources.items()
                if other != name
                and (other.startswith(name + ".") or (_may_mean(source, name) and name in self._imports(source)))
            }
            pending.extend(found[name])
        return found

    def _imports(self, source: ModuleSource) -> frozenset[str]:
        key = (source.name, source.digest)
        found = self._parsed.get(key)
        if found is None:
            found = self._parsed[key] = imported_names(source.text, source.name, is_package=source.is_package)
        return found


def _may_mean(source: ModuleSource, name: str) -> bool:
    top, _, _ = name.partition(".")
    leaf = name.rpartition(".")[2]
    return leaf in source.text and (source.name.partition(".")[0] == top or top in source.text)


def closure(edges: Mapping[str, Iterable[str]], starts: Iterable[str]) -> set[str]:
    """Everything that can be reached along `edges`, the starts included."""
    found: set[str] = set()
    pending = list(starts)
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending.extend(edges.get(name, ()))
    return found


def reversed_edges(edges: Mapping[str, Iterable[str]]) -> dict[str, set[str]]:
    """The same edges in the other direction."""
    turned: dict[str, set[str]] = {name: set() for name in edges}
    for name, others in edges.items():
        for other in others:
            turned.setdefault(other, set()).add(name)
    return turned


def imported_names(text: str, module: str, *, is_package: bool = False) -> frozenset[str]:
    """Every module name that `text` may import, at its top or inside functions.

    `from a import b` counts as `a` and `a.b`; importing `a.b` counts as `a` too. Blocks that only a type checker
    reads do not count. Text that does not parse imports nothing.
    """
    collecting = gc.isenabled()
    gc.disable()  # a collection may switch threads, and this runs in one: Python 3.11 counts depth for all of them
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()
    finally:
        if collecting:
            gc.enable()
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
