"""The picture of a composition that ``dsh inspect`` shows: its rows, and everything the runtime knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dsh.cordis import Context


def picture(ctx: Context) -> dict[str, Any]:
    """`{config, rows, fibers, services, events, tasks, cycles}`. A row: id, plugin, state, what it waits for or why
    it failed, how often its code was reloaded."""
    from dsh.loader.failures import failures_of, missing_services

    loader = ctx.get("loader")
    rows = []
    for entry in loader.entries() if loader is not None else ():
        row = {"id": entry.address, "plugin": entry.name, "state": entry.state, "generation": entry.generation}
        fiber = entry.fiber if entry.is_mounted else None
        if fiber is not None:
            row["needs"] = sorted(fiber.needs)
            row["offers"] = list(fiber.spec.provides) if fiber.spec is not None else []
            row["provides"] = [implementation.name for implementation in fiber.provided]
            row["tasks"] = [task.name for task in fiber.tasks()]
            row["faults"] = fiber.faults
        if missing := missing_services(entry):
            row["waitsFor"] = list(missing)
        if entry.subtree is None and (failures := failures_of(entry)):
            row["error"] = "; ".join(str(failure) for failure in failures)
        rows.append(row)
    source = loader.root_source if loader is not None else None
    return {"config": str(source.path) if source is not None else None, "rows": rows, **ctx.root.inspect()}
