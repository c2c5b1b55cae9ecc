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
        fresh = layer is None
        if layer is None:
            layer = self._make()
        try:
            take_back = action(layer)
        except BaseException:
            disposer.forget()
            raise
        if fresh and record is not None:
            self._scoped[record] = layer

        def undo() -> None:
            take_back()
            if record is not None and self._scoped.get(record) is layer and _is_empty(layer):
                del self._scoped[record]
            if notify and self._on_change is not None:
                self._on_change()

        if notify and self._on_change is not None:
            try:
                self._on_change()
            except BaseException:
                take_back()
                if record is not None and self._scoped.get(record) is layer and _is_empty(layer):
                    del self._scoped[record]
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


class NamedEntries(Mapping[str, V]):
    """Entries by name, in order of insertion. `duplicate(name)` makes the error for a name that is taken."""

    def __init__(self, duplicate: Callable[[str], Exception] | None = None) -> None:
        self._duplicate = duplicate or (lambda name: CordisError("DUPLICATE_ENTRY", f'"{name}" is already registered'))
        self._entries: dict[str, tuple[object, V]] = {}

    def add(self, name: str, value: V) -> Callable[[], None]:
        """Insert; the undo removes exactly this insertion, any number of times."""
        if name in self._entries:
            raise self._duplicate(name)
        mark = object()
        self._entries[name] = (mark, value)

        def undo() -> None:
            entry = self._entries.get(name)
            if entry is not None and entry[0] is mark:
                del self._entries[name]

        return undo

    def __getitem__(self, name: str) -> V:
        return self._entries[name][1]

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._entries))

    def __len__(self) -> int:
        return len(self._entries)


class AnonymousEntries(Generic[V]):
    """Entries without names, in order of insertion; equal values stay separate."""

    def __init__(self) -> None:
        self._entries: dict[object, V] = {}

    def add(self, value: V) -> Callable[[], None]:
        """Insert; the undo removes exactly this insertion, any number of times."""
        mark = object()
        self._entries[mark] = value

        def undo() -> None:
            self._entries.pop(mark, None)

        return undo

    def __iter__(self) -> Iterator[V]:
        return iter(list(self._entries.values()))

    def __len__(self) -> int:
        return len(self._entries)
