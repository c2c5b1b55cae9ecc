"""What a run left, beside what the recording holds: logs and the tools that requests offered."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tests.conformance.comparison import Part, Record, log_shape, value_shape
from tests.conformance.corpus import Case, Log, decode_log
from tests.conformance.needs import TOOLS, is_built
from tests.conformance.normalise import Normaliser
from tests.conformance.report import CORPUS
from tests.conformance.workplace import Workplace

PARAMETERS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "sandbox-policy": dict.fromkeys(("bash", "write", "edit"), ("sandbox_permissions", "justification")),
    "jobs-local": {"bash": ("run_in_background",)},
}
"""Parameters that a tool has only beside another row; not expected while that row is not built."""


def log_parts(case: Case, place: Workplace) -> list[Part]:
    """Each stored log beside the recorded one."""
    wanted = [decode_log(case.file(name), "{{cwd}}") for name in case.expect.get("sessions", ())]
    ours, theirs = place.normaliser(), recorded_normaliser(case, wanted)
    found = place.logs()
    parts = []
    for index in range(max(len(wanted), len(found))):
        name = case.expect["sessions"][index] if index < len(wanted) else f"unexpected log {index + 1}"
        want = records(wanted[index], theirs) if index < len(wanted) else []
        got = records(found[index], ours) if index < len(found) else []
        parts.append(Part(name, "log", want, got, log_shape))
    return parts


def records(log: Log, normaliser: Normaliser) -> list[Record]:
    """Header and decoded events, normalised."""
    return normaliser.log([log.header, *(event.to_wire() for event in log.events)])


def recorded_normaliser(case: Case, logs: Sequence[Log] = ()) -> Normaliser:
    """Placeholders for the recorded side, which has most of them already."""
    ids = [log.session_id for log in logs if not log.session_id.startswith("{{")]
    return Normaliser(ids, goal_times="goal-times" in case.spec.get("normalise", ()))


def tool_parts(case: Case, place: Workplace) -> list[Part]:
    """The tools of the first request of the first log: names, order and parameters, without descriptions."""
    if not case.spec.get("config"):
        return []
    file = (CORPUS / case.spec["config"]).with_suffix(".tools.json")
    headers = [
        event.data["header"] for log in place.logs()[:1] for event in log.events if event.type == "request/header"
    ]
    if not file.is_file() or not headers:
        return []
    want = [
        _expected(tool) for tool in json.loads(file.read_text("utf-8"))["initial"] if _is_offered(case, tool["name"])
    ]
    got = [{"name": tool["name"], "parameters": undescribed(tool["parameters"])} for tool in headers[0]["tools"]]
    return [Part(file.name, "tools", want, got, value_shape)]


def _is_offered(case: Case, tool: str) -> bool:
    return any(is_built(row) for row in TOOLS[tool] if row in case.rows)


def _expected(tool: Record) -> Record:
    parameters = dict(tool["parameters"])
    for row, tools in PARAMETERS.items():
        if not is_built(row):
            dropped = tools.get(tool["name"], ())
            parameters["properties"] = {k: v for k, v in parameters["properties"].items() if k not in dropped}
    return {"name": tool["name"], "parameters": parameters}


def undescribed(schema: Any) -> Any:
    """A parameter schema without descriptions; a parameter may itself be called ``description``."""
    if isinstance(schema, Mapping):
        out = {}
        for key, value in schema.items():
            if key == "properties":
                out[key] = {name: undescribed(item) for name, item in value.items()}
            elif key != "description":
                out[key] = undescribed(value)
        return out
    if isinstance(schema, list):
        return [undescribed(item) for item in schema]
    return schema
