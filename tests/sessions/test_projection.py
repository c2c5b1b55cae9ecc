"""Values folded from logs and kept current."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from dsh.cordis import Context, HarnessError
from dsh.core.session import Session
from dsh.core.session_event import SessionEvent
from dsh.core.session_store import SessionAppended, Sessions
from dsh.sessions.projection import Projection, ProjectionWire, SessionProjections


def count_x(state: dict[str, int], event: SessionEvent) -> dict[str, int]:
    return {"x": state["x"] + 1} if event.type == "x" else state


def unit(key: str = "count", version: int = 1, **options: Any) -> Projection[dict[str, int]]:
    wire = options.pop("wire", ProjectionWire(view=lambda state: state["x"]))
    return Projection(key, lambda: {"x": 0}, options.pop("apply", count_x), version, wire=wire, **options)


@pytest.fixture
async def root() -> AsyncIterator[Context]:
    async with Context() as context:
        await context.plugin(Sessions)
        await context.plugin(SessionProjections)
        yield context


@pytest.fixture
def projections(root: Context) -> SessionProjections:
    return root[SessionProjections]


@pytest.fixture
def session(root: Context) -> Session:
    return root[Sessions].create("s")


async def test_b70_the_same_object_is_no_change(projections: SessionProjections, session: Session) -> None:
    projections.register(unit())
    heard: list[Any] = []
    projections.on_changed(lambda *args: heard.append(args))
    session.append("other", {})
    assert heard == []
    session.append("x", {})
    session.append("other", {})
    session.append("x", {})
    assert heard == [(session, "count", 1, 1), (session, "count", 2, 3)]


async def test_b70_a_change_is_told_even_if_the_value_was_read_before(root: Context) -> None:
    async with Context() as root:
        await root.plugin(Sessions)
        reads: list[int] = []
        root.on(SessionAppended, lambda e: reads.append(root[SessionProjections].state_of(e.session, "count")["x"]))
        await root.plugin(SessionProjections)
        projections, session = root[SessionProjections], root[Sessions].create("s")
        projections.register(unit())
        heard: list[int] = []
        projections.on_changed(lambda session, key, value, seq: heard.append(seq))
        session.append("x", {})
        assert (reads, heard) == ([1], [0])


async def test_b70_a_late_unit_folds_the_whole_log_when_first_touched(
    projections: SessionProjections, session: Session
) -> None:
    for _ in range(3):
        session.append("x", {})
    folded: list[int] = []

    def apply(state: dict[str, int], event: SessionEvent) -> dict[str, int]:
        folded.append(event.seq)
        return count_x(state, event)

    projections.register(unit(apply=apply))
    assert folded == []
    assert projections.state_of(session, "count") == {"x": 3}
    assert projections.state_of(session, "count") == {"x": 3}
    assert folded == [0, 1, 2]
    session.append("x", {})
    assert folded == [0, 1, 2, 3]


async def test_b70_a_snapshot_holds_views_as_of_the_last_event(
    projections: SessionProjections, session: Session
) -> None:
    projections.register(unit())
    projections.register(unit("internal", wire=None))
    assert projections.snapshot(session).as_of_seq == -1
    session.append("x", {})
    snapshot = projections.snapshot(session)
    assert (snapshot.as_of_seq, snapshot.values) == (0, {"count": 1})
    assert projections.state_of(session, "internal") == {"x": 1}
    with pytest.raises(KeyError):
        projections.state_of(session, "missing")


async def test_b70_equal_registrations_share_a_unit(root: Context, session: Session) -> None:
    def owner(ctx: Context, config: object, projections: SessionProjections) -> None:
        projections.register(unit())

    projections = root[SessionProjections]
    one, two = await root.plugin(owner), await root.plugin(owner)
    with pytest.raises(HarnessError, match="already registered with stateVersion 1, not 2"):
        projections.register(unit(version=2))
    await one.dispose()
    assert projections.snapshot(session).values == {"count": 0}
    await two.dispose()
    assert projections.snapshot(session).values == {}
    projections.register(unit(version=2))
    for version in (-1, True, 1.5):
        with pytest.raises(HarnessError, match="stateVersion must be an integer >= 0"):
            projections.register(unit("bad", version=version))  # type: ignore[arg-type]


async def test_b70_stored_rows_are_picked_up_again(projections: SessionProjections, session: Session) -> None:
    projections.register(unit())
    projections.register(unit("second"))
    for _ in range(4):
        session.append("x", {})
    rows = projections.checkpoint(session)
    assert rows == {name: {"ver": 1, "seq": 3, "val": {"x": 4}} for name in ("count", "second")}
    session.append("x", {})
    assert rows["count"]["val"] == {"x": 4}
    older = {**rows, "second": {"ver": 1, "seq": 1, "val": {"x": 2}}}
    floor = projections.restore_floor(older)
    assert floor == 1
    restored = projections.restore(older, session.events[floor:])
    assert (restored.as_of_seq, restored.values) == (4, {"count": 5, "second": 5})
    view = projections.view_checkpoint(older)
    assert (view.as_of_seq, view.values) == (1, {"count": 4, "second": 2})


class Positive:
    def validate(self, value: Any) -> Any:
        if not isinstance(value, dict) or value["x"] < 0:
            raise ValueError(value)
        return value


@pytest.mark.parametrize(
    "row",
    [
        None,
        3,
        {"ver": 2, "seq": 1, "val": {"x": 1}},
        {"ver": 1, "val": {"x": 1}},
        {"ver": 1, "seq": 1},
        {"ver": 1, "seq": 1, "val": {"x": -1}},
    ],
    ids=repr,
)
async def test_b70_an_unusable_row_means_the_whole_log(
    projections: SessionProjections, session: Session, row: Any
) -> None:
    projections.register(unit(state_schema=Positive()))
    projections.register(unit("second"))
    for _ in range(3):
        session.append("x", {})
    rows = {**projections.checkpoint(session), "count": row}
    assert projections.restore_floor(rows) == 0
    assert projections.restore(rows, session.events).values == {"count": 3, "second": 3}
    assert projections.view_checkpoint(rows).values == {"second": 3}
    with pytest.raises(HarnessError, match="needs the log from seq 0, the tail starts at 2"):
        projections.restore(rows, session.events[2:])


async def test_b70_a_failing_unit_harms_no_other(projections: SessionProjections, session: Session) -> None:
    def broken(state: dict[str, int], event: SessionEvent) -> dict[str, int]:
        raise RuntimeError("bad fold")

    projections.register(unit("broken", apply=broken))
    projections.register(unit())
    session.append("x", {})
    session.append("x", {})
    assert projections.snapshot(session).values == {"count": 2}
    assert set(projections.checkpoint(session)) == {"count"}
    with pytest.raises(RuntimeError, match="bad fold"):
        projections.state_of(session, "broken")


async def test_b70_scoped_sessions_are_folded_too(root: Context, projections: SessionProjections) -> None:
    projections.register(unit())
    heard: list[int] = []
    projections.on_changed(lambda session, key, value, seq: heard.append(seq))
    root.scope(object()).ctx[Sessions].create("scoped").append("x", {})
    assert heard == [0]
