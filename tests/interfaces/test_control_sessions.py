"""Sessions over the control API: finding stored ones, paging, and changes of which one part is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.kit import Place
from tests.interfaces.control_kit import DEMO, controlled, demo_place

LIMITS = "{fallbackMaxWords: 5, fallbackMaxBytes: 40, maxTitleBytes: 80}"
TITLED = DEMO + f"- {{id: session-title, name: dsh-session-title, config: {LIMITS}}}\n"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = demo_place(tmp_path)
    place.write("cordis.yml", TITLED)
    return place


async def test_a_stored_session_is_found_by_its_title_and_a_cursor_that_is_gone_is_refused(place: Place) -> None:
    async with controlled(place) as control:
        await control.prompt("hello")
        await control.idle()
        await control.ask("PATCH", f"/api/sessions/{control.main}", {"title": "Pineapple"})
        await control.ask("POST", "/api/stop", {}, 202)
        assert await control.daemon.finish() == 0
    async with controlled(place) as later:
        (row,) = (await later.ask("GET", "/api/sessions?q=pineAPPLE"))["sessions"]
        assert (row["sessionId"], row["title"], row["live"]) == (control.main, "Pineapple", False)
        assert (await later.ask("GET", "/api/sessions?q=banana"))["sessions"] == []
        gone = await later.ask("GET", "/api/sessions?cursor=session-gone", expect=400)
        assert gone["error"]["code"] == "BAD_CURSOR"


async def test_a_change_of_which_one_part_is_refused_changes_nothing(place: Place) -> None:
    async with controlled(place) as control:
        path = f"/api/sessions/{control.main}"
        refused = await control.ask("PATCH", path, {"title": "  ", "model": "demo/other"}, 400)
        assert refused["error"]["code"] == "SESSION_TITLE_INVALID"
        await control.ask("PATCH", path, {"title": "kept?", "model": "nothing"}, 400)
        session = await control.ask("GET", path)
        assert (session["model"], session["title"]) == ("demo/demo", None)
