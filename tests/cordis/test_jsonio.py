"""Durable JSON values: what is accepted, how it is frozen, and that both codecs agree."""

from __future__ import annotations

import copy
import enum
import json
import math
import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsh.cordis import jsonio
from dsh.cordis.jsonio import (
    FrozenDict,
    FrozenList,
    JsonDecodeError,
    NotJsonError,
    decode,
    encode,
    encode_str,
    freeze_json,
    frozen_object,
    json_equal,
    snapshot_json,
    thaw,
)


class Color(enum.StrEnum):
    RED = "red"


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def test_accepts_json_and_makes_it_plain() -> None:
    shared = {"a": 1}
    value = snapshot_json({"list": (1, 2), Color.RED: Color.RED, "one": shared, "two": shared, "none": None})
    assert value == {"list": [1, 2], "red": "red", "one": {"a": 1}, "two": {"a": 1}, "none": None}
    assert isinstance(value, FrozenDict)
    assert [type(key) for key in value] == [str] * 5 and type(value["red"]) is str
    assert list(value) == ["list", "red", "one", "two", "none"]


def test_result_is_detached_and_frozen() -> None:
    source = {"items": [{"a": 1}], "__proto__": 2}
    value: Any = snapshot_json(source)
    source["items"].append(3)  # type: ignore[attr-defined]
    assert value["items"] == [{"a": 1}] and value["__proto__"] == 2
    for attempt in (
        lambda: value.update(x=1),
        lambda: value.__setitem__("x", 1),
        lambda: value.pop("items"),
        lambda: value["items"].append(1),
        lambda: value["items"].sort(),
        lambda: value["items"][0].clear(),
        lambda: value["items"].__iadd__([1]),
        lambda: value.__ior__({}),
    ):
        with pytest.raises(TypeError, match="frozen"):
            attempt()
    assert json.dumps(value) == '{"items": [{"a": 1}], "__proto__": 2}'


def test_frozen_values_are_shared() -> None:
    value = snapshot_json({"a": [1]})
    assert snapshot_json(value) is value
    assert snapshot_json({"inner": value})["inner"] is value  # type: ignore[index,call-overload]
    assert copy.deepcopy(value) is value and copy.copy(value) is value
    assert pickle.loads(pickle.dumps(value)) == value


def test_a_frozen_value_made_by_hand_is_checked_too() -> None:
    assert type(FrozenDict(a={"b": (1,)})["a"]["b"]) is FrozenList
    with pytest.raises(NotJsonError):
        FrozenDict(a=object())


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": [1, math.nan]}, "$.a[1]"),
        ({"a": math.inf}, "$.a"),
        ([-0.0], "$[0]"),
        ({"a": {"b": b"x"}}, "$.a.b"),
        ({1: "x"}, "$.1"),
        ({"a": {1, 2}}, "$.a"),
        ([2**53 + 1], "$[0]"),
        (10**400, "$"),
        (object(), "$"),
    ],
)
def test_refuses_what_json_cannot_hold(value: Any, path: str) -> None:
    with pytest.raises(NotJsonError) as caught:
        snapshot_json(value)
    if path != "$.1":
        assert caught.value.path == path
        assert str(caught.value).startswith(path)


def test_refuses_cycles_and_names_the_path() -> None:
    loop: dict[str, Any] = {"a": {}}
    loop["a"]["b"] = loop
    with pytest.raises(NotJsonError, match="contains itself") as caught:
        snapshot_json({"x": loop})
    assert caught.value.path == "$.x.a.b"


def test_numbers_follow_doubles() -> None:
    assert repr(snapshot_json([1.0, 2.5, True, 2**60, 1e300])) == repr([1, 2.5, True, 2**60, 1e300])
    assert type(snapshot_json(5.0)) is int
    assert type(snapshot_json(float(2**53))) is float


def test_an_error_of_the_input_passes_through() -> None:
    class Angry(dict[str, Any]):
        def items(self) -> Any:
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        snapshot_json([Angry(a=1)])


def test_a_frozen_object_is_what_a_snapshot_gives() -> None:
    fields = {"turn": 1, "text": "x", "inner": snapshot_json({"a": [1]})}
    made = frozen_object(fields)
    assert type(made) is FrozenDict and made == fields and snapshot_json(made) is made
    fields["turn"] = 2
    assert made["turn"] == 1


def test_each_container_is_read_once() -> None:
    class Counting(dict[str, Any]):
        reads = 0

        def items(self) -> Any:
            self.reads += 1
            return super().items()

    value = Counting(a=1)
    snapshot_json({"x": value})
    assert value.reads == 1


def test_20000_levels_pass_freeze_encode_decode_and_thaw() -> None:
    frozen = freeze_json(nested(20_000))
    text = encode(frozen)
    assert text == b"[" * 20_001 + b"]" * 20_001
    assert json_equal(decode(text), frozen)
    assert json_equal(thaw(frozen), frozen)


def test_thaw_gives_plain_mutable_copies() -> None:
    value = thaw(snapshot_json({"a": [{"b": 1}]}))
    assert type(value) is dict and type(value["a"]) is list and type(value["a"][0]) is dict
    value["a"].append(2)


def test_lone_surrogates_survive_a_utf8_file() -> None:
    value = snapshot_json({"\udc00k": "a\ud800b"})
    text = encode(value)
    assert text == b'{"\\udc00k":"a\\ud800b"}'
    assert decode(text) == value
    assert decode(text.decode("ascii")) == value


def test_encode_checks_what_is_not_frozen_yet() -> None:
    assert encode({"a": (1.0, "é")}) == '{"a":[1,"é"]}'.encode()
    assert encode_str([None, True]) == "[null,true]"
    for bad in ({"a": math.nan}, {"a": object()}, {1: 2}):
        with pytest.raises(NotJsonError):
            encode(bad)


def test_big_numbers() -> None:
    assert encode([2**70]) == str([2**70]).encode()
    assert decode(str(2**70)) == float(2**70) and type(decode(str(2**70))) is float
    assert decode("12345678901234567") == 12345678901234567
    assert type(decode("1.0")) is int and type(decode("[1e5]")[0]) is int  # type: ignore[index]
    assert type(decode("1e300")) is float


@pytest.mark.parametrize(
    "text",
    ["", "nul", "[1,]", "01", "NaN", "Infinity", "-Infinity", "1e400", "-0.0", "[-0e5]", '"\x01"', "{'a':1}", "[1] 2",
     '"\\x"', '{"a"}', "[", '{"a":1', '"abc', "1" * 500, "\ufeff1", "-", "+1", '"\\ud80"'],
)  # fmt: skip
def test_bad_text_is_refused_by_both_decoders(text: str) -> None:
    with pytest.raises(JsonDecodeError):
        decode(text)
    if text not in ("-0.0", "[-0e5]"):
        with pytest.raises(JsonDecodeError):
            jsonio._decode_deep(text.encode())


def test_invalid_utf8_is_refused() -> None:
    with pytest.raises(JsonDecodeError):
        decode(b'"\xff"')


def test_equality_tells_true_from_one() -> None:
    assert json_equal({"a": [1, "x"]}, {"a": (1, "x")})
    assert json_equal({"a": 1, "b": 2}, {"b": 2, "a": 1})
    assert json_equal(1, 1.0)
    for left, right in ((True, 1), ([0], [False]), ({"a": 1}, {"a": 1, "b": None}), ([1], [1, 2]), (None, False),
                        ({"a": None}, {"b": None}), ([], {}), ("", None)):  # fmt: skip
        assert not json_equal(left, right)
        assert not json_equal(right, left)


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False).filter(lambda x: x != 0 or math.copysign(1, x) > 0)
    | st.text(st.characters())
    | st.integers(64, 200).map(lambda n: 2**n)
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
)


@settings(max_examples=150, deadline=None)
@given(values)
def test_both_codecs_give_equal_values(value: Any) -> None:
    frozen = snapshot_json(value)
    assert json_equal(jsonio._freeze_deep(value), frozen)
    fast = encode(frozen)
    slow = jsonio._encode_deep(frozen).encode()
    assert json_equal(decode(fast), frozen)
    assert json_equal(decode(slow), frozen)
    assert json_equal(jsonio._whole_floats(jsonio._decode_deep(fast)), decode(fast))
    assert json_equal(snapshot_json(decode(fast)), frozen)
