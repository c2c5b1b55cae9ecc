"""How long the fuzzers run, and how bytes are cut.

In the test command each property sees a fixed set of examples. With ``DSH_FUZZ`` set to a number it sees that many
times as many, drawn anew in each run: ``DSH_FUZZ=100 pytest tests/fuzz``, or ``scripts/soak fuzz``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

LONG = int(os.environ.get("DSH_FUZZ", "0"))

T = TypeVar("T")


def fuzz(examples: int = 100) -> Callable[[T], T]:
    """Settings of one property."""
    made: Any = settings(
        max_examples=examples * LONG if LONG else max(15, examples // 8),
        derandomize=not LONG,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    return made  # type: ignore[no-any-return]


def slices(data: bytes, cuts: Sequence[float]) -> list[bytes]:
    """`data` cut at the given places, which are parts of its length; empty slices too."""
    places = sorted(round(cut * len(data)) for cut in cuts)
    return [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]


CUTS = st.lists(st.floats(0, 1), max_size=12)

JSON_LEAVES: st.SearchStrategy[Any] = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False).filter(lambda x: str(x) != "-0.0")
    | st.text(max_size=12)
)
JSON: st.SearchStrategy[Any] = st.recursive(
    JSON_LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)
"""Any JSON value."""


def mutated(data: bytes, edits: Sequence[tuple[str, float, bytes]]) -> bytes:
    """`data` after byte edits: each one flips, cuts, inserts or repeats at a place that is a part of its length."""
    for kind, at, more in edits:
        place = round(at * len(data))
        if kind == "cut":
            data = data[:place]
        elif kind == "insert":
            data = data[:place] + more + data[place:]
        elif kind == "delete":
            data = data[:place] + data[place + max(1, len(more)) :]
        elif kind == "repeat":
            data = data[:place] + data[max(0, place - 30) :]
        else:
            data = data[:place] + more + data[place + len(more) :]
    return data


EDITS = st.lists(
    st.tuples(
        st.sampled_from(["cut", "insert", "delete", "repeat", "overwrite"]), st.floats(0, 1), st.binary(max_size=6)
    ),
    min_size=1,
    max_size=4,
)
