"""How errors carry codes and are put into words."""

from __future__ import annotations

import pickle

from dsh.cordis.errors import (
    AbortError,
    CordisError,
    HarnessError,
    InvariantError,
    describe_error,
    error_chain,
)


class Hostile(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text for you")


def test_codes_come_from_the_class_or_the_instance() -> None:
    class Custom(HarnessError):
        code = "CUSTOM"

    assert Custom("x").code == "CUSTOM"
    assert HarnessError("x", code="OTHER").code == "OTHER"
    assert HarnessError.code == "UNKNOWN"
    assert CordisError("NOT_INJECTED", "say why").code == "NOT_INJECTED"
    assert str(CordisError("NOT_INJECTED", "say why")) == "say why"
    assert AbortError().code == "ABORTED" and str(AbortError()) == "aborted"
    assert AbortError(reason=3).reason == 3


def test_invariant_error_names_its_package() -> None:
    error = InvariantError("session", "seq went backwards")
    assert isinstance(error, CordisError) and error.code == "INVARIANT"
    assert str(error) == "session: seq went backwards"


def test_errors_survive_pickling() -> None:
    for error in (CordisError("A", "b"), InvariantError("p", "m")):
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), copy.code, str(copy)) == (type(error), error.code, str(error))


def test_blank_text_shows_the_class_name() -> None:
    assert describe_error(TimeoutError()) == "TimeoutError"
    assert describe_error(ValueError("  \n")) == "ValueError"
    assert describe_error(ValueError("bad")) == "bad"


def test_hostile_text_is_contained() -> None:
    assert describe_error(Hostile()) == "<unprintable thrown value>"
    with_message = Hostile()
    with_message.message = "plain"  # type: ignore[attr-defined]
    assert describe_error(with_message) == "plain"


def test_chain_joins_causes_and_skips_repeats() -> None:
    inner = OSError("connection refused")
    middle = RuntimeError("request failed: connection refused")
    middle.__cause__ = inner
    outer = ValueError("no answer")
    outer.__cause__ = middle
    assert error_chain(outer) == "no answer: request failed: connection refused"


def test_chain_lists_group_members() -> None:
    one, two = ValueError("a"), KeyError("b")
    two.__cause__ = OSError("c")
    group = ExceptionGroup("two failed", [one, two])
    assert error_chain(group) == "two failed [a; 'b': c]"


def test_chain_stops_at_a_circle() -> None:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    assert error_chain(first) == "first: second: <circular cause>"


def test_one_cause_in_two_branches_is_not_circular() -> None:
    shared = OSError("disk full")
    one, two = ValueError("a"), ValueError("b")
    one.__cause__ = two.__cause__ = shared
    assert error_chain(ExceptionGroup("g", [one, two])) == "g [a: disk full; b: disk full]"
