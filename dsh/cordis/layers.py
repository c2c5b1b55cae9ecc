"""Registries with one global layer and one layer per scope, and the two kinds of tables they are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from .effects import Disposer
from .errors import CordisError
from .scopes import ScopeRecord, record_of

if TYPE_CHECKING:
    from .context import Context

L = TypeVar("L")
K = TypeVar("K")
V = TypeVar("V")


class ScopedLayers(Generic[L]):
    """One layer for everybody, and one per scope key that registered something.

    `make()` builds a layer. A layer counts as empty if its `is_empty()` says so, or, without that method, if none of
    its attributes that have a length holds anything. `on_change()` is called after each addition and removal.
    """

    def __init__(self, make: Callable[[], L], on_change: Callable[[], object] | None = None) -> None:
        self._make = make
        self._on_change = on_change
        self._scoped: dict[ScopeRecord, L] = {}
        self.global_: L = make()

    def peek(self, key: object) -> L | None:
        """The layer of exactly this key (`None`: the global one), if there is one."""
        return self.global_ if key is None else self._scoped.get(record_of(key))

    def chain(self, key: object) -> list[L]:
        """The scoped layers that apply to a key, farthest ancestor first; the global one is not among them."""
        if key is None or not self._scoped:
            return []
        found = (self._scoped.get(record) for record in reversed(record_of(key).lineage()))
        return [layer for layer in found if layer is not None]

    def layers(self, key: object) -> list[L]:
        """The global layer, then `chain(key)`."""
        return [self.global_, *self.chain(key)]

    def merge(self, key: object, pick: Callable[[L], Mapping[str, V]]) -> dict[str, V]:
        """One table out of all layers that apply: in order of insertion, the nearest layer wins a name."""
        merged: dict[str, V] = {}
        for layer in self.layers(key):
            merged.update(pick(layer))
        return merged

    def effect(
        self, caller: Context, action: Callable[[L], Callable[[], object]], label: str, notify: bool = True
    ) -> Disposer:
        """Apply one change to the caller's layer, owned by the caller's context.

        `action(layer)` is synchronous and returns its undo. If it raises, or a listener of the change does, nothing
        remains. An emptied scoped layer is dropped.
        """
        disposer = Disposer(caller.stack, label)
        record = caller.scope_record
        layer = self.global_ if record is None else self._scoped.get(record)
        if layer is None:
            layer = self._scoped[record] = self._make()  # type: ignore[index]
        change = self._on_change if notify else None

        def drop_if_empty() -> None:
            if record is not None and self._scoped.get(record) is layer and _is_empty(layer):
                del self._scoped[record]

        def undo() -> None:
            take_back()
            drop_if_empty()
            if change is not None:
                change()

        try:
            take_back = action(layer)
            try:
                if change is not None:
                    change()
            except BaseException:
                take_back()
                raise
        except BaseException:
            drop_if_empty()
            disposer.forget()
            raise
        disposer.set_up(undo)
        return disposer


def _is_empty(layer: Any) -> bool:
    check = getattr(layer, "is_empty", None)
    if callable(check):
        return bool(check())
    names = vars(layer) if hasattr(layer, "__dict__") else getattr(type(layer), "__slots__", ())
    tables = [layer] if hasattr(layer, "__len__") else [getattr(layer, name, None) for name in names]
    return not any(len(table) for table in tables if table is not None and hasattr(table, "__len__"))


class _Table(Generic[K, V]):
    """Entries in order of insertion.

    Iteration is live within one generation: what is added meanwhile is met, what is removed is not. Once a table has
    run empty, later entries belong to a new generation that an iterator of the old one does not see.
    """

    def __init__(self) -> None:
        self._entries: dict[K, tuple[int, V]] = {}
        """Each with its place in the order of all insertions."""
        self._count = 0

    def _insert(self, key: K, value: V) -> Callable[[], None]:
        self._count += 1
        entry = self._entries[key] = (self._count, value)

        def undo() -> None:
            if self._entries.get(key) is entry:
                del self._entries[key]
                if not self._entries:
                    self._entries = {}

        return undo

    def _live(self) -> Iterator[tuple[K, V]]:
        entries, last = self._entries, 0
        while fresh := [(key, entry) for key, entry in entries.items() if entry[0] > last]:
            for key, entry in fresh:
                last, value = entry
                if entries.get(key) is entry:
                    yield key, value

    def __len__(self) -> int:
        return len(self._entries)


class NamedEntries(_Table[str, V], Mapping[str, V]):
    """Entries by name. `duplicate(name)` makes the error for a name that is taken."""

    def __init__(self, duplicate: Callable[[str], Exception] | None = None) -> None:
        super().__init__()
        self._duplicate = duplicate or (lambda name: CordisError("DUPLICATE_ENTRY", f'"{name}" is already registered'))

    def add(self, name: str, value: V) -> Callable[[], None]:
        """Insert; the undo removes exactly this insertion, any number of times."""
        if name in self._entries:
            raise self._duplicate(name)
        return self._insert(name, value)

    def __getitem__(self, name: str) -> V:
        return self._entries[name][1]

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self._live())


class AnonymousEntries(_Table[object, V]):
    """Entries without names; equal values stay separate."""

    def add(self, value: V) -> Callable[[], None]:
        """Insert; the undo removes exactly this insertion, any number of times."""
        return self._insert(object(), value)

    def __iter__(self) -> Iterator[V]:
        return (value for _, value in self._live())
