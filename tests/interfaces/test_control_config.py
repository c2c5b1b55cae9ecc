"""Editing the composition over the control API: whose file it is, and edits that meet each other."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

import dsh
from dsh.interfaces.control.config_edit import own_file
from dsh.interfaces.control.messages import ApiError
from dsh.interfaces.control.run_folder import find_entries
from tests.cli.kit import Place
from tests.interfaces.control_kit import DEMO, controlled, demo_place

PACKAGE = Path(dsh.__file__).parent


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return demo_place(tmp_path)


async def test_a_run_of_the_packaged_composition_refuses_to_edit_it(tmp_path: Path) -> None:
    place = Place.make(tmp_path)
    async with place.daemon() as daemon:
        await daemon.ready()
        (entry,) = find_entries(place.home)
        transport = httpx.AsyncHTTPTransport(uds=entry.socket)
        async with httpx.AsyncClient(transport=transport, base_url="http://dsh", timeout=30) as http:
            # A row that does not exist: were the file taken for ours, nothing of it would be changed all the same.
            response = await http.patch("/api/config", json={"set": {"no-such-row.key": 1}})
    assert response.status_code == 409
    assert response.json()["error"]["code"] == "PACKAGED" and "`dsh init`" in response.json()["error"]["message"]


def loader_of(path: Path | None) -> Any:
    return SimpleNamespace(root_source=SimpleNamespace(path=path))


@pytest.mark.parametrize(
    ("path", "code"),
    [
        (None, "NO_FILE"),
        (PACKAGE / "profiles" / "sdk.yml", "PACKAGED"),
        (PACKAGE / "_starter" / "cordis.yml", "PACKAGED"),
        (PACKAGE.parent / "cordis.yml", "PACKAGED"),
    ],
)
def test_files_that_come_with_dsh_are_nobodys_to_edit(
    path: Path | None, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ApiError) as refused:
        own_file(loader_of(path))
    assert (refused.value.status, refused.value.code) == (409, code)
    if path is not None:  # a link does not hide it
        link = tmp_path / "link.yml"
        link.symlink_to(path)
        with pytest.raises(ApiError):
            own_file(loader_of(link))


def test_ones_own_file_may_be_edited_also_the_starter_of_the_checkout_one_works_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert own_file(loader_of(tmp_path / "cordis.yml")) == tmp_path / "cordis.yml"
    monkeypatch.chdir(PACKAGE.parent)
    assert own_file(loader_of(PACKAGE.parent / "cordis.yml")) == PACKAGE.parent / "cordis.yml"


async def test_edits_that_meet_are_made_one_after_the_other_and_none_that_was_accepted_is_lost(place: Place) -> None:
    place.write("cordis.yml", DEMO)
    async with controlled(place) as control:

        async def edit(number: int) -> httpx.Response:
            change = {"agent-loop.maxParallelToolCalls": number if number % 2 else -5}
            return await control.http.patch("/api/config", json={"set": change})

        answers = await asyncio.gather(*(edit(number) for number in range(1, 9)))
        statuses = [answer.status_code for answer in answers]
        assert statuses == [200, 422] * 4, [answer.text for answer in answers]
        assert {answer.json()["error"]["code"] for answer in answers[1::2]} == {"REFUSED"}
        found = re.search(r"maxParallelToolCalls: (-?\d+)", (place.work / "cordis.yml").read_text("utf-8"))
        assert found is not None and int(found[1]) in (1, 3, 5, 7)
        shown = (await control.ask("GET", "/api/config"))["text"]
        assert f"maxParallelToolCalls: {found[1]}" in shown


async def test_a_value_is_changed_in_the_file_that_says_it_and_a_refused_one_leaves_all_files_alone(
    place: Place,
) -> None:
    place.write("cordis.yml", DEMO)
    place.write("cordis.patch.yml", patch := "# mine\n- {id: bash, config: {timeoutMs: 1000}} # over it\n")

    async def edit(control: Any, expect: int = 200, **change: Any) -> Any:
        return await control.ask("PATCH", "/api/config", change, expect)

    async with controlled(place) as control:
        await edit(control, set={"bash.timeoutMs": 2000, "tool-bash.allowParallel": False})
        text = (place.work / "cordis.yml").read_text("utf-8")
        assert text == DEMO.replace("allowParallel: true", "allowParallel: false")
        assert (place.work / "cordis.patch.yml").read_text("utf-8") == (changed := patch.replace("1000", "2000"))
        answer = await edit(control, 422, set={"bash.timeoutMs": 3000, "agent-loop.maxParallelToolCalls": 0})
        assert answer["error"]["code"] == "REFUSED" and "cordis.yml:4" in answer["error"]["message"]
        assert (place.work / "cordis.yml").read_text("utf-8") == text
        assert (place.work / "cordis.patch.yml").read_text("utf-8") == changed
        answer = await edit(control, 422, set={"bahs.timeoutMs": 1})
        assert answer["error"]["code"] == "NO_ROW" and 'did you mean "bash"?' in answer["error"]["message"]
        await edit(control, unset=["bash.config", "bash.nothing"])
        assert (place.work / "cordis.patch.yml").read_text("utf-8") == "# mine\n[] # over it\n"
