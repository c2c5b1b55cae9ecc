"""From a recorded composition to one that can run here: placeholders filled in, rows that are not built left out.

Leaving a row out is always said. A row that confines is not left out in silence: it is replaced, by name, and only
where the case runs with full access, so that nothing would have been confined anyway.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dsh.loader import names
from tests.conformance.allowed import allowances, changed_rows
from tests.conformance.corpus import Case
from tests.conformance.needs import CONFINEMENT, is_built

PLUGINS = Path(__file__).parent / "plugins"
FULL_ACCESS = "danger-full-access"


class NeedsConfinementError(Exception):
    """A case that is to be confined meets a build that cannot confine."""


def _keep(*keys: str) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    return lambda config: {key: config[key] for key in keys if key in config}


UNCONFINED: dict[str, tuple[str, Callable[[Mapping[str, Any]], dict[str, Any]]]] = {
    "bash-sandbox": ("bash-local", _keep("cwd", "timeoutMs")),
    "fs-sandbox": ("fs-local", _keep("cwd")),
    "sandbox-policy": ("test:unconfined-files", _keep()),
    "user-approval": ("test:unasked-approval", _keep()),
}
"""What does the same as a confining row when nothing is confined. The two `test:` rows only tell the model so."""

TEST_ROW_CONFIG: dict[str, Callable[[Case], dict[str, Any]]] = {
    "resumed-agent": lambda case: dict(case.spec["resume"]),
}


@dataclass
class Composition:
    """Rows that can run, and what became of those that cannot."""

    rows: list[dict[str, Any]]
    left_out: list[str] = field(default_factory=list)
    replaced: dict[str, str] = field(default_factory=dict)

    def write(self, path: Path) -> Path:
        """As a file that the loader reads (JSON is YAML)."""
        path.write_text(json.dumps(self.rows, indent=1), "utf-8")
        return path


def compose(case: Case, places: Mapping[str, str]) -> Composition:
    """The composition of `case` for this build. `places` gives the values of the ``@PLACEHOLDER@`` names.

    Raises `NeedsConfinementError` when a row that is not built would have had to confine something.
    """
    made = Composition([])
    confined = False
    for row in changed_rows(case.recorded_rows(), allowances(case.id)):
        row = _filled(row, places)
        short = names.short_name(row["name"]) or row["name"]
        config = row.get("config") or {}
        confined |= short == "sandbox-policy" and config.get("mode") != FULL_ACCESS
        confined |= short == "user-approval" and config.get("policy") != "never"
        if row["name"].startswith("test:"):
            made.rows.append(_test_row(case, row))
        elif is_built(row["name"]):
            made.rows.append(row)
        elif short in UNCONFINED:
            name, translate = UNCONFINED[short]
            made.rows.append(_test_row(case, {**row, "name": name, "config": translate(config)}))
            made.replaced[short] = name
        else:
            made.left_out.append(short)
    missing = [row for row in CONFINEMENT if row in made.replaced or row in made.left_out]
    if confined and missing:
        raise NeedsConfinementError(f"{case.id} runs confined, which needs {', '.join(missing)}")
    return made


def places(cwd: Path, sessions: Path, spill: str, home: Path, env: Mapping[str, str]) -> dict[str, str]:
    """Values of the placeholders."""
    mode = env.get("DSH_PERMISSION_MODE") or FULL_ACCESS
    return {
        "@CWD@": str(cwd),
        "@SESSIONS@": str(sessions),
        "@SPILL@": spill,
        "@DSH_HOME@": str(home),
        "@PYTHON@": sys.executable,
        "@PERMISSION_MODE@": mode,
        "@APPROVAL_POLICY@": "never" if mode == FULL_ACCESS else "ask",
    }


def test_plugin(name: str) -> Path:
    """The file of the row ``test:<id>``."""
    return PLUGINS / (name.removeprefix("test:").replace("-", "_") + ".py")


def _test_row(case: Case, row: dict[str, Any]) -> dict[str, Any]:
    if not row["name"].startswith("test:"):
        return row
    file = test_plugin(row["name"])
    if not file.is_file():
        raise FileNotFoundError(f"{case.id} needs the test plugin {row['name']}, which is not written: {file}")
    config = TEST_ROW_CONFIG.get(row["name"].removeprefix("test:"))
    given = {"config": config(case)} if config else {}
    return {**row, "name": str(file), **given}


def _filled(value: Any, places: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        for placeholder, text in places.items():
            value = value.replace(placeholder, text)
        return value
    if isinstance(value, dict):
        return {key: _filled(item, places) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, places) for item in value]
    return value
