"""Differences on purpose: one file a case in ``allowed/``, each entry with its reason.

An entry says how a recorded record reads here (``part``, ``where``, ``set``) or how a wanted text does
(``text``), or it changes a row before the run (``row``, ``config``). An entry that no longer fits anything is an error,
so none outlives its reason.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from tests.conformance.comparison import Part, Record

FOLDER = Path(__file__).parent / "allowed"


class StaleAllowanceError(Exception):
    """An allowed difference that fits nothing in the recording."""


@dataclass(frozen=True)
class Allowance:
    """One difference on purpose. Paths are dotted; ``where`` picks the records it is about."""

    reason: str
    part: str | None = None
    where: Mapping[str, Any] = field(default_factory=dict)
    set: Mapping[str, Any] = field(default_factory=dict)
    text: Mapping[str, str] = field(default_factory=dict)
    row: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)


def allowances(case_id: str) -> list[Allowance]:
    """What the file of a case allows; nothing without a file."""
    file = FOLDER / f"{case_id.replace('/', '.')}.yml"
    return [Allowance(**entry) for entry in yaml.safe_load(file.read_text("utf-8"))] if file.is_file() else []


def wanted_texts(wanted: Sequence[str], allowed: Sequence[Allowance]) -> list[str]:
    """The texts that must appear, as they read here."""
    out = list(wanted)
    for allowance in allowed:
        for recorded, here in allowance.text.items():
            if recorded not in out:
                raise StaleAllowanceError(f"nobody wants {recorded!r}: {allowance.reason}")
            out[out.index(recorded)] = here
    return out


def changed_rows(rows: Sequence[Record], allowed: Sequence[Allowance]) -> list[Record]:
    """The rows of a composition with the config keys that allowances change."""
    out = [copy.deepcopy(row) for row in rows]
    for allowance in allowed:
        if allowance.row is not None:
            hit = [row for row in out if row["id"] == allowance.row]
            if not hit:
                raise StaleAllowanceError(f"no row {allowance.row}: {allowance.reason}")
            hit[0]["config"] = {**(hit[0].get("config") or {}), **allowance.config}
    return out


def apply(parts: Sequence[Part], allowed: Sequence[Allowance]) -> list[Part]:
    """The parts with the recorded sides as they read here."""
    out = list(parts)
    for allowance in allowed:
        if allowance.part is None:
            continue
        index = next((i for i, part in enumerate(out) if part.name == allowance.part), None)
        want = copy.deepcopy(list(out[index].want)) if index is not None else []
        hits = [record for record in want if all(_get(record, path) == v for path, v in allowance.where.items())]
        if index is None or not hits:
            raise StaleAllowanceError(f"nothing in {allowance.part} fits: {allowance.reason}")
        for record in hits:
            for path, value in allowance.set.items():
                _set(record, path, value)
        out[index] = replace(out[index], want=want)
    return out


def _get(record: Any, path: str) -> Any:
    for key in path.split("."):
        record = record.get(key) if isinstance(record, Mapping) else None
    return record


def _set(record: Any, path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for key in parents:
        record = record[key]
    record[last] = value
