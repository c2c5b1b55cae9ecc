"""Finding and reading the recorded cases.

The corpus lies outside the repository: `DSH_CONFORMANCE`, or `../shared/conformance` beside it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from dsh.core.legacy import import_legacy
from dsh.core.packed_rows import is_packed, unpack
from dsh.core.session_event import SessionEvent
from dsh.loader.names import short_name
from tests.conformance.report import CORPUS, PRESENT

REPLAY_CWD = "/replay/cwd"


@dataclass(frozen=True)
class Case:
    """One recorded case: its folder and its `case.json`."""

    path: Path
    spec: dict[str, Any]

    @property
    def id(self) -> str:
        return f"{self.spec['suite']}/{self.spec['case']}"

    @property
    def driver(self) -> str:
        return str(self.spec["driver"])

    @property
    def target(self) -> str:
        return str(self.spec["target"])

    @property
    def expect(self) -> dict[str, Any]:
        return dict(self.spec.get("expect", {}))

    def file(self, name: str) -> Path:
        """A file of the case."""
        return self.path / name

    def recorded_rows(self) -> list[dict[str, Any]]:
        """The rows of the recording's composition, placeholders and all."""
        config = self.spec.get("config")
        return [*(_composition(config) if config else ()), *self.spec.get("rows", ())]

    @property
    def rows(self) -> list[str]:
        """Short names of the composition's rows."""
        return [short_name(row["name"]) or row["name"] for row in self.recorded_rows()]

    @property
    def facts(self) -> dict[str, dict[str, Any]]:
        return dict(self.spec.get("facts", {}))

    @property
    def legacy_shapes(self) -> frozenset[str]:
        return frozenset(self.spec.get("legacyShapes", ()))


@dataclass(frozen=True)
class Log:
    """A decoded fixture log: header line, storage rows with rebuilt envelope, events as stored."""

    header: dict[str, Any]
    rows: list[dict[str, Any]] = field(default_factory=list)
    events: list[SessionEvent] = field(default_factory=list)

    @property
    def session_id(self) -> str:
        return str(self.header["id"])

    def read(self) -> list[SessionEvent]:
        """The events with old shapes translated."""
        return import_legacy(self.session_id, self.events)


def load_cases(driver: str | None = None) -> list[Case]:
    """All cases, or those of one driver, in path order; empty without a corpus."""
    return [case for case in _all_cases() if driver in (None, case.driver)]


@cache
def _composition(config: str) -> tuple[dict[str, Any], ...]:
    return tuple(yaml.safe_load((CORPUS / config).read_text("utf-8")))


@cache
def _all_cases() -> tuple[Case, ...]:
    paths = sorted(CORPUS.glob("*/*/case.json")) if PRESENT else []
    return tuple(Case(path.parent, json.loads(path.read_text("utf-8"))) for path in paths)


def recorded_logs() -> list[tuple[Case, Path]]:
    """Every log of every case, but those that only try the normaliser."""
    return [(case, path) for case in load_cases() if case.driver != "normaliser" for path in log_files(case)]


def logs_with_facts() -> list[tuple[Case, Path]]:
    """The logs that their case states facts about."""
    return [(case, case.path / name) for case in load_cases() for name in case.facts]


def label(value: object) -> str:
    """How a case or a file is called in the name of a test."""
    return value.id if isinstance(value, Case) else getattr(value, "name", str(value))


def log_files(case: Case) -> Iterator[Path]:
    """Every session log of a case: files whose first line is a session header."""
    for path in sorted(case.path.glob("*.jsonl")):
        first = read_lines(path)[0]
        if isinstance(first, dict) and first.get("type") == "session":
            yield path


def read_lines(path: Path, cwd: str | None = None) -> list[Any]:
    """The JSON values of a file, one a line; `{{cwd}}` filled in if given. Lines end at a newline and nothing else."""
    text = path.read_bytes().decode("utf-8")
    if cwd is not None:
        text = text.replace("{{cwd}}", json.dumps(cwd)[1:-1])
    return [json.loads(line) for line in text.split("\n") if line.strip()]


def decode_log(path: Path, cwd: str = REPLAY_CWD) -> Log:
    """Read a fixture log or a recorded event stream.

    Sequence numbers count decoded events and times are 0 where the file dropped them.
    """
    header, *rows = read_lines(path, cwd)
    if header.get("type") == "session_event":  # what a one-shot run printed: events wrapped in stream lines
        events = [SessionEvent.from_wire(row["event"]) for row in (header, *rows) if row["type"] == "session_event"]
        return Log({"id": header["sessionId"]}, [event.to_wire() for event in events], events)
    log = Log(header)
    for row in rows:
        seq, time = ("seq0", "time0") if is_packed(row) else ("seq", "time")
        row = {"type": row["type"], seq: len(log.events), time: 0, **row}
        log.rows.append(row)
        log.events.extend(unpack(row))
    return log
