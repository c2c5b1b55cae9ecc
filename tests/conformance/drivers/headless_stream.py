"""One task for the composition's agent `main`, its session's events read line by line from standard output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.conformance.allowed import allowances, wanted_texts
from tests.conformance.comparison import Part, stream_shape
from tests.conformance.corpus import Case, read_lines
from tests.conformance.drivers import Ran
from tests.conformance.parts import recorded_normaliser, tool_parts
from tests.conformance.workplace import Workplace


async def run(case: Case, root: Path) -> Ran:
    """Run the composition until its agent is idle."""
    place = Workplace.make(case, root)
    ran = Ran(place.composition)
    options = ("--agent", "main", "--output", "stream-json", "--exit-when-idle", "--no-watch")
    done = await place.run("run", str(place.config), "--prompt", task_of(case), *options)
    lines = done.lines()
    ready = [line for line in lines if line["type"] == "ready"]
    if not ready:
        ran.problems.append(f"the run did not start: {done.err}")
        return ran
    session_id = ready[0]["agents"][0]["sessionId"]
    normaliser = place.normaliser([session_id])
    printed = [line for line in lines if line.get("sessionId") == session_id]
    got = [_line(normaliser.value(line), normaliser) for line in printed]
    recorded = recorded_normaliser(case)
    name = case.expect["stream"]
    want = [_line(recorded.value(line), recorded) for line in read_lines(case.file(name))]
    ran.parts += [Part(name, "wire", want, got, stream_shape), *tool_parts(case, place)]
    text = "\n".join(json.dumps(line, ensure_ascii=False) for line in got)
    ran.expect_parts("the stream", wanted_texts(case.spec.get("streamMust", []), allowances(case.id)), text)
    for each in case.spec.get("streamMustNot", ()):
        if each in text:
            ran.problems.append(f"the stream holds {each!r}")
    failed = want[-2]["event"]["data"]["reason"]["kind"] != "completed"
    ran.expect("exit code", int(failed), done.code)
    return ran


def task_of(case: Case) -> str:
    """The text the agent is given."""
    if "task" in case.spec:
        return str(case.spec["task"])
    (step,) = json.loads(case.file(case.spec["input"]).read_text("utf-8"))["steps"]
    return str(step["text"])


def _line(line: dict[str, Any], normaliser: Any) -> dict[str, Any]:
    """A stream line whose event is normalised like a record of a log."""
    return {**line, "event": normaliser.record(line["event"])} if "event" in line else line
