"""The diagnostic picture of a root."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from .errors import describe_error
from .services import Realm

if TYPE_CHECKING:
    from .fiber import Fiber
    from .runtime import Runtime

N = TypeVar("N", bound=Hashable)


def inspect_root(runtime: Runtime) -> dict[str, Any]:
    """See `Context.inspect`."""
    root = runtime.root.fiber
    fibers = list(walk(root))
    return {
        "fibers": _fiber_tree(root),
        "services": [
            {
                "name": each.name,
                "realm": _realm_text(each.realm),
                "provider": each.fiber.uid,
                "providerName": each.fiber.display_name,
                "active": each.fiber.is_active,
                "users": len(each.users),
            }
            for each in runtime.services.implementations.values()
        ],
        "events": [
            {"name": channel.name, "mode": channel.mode, "listeners": len(channel.all)}
            for channel in runtime.events.channels.values()
            if channel.all
        ],
        "tasks": sum(1 for owned in runtime.tasks.values() if owned.kind == "task"),
        "cycles": dependency_cycles(fibers),
    }


def hearers(runtime: Runtime) -> dict[str, list[Fiber]]:
    """Who listens to each event, in calling order."""
    return {
        channel.name: [listener.ctx.fiber for listener in channel.all]
        for channel in runtime.events.channels.values()
        if channel.all
    }


def _realm_text(realm: Hashable) -> str | None:
    return f"private#{id(realm):x}" if isinstance(realm, Realm) else None if realm is None else str(realm)


def walk(fiber: Fiber) -> list[Fiber]:
    """A fiber and all below it."""
    found = [fiber]
    for child in fiber.children():
        found += walk(child)
    return found


def _fiber_tree(fiber: Fiber) -> dict[str, Any]:
    return {
        "uid": fiber.uid,
        "name": fiber.display_name,
        "entryId": fiber.entry_id,
        "phase": fiber.state.phase,
        "error": describe_error(fiber.error) if fiber.error is not None else None,
        "missing": fiber.missing(),
        "provides": [implementation.name for implementation in fiber.provided],
        "effects": fiber.effects(),
        "tasks": [owned.name for owned in fiber.tasks()],
        "faults": fiber.faults,
        "generation": fiber.generation,
        "children": [_fiber_tree(child) for child in fiber.children()],
    }


def dependency_cycles(fibers: list[Fiber]) -> list[list[str]]:
    """Waiting plugins that wait for each other, as plugin names; judged by what plugins declare to provide."""
    waiting = [fiber for fiber in fibers if fiber.spec is not None and fiber.missing()]
    providers: dict[str, list[Fiber]] = {}
    for fiber in waiting:
        for name in fiber.spec.provides if fiber.spec is not None else ():
            providers.setdefault(name, []).append(fiber)

    def after(fiber: Fiber) -> list[Fiber]:
        return [provider for name in fiber.missing() for provider in providers.get(name, ())]

    return [[fiber.display_name for fiber in ring] for ring in rings(waiting, after)]


def rings(nodes: Iterable[N], after: Callable[[N], Iterable[N]]) -> Iterator[list[N]]:
    """The ways that lead from a node over what comes `after` it back to itself."""
    done: set[N] = set()

    def visit(node: N, path: list[N]) -> Iterator[list[N]]:
        if node in path:
            yield path[path.index(node) :]
        elif node not in done:
            for following in after(node):
                yield from visit(following, [*path, node])
            done.add(node)

    for node in nodes:
        yield from visit(node, [])
