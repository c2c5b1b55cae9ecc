"""Results that are too long for a model: cut where they enter, kept whole in a file that it can read."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsh.cordis import ConfigError, Context
from dsh.files import spill_local, spill_policy
from dsh.files.spill_local import HINT, safe_name
from dsh.files.spill_policy import preview
from dsh.files.spill_store import Spilled, SpillSource
from tests.faults.kit import SPINE, Life, fault

CAP = 4000
SPILL = "- {id: spill-local, name: dsh-spill-local, config: {root: ./spill}}\n"
POLICY = f"- {{id: spill-policy, name: dsh-spill-policy, config: {{maxInlineBytes: {CAP}}}}}\n"
FILES = "- {id: fs, name: dsh-fs-local}\n- {id: tool-fs, name: dsh-tool-fs}\n"
BIG = "- {id: big, name: ./big.py}\n"

PLUGIN = """\
from dsh.core.tools import Tools

def apply(ctx, config, tools: Tools):
    @tools.tool
    async def big(kind: str) -> str:
        "Return a lot."
        if kind == "error":
            raise ValueError("e" * 100_000)
        return {
            "half": "\\ud800x" * 3_000,
            "lines": "line of text 日本\\n" * 300_000,
            "one": "x" * 5_000_000,
            "small": "small",
        }[kind]
"""


def big(kind: str, call_id: str = "c0") -> dict[str, Any]:
    return {"toolCalls": [{"name": "big", "arguments": {"kind": kind}, "id": call_id}]}


def output(life: Life) -> str:
    (found,) = [message["content"] for message in life.messages if message["role"] == "tool"]
    return str(found)


@pytest.mark.parametrize("kind", ["lines", "one", "error", "half"])
async def test_b11a_fault29_a_huge_result_never_fills_a_request_and_its_rest_can_be_read(
    tmp_path: Path, kind: str
) -> None:
    async with fault(tmp_path, [big(kind), "success"], SPILL + POLICY + FILES + BIG, {"big.py": PLUGIN}) as life:
        assert await life.prompt("go") == {"kind": "completed"}
        said = output(life)
        assert len(said.encode()) <= CAP and ("\ufffd" in said) is (kind == "half")
        found = re.search(r"\n\n\(Omitted (\d+) bytes\. Full formatted result stored at: (.+)\. (.+)\)$", said)
        assert found is not None and found[3] == HINT
        path = Path(found[2])
        whole = path.read_text("utf-8")
        kept = said[: found.start()]
        assert int(found[1]) + len(kept.encode()) == len(whole.encode())
        half = len(kept) // 2 - 4
        assert whole.startswith(kept[:half]) and whole.endswith(kept[-half:])
        assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o777 == 0o700
        assert all(len(request.raw) < 3 * CAP + 8000 for request in life.server.requests)
        assert sum(len(str(row)) for row in life.log()) < 100_000, "nor does it fill the log"
        ((result,),) = life.results().values()
        assert result["message"]["content"][0].get("isError", False) is (kind == "error")


async def test_b11b_read_is_never_spilled_and_short_results_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text(("word " * 20 + "\n") * 200)
    read = {"toolCalls": [{"name": "read", "arguments": {"file_path": str(tmp_path / "long.txt")}, "id": "c0"}]}
    async with fault(tmp_path, [read, "success"], SPILL + POLICY + FILES + BIG, {"big.py": PLUGIN}) as life:
        await life.prompt("go")
        assert len(output(life)) > CAP and "Omitted" not in output(life)
    (tmp_path / "two").mkdir()
    async with fault(tmp_path / "two", [big("small"), "success"], SPILL + POLICY + BIG, {"big.py": PLUGIN}) as life:
        await life.prompt("go")
        assert output(life) == "small"
    assert not list(tmp_path.rglob("spill/*/*"))


async def test_b11c_a_store_that_fails_and_a_cap_that_is_too_small_keep_the_result(tmp_path: Path) -> None:
    (tmp_path / "spill").write_text("in the way")
    async with fault(tmp_path, [big("error"), "success"], SPILL + POLICY + BIG, {"big.py": PLUGIN}) as life:
        await life.prompt("go")
        assert len(output(life)) > 100_000
    (tmp_path / "two").mkdir()
    tiny = POLICY.replace(str(CAP), "30")
    async with fault(tmp_path / "two", [big("error"), "success"], SPILL + tiny + BIG, {"big.py": PLUGIN}) as life:
        await life.prompt("go")
        assert len(output(life)) > 100_000


async def test_b11d_the_cap_is_off_unless_set_and_live(tmp_path: Path) -> None:
    off = "- {id: spill-policy, name: dsh-spill-policy}\n"
    rows = SPILL + off + BIG
    async with fault(
        tmp_path, [big("error"), "success", big("error", "c1"), "success"], rows, {"big.py": PLUGIN}
    ) as life:
        await life.prompt("go")
        assert len(output(life)) > 100_000
        await life.edit(SPINE + SPILL + POLICY + BIG)
        await life.prompt("again")
        assert "Omitted" in life.messages[-1]["content"] and len(life.messages[-1]["content"]) <= CAP


async def test_b11e_names_cannot_leave_the_folder_of_their_session(tmp_path: Path) -> None:
    async with Context(base_dir=tmp_path) as root:
        fiber = root.plugin(spill_local, {"root": "spill"})
        await fiber
        store = fiber.instance
        source = SpillSource("../../s", "t", "c", "result")
        for name in ("../../x", "/etc/passwd", "..", "a b\0c", "日😀", "x" * 500, "CON"):
            saved = await store.save_text(source, name, "text \ud800")
            path = Path(saved.locator)
            assert path.parent.parent == tmp_path / "spill" and path.parent.name.startswith("session-")
            assert re.fullmatch(r"[0-9a-f]{12}-[A-Za-z0-9._~-]+", path.name) and len(path.name) < 130
            assert path.read_bytes() == "text \ufffd".encode() and saved.size == len("text \ufffd".encode())
    assert safe_name("a/b") == "a~002Fb" and safe_name("😀") == "~D83D~DE00"
    assert len(os.listdir(tmp_path / "spill")) == 1


@settings(max_examples=200, derandomize=True, deadline=None, database=None)
@given(st.text(min_size=1, max_size=400), st.integers(1, 600))
def test_b11f_a_preview_keeps_to_its_cap_and_cuts_no_character(whole: str, cap: int) -> None:
    data = whole.encode() * 4
    if len(data) <= cap:
        return
    spilled = Spilled("/x/y.txt", len(data), HINT)
    short = preview(data, cap, spilled)
    if short is None:
        return
    assert len(short.encode()) <= cap and ("\ufffd" in whole or "\ufffd" not in short)
    found = re.search(r"\n\n\(Omitted (\d+) bytes\. Full formatted result stored at: /x/y\.txt\. ", short)
    assert found is not None and int(found[1]) == len(data) - len(short[: found.start()].encode())


def test_the_row_takes_a_positive_cap() -> None:
    assert spill_policy.Config.validate({"maxInlineBytes": 1}).max_inline_bytes == 1
    with pytest.raises(ConfigError):
        spill_policy.Config.validate({"maxInlineBytes": 0})
