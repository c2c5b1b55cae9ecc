"""Realms: which implementation of a service name a subtree sees."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final


class Realm:
    """A private realm; equal to nothing but itself."""

    __slots__ = ("label",)

    def __init__(self, label: str = "private") -> None:
        self.label = label

    def __repr__(self) -> str:
        return f"<Realm {self.label}>"


ROOT_REALM: Final = None
"""The realm every name maps to unless a context isolates it."""


def realm_label(realm: Hashable) -> str | None:
    """How diagnostics show a realm; `None` is the root realm."""
    if realm is None:
        return None
    return f"private#{id(realm):x}" if isinstance(realm, Realm) else str(realm)
