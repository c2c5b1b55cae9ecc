"""The picture of a composition that ``dsh inspect`` shows: its rows, and everything the runtime knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dsh.cordis import Context, Fiber


def picture(ctx: Context) -> dict[str, Any]:
    """`{config, rows, fibers, services, events, tasks, cycles}`.

    A row: id, plugin, state, what it waits for or why it failed, what went wrong last and when, how often its code was
    reloaded. Services and events name the rows that provide and hear them.
    """
    from dsh.cordis.inspection import hearers, walk
    from dsh.loader.failures import failures_of, missing_services

    from ..plugin_offers import PluginOffers

    loader = ctx.get("loader")
    rows: list[dict[str, Any]] = []
    offers = PluginOffers()
    for entry in loader.entries() if loader is not None else ():
        row = {"id": entry.address, "plugin": entry.name, "state": entry.state, "generation": entry.generation}
        fiber = entry.fiber if entry.is_mounted else None
        if fiber is not None:
            own = [each for each in walk(fiber) if _row_of(each) == entry.address]
            row["needs"] = sorted(fiber.needs)
            row["offers"] = list(fiber.spec.provides) if fiber.spec is not None else []
            row["provides"] = [implementation.name for implementation in fiber.provided]
            row["tasks"] = [task.name for each in own for task in each.tasks()]
            row["faults"] = sum(each.faults for each in own)
            if errors := [each.last_error for each in own if each.last_error is not None]:
                at, text = max(errors)
                row["lastError"] = {"at": at, "text": text}
        if missing := missing_services(entry):
            row["waitsFor"] = list(missing)
            row["offers"] = sorted({*row["offers"], *offers.of(entry.module)})
        if entry.subtree is None and (failures := failures_of(entry)):
            row["error"] = "; ".join(str(failure) for failure in failures)
        rows.append(row)
    source = loader.root_source if loader is not None else None
    found = ctx.root.inspect()
    found["cycles"] = _rings(rows) or found["cycles"]
    for service, each in zip(found["services"], ctx.root.runtime.services.implementations.values(), strict=True):
        service["row"] = _name_of(each.fiber)
        service["usedBy"] = [_name_of(user) for user in each.users]
    heard = {name: [_name_of(fiber) for fiber in fibers] for name, fibers in hearers(ctx.root.runtime).items()}
    for event in found["events"]:
        event["heardBy"] = heard.get(event["name"], [])
    return {"config": str(source.path) if source is not None else None, "rows": rows, **found}


def _rings(rows: list[dict[str, Any]]) -> list[list[str]]:
    """Rows that wait for each other."""
    waiting = {row["id"]: row for row in rows if "waitsFor" in row}

    def after(row_id: str) -> list[str]:
        wanted = set(waiting[row_id]["waitsFor"])
        return [each for each, row in waiting.items() if each != row_id and wanted.intersection(row["offers"])]

    from dsh.cordis.inspection import rings

    return list(rings(waiting, after))


def _row_of(fiber: Fiber | None) -> str | None:
    """The row that a fiber belongs to: its own or that of the nearest fiber around it."""
    while fiber is not None and fiber.entry_id is None:
        fiber = fiber.parent
    return fiber.entry_id if fiber is not None else None


def _name_of(fiber: Fiber) -> str:
    """The row of a fiber; what belongs to none is called as its plugin."""
    return _row_of(fiber) or ("(program)" if fiber.parent is None else f"({fiber.display_name})")
