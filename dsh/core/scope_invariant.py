"""Companion that checks that an event is routed by the very subject its payload names."""

from __future__ import annotations

from typing import Any

from dsh.cordis import Context, Dispatching

from .invariants import Fail, Invariants

PACKAGE = "@deepseek-ai/dsh-scope"


def apply(ctx: Context, config: object, invariants: Invariants) -> None:
    """Watch every dispatch that was given a scope."""
    invariants.register(PACKAGE, _install)


def _install(ctx: Context, fail: Fail) -> None:
    def check(event: Dispatching) -> None:
        info: Any = getattr(type(event.payload), "__event__", None)
        if event.scope is None or info is None or info.scope_of is None:
            return
        subject = info.scope_of(event.payload)
        if subject is not event.scope:
            fail(f"{event.name} was dispatched for {event.scope!r}, but its payload is about {subject!r}")

    ctx.on(Dispatching, check, global_=True)
