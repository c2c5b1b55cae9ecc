"""Records and structs behave as the dataclasses they stand for."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, field, fields, is_dataclass, replace
from typing import Any, ClassVar, Generic, TypeVar

import pytest

from dsh.cordis.records import identity_record, identity_struct, record, struct

T = TypeVar("T")


@record
class Point(Generic[T]):
    """A place."""

    kind: ClassVar[str] = "point"
    x: T
    y: int = 0
    tags: list[str] = field(default_factory=list, compare=False)
    hidden: bool = field(default=False, init=False, repr=False)

    def moved(self) -> Point[T]:
        return replace(self, y=self.y + 1)


@struct
class Base:
    name: str
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.log.append(self.name)


@struct
class Derived(Base):
    size: int = 1


def test_a_record_is_built_compared_hashed_and_shown_by_its_fields() -> None:
    point = Point(1, tags=["a"])
    assert (point.x, point.y, point.tags, point.hidden, Point.kind) == (1, 0, ["a"], False, "point")
    assert point == Point(1) and hash(point) == hash(Point(1)) and point != Point(2) and point != (1, 0)
    assert repr(point) == "Point(x=1, y=0, tags=['a'])"
    assert point.moved() == Point(x=1, y=1)
    assert is_dataclass(point) and [each.name for each in fields(point)] == ["x", "y", "tags", "hidden"]
    match point:
        case Point(x, y):
            assert (x, y) == (1, 0)


def test_a_record_cannot_change_and_has_no_room_for_more() -> None:
    point: Any = Point(1)
    for change in (lambda: setattr(point, "x", 2), lambda: delattr(point, "x"), lambda: setattr(point, "z", 2)):
        with pytest.raises(FrozenInstanceError):
            change()
    assert not hasattr(point, "__dict__")
    assert copy.deepcopy(point) == pickle.loads(pickle.dumps(point)) == copy.copy(point) == point


@pytest.mark.parametrize("arguments", [((), {}), ((1, 2, [], 4), {}), ((1,), {"x": 1}), ((1,), {"other": 1})])
def test_wrong_arguments_are_refused(arguments: tuple[Any, dict[str, Any]]) -> None:
    with pytest.raises(TypeError):
        Point(*arguments[0], **arguments[1])


def test_a_struct_can_change_and_is_inherited() -> None:
    one, other = Derived("a", size=2), Derived("a", size=2)
    one.size = 3
    assert one != other and one.log == ["a"] and Derived.__slots__ == ("size",)
    with pytest.raises(TypeError):
        hash(one)
    with pytest.raises(AttributeError):
        one.colour = "red"  # type: ignore[attr-defined]


def test_identity_records_and_structs_equal_themselves_alone() -> None:
    @identity_record
    class Handle:
        number: int

    @identity_struct
    class Cell:
        number: int

    for cls in (Handle, Cell):
        one, other = cls(1), cls(1)
        assert one == one and one != other and len({one, other}) == 2
    cell = Cell(1)
    cell.number = 2
    assert cell.number == 2


def test_a_default_that_all_would_share_is_refused() -> None:
    with pytest.raises(ValueError, match="default_factory"):

        @struct
        class Wrong:
            items: list[int] = []
