"""Scopes: which agent (or preset) a registration or a dispatch belongs to, how keys inherit, and their lifetimes."""

from __future__ import annotations

import weakref
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from .errors import CordisError
from .records import identity_struct

if TYPE_CHECKING:
    from .context import Context
    from .effects import Composite


class ScopeRecord:
    """The bookkeeping of one scope key. Keys are compared by identity."""

    __slots__ = ("__weakref__", "_children", "key", "parent", "token")

    def __init__(self, key: object) -> None:
        self.key = key
        self.parent: ScopeRecord | None = None
        self.token = object()
        """Stands for this key's ancestry; replaced when it changes."""
        self._children: weakref.WeakSet[ScopeRecord] = weakref.WeakSet()

    def lineage(self) -> tuple[ScopeRecord, ...]:
        """The record and its ancestors, nearest first."""
        chain: list[ScopeRecord] = []
        record: ScopeRecord | None = self
        while record is not None:
            chain.append(record)
            record = record.parent
        return tuple(chain)

    def link(self, parent: ScopeRecord | None) -> None:
        if parent is not None and self in parent.lineage():
            raise CordisError("SCOPE_CYCLE", "scope parent link would form a cycle")
        if self.parent is not None:
            self.parent._children.discard(self)
        self.parent = parent
        if parent is not None:
            parent._children.add(self)
        self._renew()

    def _renew(self) -> None:
        self.token = object()
        for child in list(self._children):
            child._renew()


_records: dict[int, weakref.ref[ScopeRecord]] = {}
# Only for keys without a `__scope__` slot. Weak metadata of the keys, not a registry: an entry lives as long as
# somebody holds the record, and the record holds its key, so an id cannot be reused meanwhile.


def record_of(key: Any) -> ScopeRecord:
    """The record of a key, made on first use. It hangs on the key's `__scope__` slot if it has one."""
    try:
        record: ScopeRecord | None = key.__scope__
    except AttributeError:
        pass
    else:
        if record is not None:
            return record
    number = id(key)
    found = _records.get(number)
    record = found() if found is not None else None
    if record is None:
        record = ScopeRecord(key)
        if hasattr(type(key), "__scope__"):
            key.__scope__ = record
        else:
            _records[number] = weakref.ref(record, lambda ref: _drop(number, ref))
    return record


def _drop(number: int, ref: weakref.ref[ScopeRecord]) -> None:
    if _records.get(number) is ref:
        del _records[number]


def scope_chain(key: object) -> list[object]:
    """The key and its ancestors, nearest first; empty for `None`."""
    return [record.key for record in record_of(key).lineage()] if key is not None else []


@identity_struct
class ScopeBinding:
    """The right to change the parent of a key; handed out once, by `bind_scope`."""

    _record: ScopeRecord

    def rebind(self, parent: object | None) -> None:
        """Replace the parent. Raises `SCOPE_CYCLE`."""
        self._record.link(record_of(parent) if parent is not None else None)


def bind_scope(key: object, parent: object) -> ScopeBinding:
    """Make `parent` the parent key of `key`. Raises if it has one, or if the link would form a cycle."""
    record = record_of(key)
    if record.parent is not None:
        raise CordisError(
            "SCOPE_BOUND",
            "scope key is already bound to a parent; re-linking requires the binding returned by the original bind",
        )
    record.link(record_of(parent))
    return ScopeBinding(record)


class ScopeKey:
    """A key made for a scope that was opened without one."""

    __slots__ = ("__scope__", "__weakref__")


@identity_struct
class Scope:
    """`ctx` registers for the key only; `dispose()` undoes all of it, once, for every caller alike.

    `binding` may change the key's parent; it is there if the scope was opened with `parent`.
    """

    ctx: Context
    key: object
    _composite: Composite
    binding: ScopeBinding | None

    def dispose(self) -> Awaitable[None]:
        """Undo everything registered through `ctx`; the awaitable ends when all of it is gone."""
        return self._composite()

    @property
    def disposed(self) -> bool:
        """Whether disposal was asked for."""
        return self._composite.disposed


def open_scope(ctx: Context, key: object, parent: object) -> Scope:
    """See `Context.scope`."""
    from .effects import Composite

    label = f"scope({type(key).__name__ if key is not None else 'anonymous'})"
    ctx.stack.check(label)
    if key is None:
        key = ScopeKey()
    binding = bind_scope(key, parent) if parent is not None else None
    composite = Composite(ctx.stack, label)
    return Scope(ctx.tagged(key, composite.inner), key, composite, binding)
