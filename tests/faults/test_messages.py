"""What a person reads when something is wrong: one sentence with what, where and what to change; no secret in it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from dsh.loader.problems import LoadError
from dsh.models.mock_server import MockLlmServer
from tests.cli.kit import Place
from tests.faults.kit import SPINE, fault, living, strict
from tests.faults.test_sessions import COMPOSITION

AGENT = "{id: main}"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place.make(tmp_path)
    place.write("cordis.yml", COMPOSITION)
    return place


def refusing(*fields: str) -> Any:
    """A gateway that knows none of these request fields."""

    def entry(body: Any) -> Any:
        for name in fields:
            if name in body:
                message = f"Unrecognized request argument supplied: {name}"
                return {"status": 400, "error": {"message": message, "type": "invalid_request_error"}}
        return "success"

    return entry


async def test_fault06_a_gateway_that_refuses_a_field_is_met_by_a_switch_that_the_error_names(tmp_path: Path) -> None:
    gateway = refusing("stream_options", "thinking", "reasoning_effort")
    spine = SPINE.replace(
        "retryPolicy: {", "omitFields: [stream_options, thinking, reasoning_effort]\n    retryPolicy: {"
    )
    async with MockLlmServer([gateway], repeat_last=True) as server:
        async with living(tmp_path, server) as life:
            reason = await life.prompt("go")
            assert reason["kind"] == "error" and reason["error"]["code"] == "INVALID_REQUEST"
            assert "stream_options" in reason["error"]["message"]
            assert "add stream_options to omitFields of the llm-deepseek row" in reason["error"]["message"]
            assert len(server.requests) == 1, "a refused request is not repeated"
            await life.edit(spine)
            assert await life.prompt("again") == {"kind": "completed"}
        async with living(tmp_path, server, spine=spine) as life:
            assert await life.prompt("once more") == {"kind": "completed"}
        assert not {"stream_options", "thinking", "reasoning_effort"} & set(server.bodies[-1])


async def test_an_unreachable_server_is_named_with_what_to_check(tmp_path: Path) -> None:
    spine = SPINE.replace("!!js env.MODEL_URL", "http://127.0.0.1:9/v1")
    async with MockLlmServer([]) as server, living(tmp_path, server, spine=spine) as life:
        message = (await life.prompt("go"))["error"]["message"]
    assert "127.0.0.1:9" in message and "refused" in message and "baseURL of the llm-deepseek row" in message
    assert "All connection attempts failed" not in message


async def test_a_refused_key_is_named_with_its_server(tmp_path: Path) -> None:
    inside = {"chunks": [{"error": {"message": "invalid api key", "code": 401}}]}
    async with fault(tmp_path, ["auth_error", inside]) as life:
        for _ in range(2):
            error = (await life.prompt("go"))["error"]
            assert error["code"] == "AUTH" and "DEEPSEEK_API_KEY" in error["message"]
            assert f"127.0.0.1:{life.server.port}" in error["message"] and "test-key" not in error["message"]


PASTED = "sk-pasted-0123456789abcdef"


async def test_a_key_pasted_where_its_name_belongs_is_not_repeated(place: Place) -> None:
    wrong = f"llm-deepseek.apiKeyEnv={PASTED}"
    place.write(
        "pasted.yml",
        COMPOSITION.replace("name: dsh-llm-deepseek}", f"name: dsh-llm-deepseek, config: {{apiKeyEnv: {PASTED}}}}}"),
    )
    for done in (
        await place.dsh("exec", "Hi", "--set", wrong, "--output", "json"),
        await place.dsh("config", "check", "pasted.yml"),
        await place.dsh("exec", "Hi", "--config", "pasted.yml"),
        await place.dsh("settings", "set", "llm-deepseek.apiKeyEnv", PASTED),
    ):
        assert done.code in (1, 2) and "apiKeyEnv" in done.err + done.out
        assert "name of a credential" in done.err + done.out and PASTED not in done.err + done.out


async def test_settings_under_secret_names_are_not_shown(place: Place) -> None:
    place.home.mkdir()
    (place.home / "settings.yaml").write_text(
        "mine:\n  apiToken: sk-visible-1\n  inner: {password: hunter2, word: shown}\n"
        "llm-deepseek:\n  apiKey: sk-visible-2\n"
    )
    for arguments in (["list"], ["list", "--json"], ["get", "mine"], ["get", "mine.apiToken"], ["get", "mine.inner"]):
        done = await place.dsh("settings", *arguments)
        assert done.code == 0 and "***" in done.out
        assert not any(secret in done.out + done.err for secret in ("sk-visible", "hunter2"))
    assert "shown" in (await place.dsh("settings", "list")).out


async def test_a_bad_value_of_an_argument_is_blamed_on_the_argument(place: Place) -> None:
    done = await place.dsh("exec", "Hi", "--set", "agent-loop.maxParallelToolCalls=zero")
    assert done.code == 2 and "--set agent-loop.maxParallelToolCalls" in done.err and "cordis.yml" not in done.err


USER_ERROR = """\
from dsh.cordis import HarnessError

def apply(ctx, config):
    raise HarnessError("the folder ./shelf is not there; make it", code="NO_SHELF")
"""


async def test_what_a_plugin_says_to_its_user_comes_without_a_traceback(place: Place) -> None:
    place.write("shelf.py", USER_ERROR)
    place.write("cordis.yml", COMPOSITION + "- {id: shelf, name: ./shelf.py}\n")
    done = await place.dsh("exec", "Hi")
    assert done.code == 1 and "the folder ./shelf is not there; make it" in done.err and "Traceback" not in done.err
    verbose = await place.dsh("-v", "exec", "Hi")
    assert verbose.code == 1 and "Traceback" in verbose.err and "shelf.py" in verbose.err


@pytest.mark.parametrize(
    ("agent", "said"),
    [
        ("{id: main, provider: demo}", "provider without model"),
        ("{id: main, model: demo}", "model without provider"),
        ("{id: main, cwd: ./nowhere}", "there is no folder"),
    ],
)
async def test_an_agent_that_cannot_work_is_refused_at_the_start_and_by_an_edit(
    tmp_path: Path, place: Place, agent: str, said: str
) -> None:
    place.write("cordis.yml", COMPOSITION.replace(AGENT, agent))
    done = await place.dsh("run", "--exit-when-idle", "--prompt", "Hi")
    assert done.code == 1 and said in done.err and 'agent "main"' in done.err and "Traceback" not in done.err
    row = "{id: main, sessionId: s, provider: deepseek-official, model: deepseek-v4-flash}"
    async with MockLlmServer([strict("success")]) as server, living(tmp_path, server) as life:
        with pytest.raises(LoadError, match=said):
            await life.edit(SPINE.replace(row, agent.replace("id: main", "id: main, sessionId: s")))
        assert await life.prompt("still there?") == {"kind": "completed"}


ROUTE = """\
from dsh.llm.adapter import Adapter
from dsh.llm.service import Llm

class Silent(Adapter):
    async def stream(self, request):
        yield {"type": "finish", "reason": {"kind": "stop"}}

def apply(ctx, config, llm: Llm):
    llm.register_adapter(["other"], Silent())
"""


async def test_one_row_that_takes_the_place_of_another_makes_no_error_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = "- {id: one, name: ./one.py}\n", "- {id: two, name: ./two.py}\n"
    async with MockLlmServer([strict("success")]) as server:
        async with living(tmp_path, server, one, {"one.py": ROUTE, "two.py": ROUTE}) as life:
            caplog.clear()
            await life.edit(SPINE + two)
            assert life.app.loader.resolve("two").state == "active"
            assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
            assert await life.prompt("go") == {"kind": "completed"}
