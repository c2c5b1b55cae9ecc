"""How each kind of case is run: one file a driver, each giving what it compares as parts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

from tests.conformance.comparison import Part
from tests.conformance.composition import Composition
from tests.conformance.corpus import Case


@dataclass
class Ran:
    """What a run left: parts to compare, and what else was not as it should be."""

    composition: Composition
    parts: list[Part] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def expect(self, what: str, want: object, got: object) -> None:
        """Note a problem unless both are equal."""
        if want != got:
            self.problems.append(f"{what}: want {want!r}, got {got!r}")

    def expect_parts(self, what: str, wanted: list[str], text: str) -> None:
        """Note every wanted text that is missing."""
        self.problems += [f"{what} lacks {each!r}: {text!r}" for each in wanted if each not in text]


Driver = Callable[[Case, Path], Awaitable[Ran]]

DRIVERS = {
    "acp": "acp",
    "headless-stream": "headless_stream",
    "headless-cli": "headless_cli",
    "in-process-resume": "in_process_resume",
    "jsonrpc-sdk": "jsonrpc_sdk",
    "jsonrpc-sdk-http": "jsonrpc_sdk_http",
}
"""Drivers that run something. The drivers `log` and `normaliser` read only: level 0."""


def driver_of(case: Case) -> Driver:
    """The function that runs `case` in a fresh folder."""
    module = import_module(f"tests.conformance.drivers.{DRIVERS[case.driver]}")
    run: Driver = module.run
    return run
