"""Folding request headers and contexts."""

from __future__ import annotations

from typing import Any

import pytest

from dsh.core.request_header import canonical_header, headers_equal
from dsh.core.session import Session
from tests.core.session_helpers import chunk, header, say


def test_b58_the_last_header_wins_in_canonical_form() -> None:
    session = Session("s")
    assert session.request_header() is None
    session.append("request/header", header(model="one", system="a", tools=[]))
    assert session.request_header() == {"config": {"provider": "p", "model": "one"}, "system": "a"}
    say(session, "unrelated")
    session.append("assistant/chunk", chunk())
    first = session.request_header()
    assert first is session.request_header()
    session.append("request/header", header(model="two", system="", tools=[], adapterDefaults={}, reason="change"))
    assert session.request_header() == {"config": {"provider": "p", "model": "two"}}


def test_b58_a_read_looks_only_at_new_events(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session("s")
    session.append("request/header", header())
    for _ in range(50):
        session.append("assistant/chunk", chunk())
    session.request_header()
    reads: list[int] = []

    class Watched(list[Any]):
        def __getitem__(self, index: Any) -> Any:
            reads.append(index)
            return super().__getitem__(index)

    monkeypatch.setattr(session._latest, "_log", Watched(session.events))
    session._latest._log.append(session.append("assistant/chunk", chunk()))  # type: ignore[attr-defined]
    session.request_header()
    session.request_context()
    assert reads == [51]


CONFIG = {"provider": "p", "model": "m"}
TOOLS = [{"name": "a", "description": "", "parameters": {}}, {"name": "b", "description": "", "parameters": {}}]


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ({}, {"tools": []}, True),
        ({}, {"system": "", "adapterDefaults": {}}, True),
        ({"tools": TOOLS}, {"tools": [dict(reversed(tool.items())) for tool in TOOLS]}, True),
        ({"tools": TOOLS}, {"tools": TOOLS[::-1]}, False),
        ({"tools": TOOLS}, {}, False),
        ({"config": CONFIG}, {"config": {**CONFIG, "stop": []}}, False),
        ({"config": {**CONFIG, "stop": ["a", "b"]}}, {"config": {**CONFIG, "stop": ["b", "a"]}}, False),
        ({"config": {**CONFIG, "temperature": 1}}, {"config": {**CONFIG, "temperature": 1.0}}, True),
        ({"config": {**CONFIG, "temperature": 1}}, {"config": {**CONFIG, "temperature": 2}}, False),
        ({"system": "a"}, {"system": "b"}, False),
        ({"adapterDefaults": {"maxTokens": True}}, {}, False),
        ({}, {"messagePrefix": "old"}, True),
    ],
    ids=repr,
)
def test_b59_equality_of_headers(one: dict[str, Any], other: dict[str, Any], equal: bool) -> None:
    first, second = {"config": CONFIG, **one}, {"config": CONFIG, **other}
    assert headers_equal(first, second) is equal
    assert headers_equal(second, first) is equal
    assert headers_equal(canonical_header(first), canonical_header(second)) is equal


def test_b60_a_context_without_capacity_clears_it() -> None:
    session = Session("s")
    assert session.request_context() is None
    session.append("request/context", {"provider": "p", "model": "m", "contextWindow": 1000})
    assert session.request_context() == {"provider": "p", "model": "m", "contextWindow": 1000}
    session.append("request/context", {"provider": "p", "model": "m"})
    assert session.request_context() == {"provider": "p", "model": "m"}


def test_b61_folded_values_are_frozen() -> None:
    session = Session("s")
    session.append("request/header", header(system="a", tools=[]))
    session.append("request/context", {"provider": "p", "model": "m"})
    for folded in (session.request_header(), session.request_context()):
        assert folded is not None
        with pytest.raises(TypeError):
            folded["provider"] = "x"
    config = (session.request_header() or {})["config"]
    with pytest.raises(TypeError):
        config["model"] = "x"


def test_b58_a_header_that_is_canonical_already_is_shared() -> None:
    session = Session("s")
    event = session.append("request/header", header(system="a"))
    assert session.request_header() is event.data["header"]
