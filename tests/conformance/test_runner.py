"""The runner itself: what counts as equal, what is left out, what is replaced, and what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from dsh.loader.resolve import ResolveError
from tests.conformance import allowed, composition, floor, needs
from tests.conformance.allowed import Allowance, StaleAllowanceError
from tests.conformance.comparison import Part, differences, log_shape
from tests.conformance.composition import NeedsConfinementError, compose, places
from tests.conformance.corpus import Case, load_cases
from tests.conformance.report import CORPUS
from tests.conformance.verdict import judge

BUILT = {"llm", "bash-local", "fs-local"}


def chunk(text: str) -> dict[str, Any]:
    return {"type": "assistant/chunk", "data": {"turn": 1, "step": 1, "chunk": {"type": "text-delta", "text": text}}}


def log(*chunks: str, text: str = "hello", kind: str = "completed") -> list[dict[str, Any]]:
    message = {"role": "assistant", "content": [{"type": "text", "text": text}]}
    return [
        {"type": "turn/start", "data": {"turn": 1}},
        *map(chunk, chunks),
        {"type": "assistant/message", "data": {"turn": 1, "step": 1, "message": message}, "surfaceOp": "append"},
        {"type": "turn/end", "data": {"turn": 1, "reason": {"kind": kind}}},
    ]


def part(want: list[dict[str, Any]], got: list[dict[str, Any]]) -> Part:
    return Part("log", "log", want, got, log_shape)


def test_key_order_is_no_difference_and_true_is_not_one() -> None:
    assert part([{**chunk("a"), "x": 1}], [{"x": 1, **chunk("a")}]).is_exact
    assert not part([{**chunk("a"), "x": True}], [{**chunk("a"), "x": 1}]).is_exact


def test_chunk_counts_are_no_structure_but_ends_and_final_texts_are() -> None:
    assert part(log("hel", "lo"), log("hello")).is_alike
    assert not part(log("hel", "lo"), log("hello")).is_exact
    assert not part(log("hello"), log("hello", kind="error")).is_alike
    assert not part(log("hello"), log("hello", text="bye")).is_alike
    assert not part(log("hello"), log("hello")[:-1]).is_alike


def test_differences_name_the_path_of_a_changed_value_and_missing_records() -> None:
    lines = list(differences(log("hello"), log("hello", kind="error")))
    assert lines[0] == "@ 3 turn/end"
    assert [line.strip() for line in lines[1:]] == [".data.reason.kind", '- "completed"', '+ "error"']
    assert [line[0] for line in differences(log("a"), log("a")[1:])] == ["-"]
    assert list(differences(log("a"), log("a"))) == []


def test_an_allowed_difference_changes_the_recorded_side_and_must_fit() -> None:
    entry = Allowance("why", "log", where={"type": "turn/end"}, set={"data.reason.kind": "error"})
    assert allowed.apply([part(log("a"), log("a", kind="error"))], [entry])[0].is_exact
    for stale in (
        Allowance("why", "log", where={"type": "turn/over"}, set={"data.turn": 2}),
        Allowance("why", "other log", where={}, set={"data.turn": 2}),
    ):
        with pytest.raises(StaleAllowanceError, match="why"):
            allowed.apply([part(log("a"), log("a"))], [stale])
    with pytest.raises(StaleAllowanceError):
        allowed.wanted_texts(["a"], [Allowance("why", text={"b": "c"})])
    with pytest.raises(StaleAllowanceError):
        allowed.changed_rows([{"id": "a"}], [Allowance("why", row="b")])


@pytest.mark.parametrize("file", sorted(allowed.FOLDER.glob("*.yml")), ids=lambda file: file.stem)
def test_every_file_of_allowed_differences_is_of_a_case_and_gives_reasons(file: Path) -> None:
    assert (CORPUS / file.stem.replace(".", "/", 1) / "case.json").is_file()
    assert all(each.reason.strip() for each in allowed.allowances(file.stem.replace(".", "/", 1)))


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """A build of its own: names of rows that exist."""
    built = set(BUILT)
    monkeypatch.setattr(composition, "is_built", lambda row: row.removeprefix("@deepseek-ai/dsh-") in built)
    return built


def a_case(monkeypatch: pytest.MonkeyPatch, *rows: dict[str, Any]) -> Case:
    monkeypatch.setattr(Case, "recorded_rows", lambda self: list(rows))
    return Case(Path("/nowhere"), {"suite": "made", "case": "up"})


def row(name: str, **config: Any) -> dict[str, Any]:
    return {"id": name, "name": f"@deepseek-ai/dsh-{name}", "config": config}


def values(mode: str = "danger-full-access") -> dict[str, str]:
    here = Path("/run")
    return places(here / "work", here / "sessions", "/spill", here / "home", {"DSH_PERMISSION_MODE": mode})


def test_rows_that_are_not_built_are_left_out_by_name(build: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    made = compose(a_case(monkeypatch, row("llm", root="@CWD@/x"), row("skill")), values())
    assert [each["id"] for each in made.rows] == ["llm"]
    assert made.rows[0]["config"] == {"root": "/run/work/x"}
    assert made.left_out == ["skill"]


def test_confining_rows_are_replaced_only_while_nothing_is_confined(
    build: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = (
        row("sandbox-policy", mode="@PERMISSION_MODE@"),
        row("bash-sandbox", timeoutMs=5),
        row("user-approval", policy="@APPROVAL_POLICY@"),
    )
    case = a_case(monkeypatch, *rows)
    made = compose(case, values())
    assert made.replaced["bash-sandbox"] == "bash-local"
    assert {"id": "bash-sandbox", "name": "bash-local", "config": {"timeoutMs": 5}} in made.rows
    with pytest.raises(NeedsConfinementError, match="sandbox-policy, bash-sandbox, user-approval"):
        compose(case, values("workspace-write"))
    build |= {"sandbox-policy", "bash-sandbox", "user-approval"}
    for mode in ("danger-full-access", "workspace-write"):
        assert compose(case, values(mode)).replaced == {}


def test_a_test_plugin_that_is_not_written_is_an_error(build: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError, match="test:nothing"):
        compose(a_case(monkeypatch, {"id": "x", "name": "test:nothing"}), values())


def test_the_floor_is_raised_and_never_lowered() -> None:
    assert floor.raised(frozenset({"L1"}), frozenset({"L1", "L2"})) == {"L1", "L2"}
    assert floor.raised(frozenset({"L1", "L2"}), frozenset({"L1"})) == {"L1", "L2"}
    assert floor.raised(frozenset({"waiting"}), frozenset({"L1"})) == {"L1"}
    assert floor.raised(frozenset({"L1"}), frozenset({"waiting"})) == {"L1"}
    assert floor.raised(frozenset(), frozenset({"waiting"})) == {"waiting"}


def test_a_name_that_nobody_knows_is_an_error() -> None:
    assert needs.is_built("llm")
    assert not needs.is_built("tool-pwsh-persistent")
    with pytest.raises(ResolveError):
        needs.is_built("no-such-row")


@pytest.mark.parametrize(
    ("recorded", "altered", "marks"),
    [
        ("", "", {"L1", "L2"}),
        ("Decide whether to retry", "Decide if to retry", {"L1"}),  # wording of a result
        ("TOOL_OUTCOME_UNKNOWN", "TOOL_LOST", set()),  # an error code
        ('{"type":"session/end-seed","data":{}}\n', "", set()),  # a record
    ],
)
async def test_a_run_is_judged_by_what_was_recorded(
    recorded: str, altered: str, marks: set[str], tmp_path: Path
) -> None:
    (original,) = [case for case in load_cases() if case.id == "headless-resume/tool-outcome-unknown"]
    folder = tmp_path / "case"
    shutil.copytree(original.path, folder)
    log = folder / "session.expected.jsonl"
    text = log.read_text("utf-8")
    assert recorded in text
    log.write_text(text.replace(recorded, altered) if recorded else text, "utf-8")
    place = tmp_path / "run"
    place.mkdir()
    verdict = await judge(Case(folder, original.spec), place)
    assert verdict.marks == marks
    assert bool(verdict.report) == ("L2" not in marks)
