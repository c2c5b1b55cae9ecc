"""The one-shot command as a person types it: exit code, standard output, standard error."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.conformance.composition import test_plugin
from tests.conformance.corpus import Case
from tests.conformance.drivers import Ran
from tests.conformance.workplace import Workplace

_MODEL = {"provider": "cli-mock", "model": "cli-mock"}


async def run(case: Case, root: Path) -> Ran:
    """Run each invocation on the packaged composition, with the case's rows laid over it."""
    place = Workplace.make(case, root)
    ran = Ran(place.composition)
    patch = root / "case.patch.yml"
    patch.write_text(json.dumps(_patch(place)), "utf-8")
    for each in case.spec.get("runs", [case.spec]):
        done = await place.run("exec", each["task"], "--patch", str(patch), env=each.get("env", {}))
        name, expect = each.get("name", "run"), each["expect"]
        ran.expect(f"{name}: exit code", expect["exit"], done.code)
        ran.expect(f"{name}: stdout", expect["stdout"], done.out)
        if "stderr" in expect:
            ran.expect(f"{name}: stderr", expect["stderr"], done.err)
        if "stderrFile" in expect:
            ran.expect(f"{name}: stderr", case.file(expect["stderrFile"]).read_text("utf-8"), done.err)
        ran.expect_parts(f"{name}: stderr", expect.get("stderrMust", []), done.err)
    return ran


def _patch(place: Workplace) -> list[Mapping[str, Any]]:
    """The case's own rows, or the scripted model as default."""
    if place.composition.rows:
        return [{"insert": place.composition.rows}]
    model = {"id": "cli-mock-llm", "name": str(test_plugin("test:cli-mock-llm"))}
    return [{"insert": [model]}, {"id": "agent-default-model", "config": _MODEL}]
