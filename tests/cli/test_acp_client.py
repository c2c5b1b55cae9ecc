"""The client of the PyPI package ``agent-client-protocol``, unmodified, drives ``dsh acp``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.kit import PYTHON, Place
from tests.interfaces.acp_kit import appears, compose, plugin, script

acp = pytest.importorskip("acp", reason="the package agent-client-protocol is not installed (extra dev)")
from acp import spawn_agent_process, text_block  # noqa: E402
from acp.exceptions import RequestError  # noqa: E402
from acp.schema import AllowedOutcome, RequestPermissionResponse  # noqa: E402


class Editor:
    """A client that keeps what it is told and answers every question with one option."""

    def __init__(self, choice: str) -> None:
        self.choice = choice
        self.updates: list[Any] = []
        self.asked: list[Any] = []
        self.seen = asyncio.Event()

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append(update)
        self.seen.set()

    async def request_permission(
        self, session_id: str, tool_call: Any, options: list[Any], **_: Any
    ) -> RequestPermissionResponse:
        self.asked.append((tool_call, options))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=self.choice))

    def on_connect(self, conn: Any) -> None:
        pass

    def kinds(self) -> list[str]:
        return [update.session_update for update in self.updates]

    def text(self) -> str:
        return "".join(u.content.text for u in self.updates if u.session_update == "agent_message_chunk")


@asynccontextmanager
async def connected(place: Place, editor: Editor, presentation: str) -> AsyncIterator[Any]:
    config = compose(place, acp={"presentation": presentation}, extra=[plugin("approval")])
    command = (PYTHON, "-m", "dsh.cli.main", "acp", "--config", str(config))
    async with spawn_agent_process(editor, *command, env=place.env, cwd=place.work) as (connection, process):
        hello = await connection.initialize(protocol_version=acp.PROTOCOL_VERSION)
        assert hello.agent_info.name == "deepseek-harness-acp"
        yield connection
    assert process.returncode == 0


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place.make(tmp_path)


def risky(place: Place) -> str:
    command = f"echo risky; touch {place.work / 'ran'}"
    call = {"call": "bash", "id": "c1", "arguments": {"command": command, "description": "try"}}
    return script([call], [{"text": "DONE"}])


@pytest.mark.parametrize("presentation", ["automation", "editor"])
async def test_new_session_prompts_and_cancel(place: Place, presentation: str) -> None:
    editor = Editor("allow-once")
    async with connected(place, editor, presentation) as client:
        session = (await client.new_session(cwd=str(place.work), mcp_servers=[])).session_id
        for word in ("one", "two"):
            answer = await client.prompt(session_id=session, prompt=[text_block(word)])
            assert answer.stop_reason == "end_turn"
        assert editor.text() == "blind heard: oneblind heard: two"
        ready = place.work / "ready"
        hanging = script([{"touch": str(ready)}, {"hang": True}])
        prompt = asyncio.ensure_future(client.prompt(session_id=session, prompt=[text_block(hanging)]))
        await appears(ready)
        with pytest.raises(RequestError, match="already in flight"):
            await client.prompt(session_id=session, prompt=[text_block("too early")])
        await client.cancel(session_id=session)
        assert (await prompt).stop_reason == "cancelled"
        with pytest.raises(RequestError, match="turn failed: scripted AUTH"):
            await client.prompt(session_id=session, prompt=[text_block(script([{"fail": "AUTH"}]))])
        with pytest.raises(RequestError, match="cwd must be an absolute path: here"):
            await client.new_session(cwd="here", mcp_servers=[])


@pytest.mark.parametrize(("choice", "ran"), [("allow-once", True), ("reject-once", False)])
@pytest.mark.parametrize("presentation", ["automation", "editor"])
async def test_permission(place: Place, presentation: str, choice: str, ran: bool) -> None:
    editor = Editor(choice)
    async with connected(place, editor, presentation) as client:
        session = (await client.new_session(cwd=str(place.work), mcp_servers=[])).session_id
        answer = await client.prompt(session_id=session, prompt=[text_block(risky(place))])
        assert answer.stop_reason == "end_turn" and editor.text() == "DONE"
    ((tool_call, options),) = editor.asked
    assert tool_call.tool_call_id == "c1"
    assert {"allow_once", "reject_once"} <= {option.kind for option in options}
    assert (place.work / "ran").exists() == ran


async def test_everything_an_editor_is_shown_fits_the_schema(place: Place) -> None:
    place.write("a.txt", "one\n")
    editor = Editor("allow-once")
    todos = [{"content": "look", "status": "pending"}]
    steps = script(
        [{"think": "hm"}, {"call": "read", "id": "c1", "arguments": {"file_path": "a.txt"}}],
        [{"call": "edit", "id": "c2", "arguments": {"file_path": "a.txt", "old_string": "one", "new_string": "1"}}],
        [{"call": "todo_write", "id": "c3", "arguments": {"todos": todos}}],
        [{"call": "bash", "id": "c4", "arguments": {"command": "echo hi", "description": "say hi"}}],
        [{"text": "Done."}],
    )
    async with connected(place, editor, "editor") as client:
        made = await client.new_session(cwd=str(place.work), mcp_servers=[])
        session = made.session_id
        assert made.config_options[0].current_value == "scripted/blind"
        await client.set_config_option(session_id=session, config_id="model", value="scripted/eyes")
        assert (await client.prompt(session_id=session, prompt=[text_block(steps)])).stop_reason == "end_turn"
        live = editor.kinds()
        assert {
            "agent_thought_chunk",
            "agent_message_chunk",
            "tool_call",
            "tool_call_update",
            "plan",
            "usage_update",
        } == set(live)
        await client.close_session(session_id=session)
        listed = await client.list_sessions(cwd=str(place.work))
        assert [one.session_id for one in listed.sessions] == [session]
        editor.updates.clear()
        await client.load_session(session_id=session, cwd=str(place.work), mcp_servers=[])
        assert set(editor.kinds()) == {*live, "user_message_chunk"}
        editor.updates.clear()
        await client.close_session(session_id=session)
        await client.resume_session(session_id=session, cwd=str(place.work), mcp_servers=[])
        assert editor.updates == []
        assert (await client.prompt(session_id=session, prompt=[text_block("on")])).stop_reason == "end_turn"
