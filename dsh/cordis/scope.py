"""A scope: a registration context for one key, with its own lifetime."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from .effects import Composite
from .scopes import ScopeBinding, bind_scope

if TYPE_CHECKING:
    from .context import Context


class ScopeKey:
    """A key made for a scope that was opened without one."""

    __slots__ = ("__scope__", "__weakref__")


class Scope:
    """`ctx` registers for the key only; `dispose()` undoes all of it, once, for every caller alike.

    `binding` may change the key's parent; it is there if the scope was opened with `parent`.
    """

    __slots__ = ("_composite", "binding", "ctx", "key")

    def __init__(self, ctx: Context, key: object, composite: Composite, binding: ScopeBinding | None) -> None:
        self.ctx = ctx
        self.key = key
        self.binding = binding
        self._composite = composite

    def dispose(self) -> Awaitable[None]:
        """Undo everything registered through `ctx`; the awaitable ends when all of it is gone."""
        return self._composite()

    @property
    def disposed(self) -> bool:
        """Whether disposal was asked for."""
        return self._composite.disposed


def open_scope(ctx: Context, key: object, parent: object) -> Scope:
    """See `Context.scope`."""
    label = f"scope({type(key).__name__ if key is not None else 'anonymous'})"
    ctx.stack.check(label)
    if key is None:
        key = ScopeKey()
    binding = bind_scope(key, parent) if parent is not None else None
    composite = Composite(ctx.stack, label)
    return Scope(ctx.tagged(key, composite.inner), key, composite, binding)
