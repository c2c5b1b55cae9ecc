"""The commands that look, store and scaffold, each in a real process."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from dsh.cli.main import COMMANDS, app
from dsh.models.mock_server import MockLlmServer
from tests.cli.kit import PYTHON, Place
from tests.cli.test_run import CORDIS, HELLO, edit


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place.make(tmp_path)


async def test_help_and_version_need_no_home_and_list_every_command(place: Place) -> None:
    shown = await place.dsh("--help")
    assert shown.code == 0 and shown.err == ""
    for command in ("run", "exec", "resume", "sessions", "config", "settings", "credentials", "init", "local", "dev"):
        assert f"\n  {command} " in shown.out
    assert (await place.dsh("--version")).out.startswith("dsh ")
    assert not place.home.exists()


async def test_the_list_of_commands_says_what_each_command_says_of_itself() -> None:
    group = typer.main.get_command(app)
    context: Any = type("Parent", (), {"help_option_names": ["--help"]})
    said = {name: group.get_command(context, name).get_short_help_str(limit=200) for name in COMMANDS}  # type: ignore[attr-defined]
    assert said == COMMANDS


async def test_no_command_offers_to_install_completion() -> None:
    group = typer.main.get_command(app)
    context: Any = type("Parent", (), {"help_option_names": ["--help"]})
    for name in COMMANDS:
        command = group.get_command(context, name)  # type: ignore[attr-defined]
        assert not [each.name for each in command.params if "completion" in each.name], name


@pytest.mark.parametrize(
    "arguments",
    [["nonsense"], ["run", "--nonsense"], ["exec"], ["run", "--output", "xml"], ["--log-format", "xml", "run"]],
)
async def test_a_usage_error_is_code_2_and_says_what_is_wrong(place: Place, arguments: list[str]) -> None:
    done = await place.dsh(*arguments)
    assert done.code == 2 and done.out == "" and done.err and "Traceback" not in done.err


async def test_init_writes_a_composition_that_passes_its_check_and_refuses_to_overwrite(place: Place) -> None:
    done = await place.dsh("init", "new")
    assert done.code == 0
    files = sorted(str(p.relative_to(place.work)) for p in (place.work / "new").rglob("*") if p.is_file())
    assert "new/cordis.yml" in files and len([f for f in files if f.startswith("new/plugins/")]) == 3
    assert (await place.dsh("config", "check", "new/cordis.yml")).code == 0
    path = place.write("new/cordis.yml", "mine")
    again = await place.dsh("init", "new")
    assert again.code == 1 and "exists already" in again.err and path.read_text() == "mine"


async def test_config_show_names_origins_and_loads_to_the_same_rows(place: Place) -> None:
    place.write("cordis.yml", CORDIS)
    place.write("hello.py", HELLO)
    place.write("cordis.patch.yml", "- {id: hello, disabled: true}\n")
    place.write("more.yml", "- insert: [{id: extra, name: ./hello.py}]\n- {id: gone, disabled: true}\n")
    shown = await place.dsh("config", "show", "--patch", "more.yml", "--set", "agent-loop.maxParallelToolCalls=3")
    assert shown.code == 0
    assert "# == cordis.yml, patched by --set" in shown.out
    assert "# == cordis.yml, patched by cordis.patch.yml" in shown.out and "# == more.yml" in shown.out
    assert "maxParallelToolCalls: 3" in shown.out and "!!js dshHomePath('sessions')" in shown.out
    assert "gone" in shown.err
    place.write("composed.yml", shown.out)
    assert (await place.dsh("config", "check", "composed.yml")).code == 0
    default = await place.dsh("config", "show", "--default")
    assert "disabled" not in default.out


BAD = [
    ("maxParallelToolCalls: 10", "maxParallelToolCalls: 0", ["cordis.yml:4", "agent-loop", "maxParallelToolCalls"]),
    ("maxParallelToolCalls: 10", "maxParalelToolCalls: 10", ["cordis.yml:4", "did you mean", "maxParallelToolCalls"]),
    ("maxParallelToolCalls: 10", "max_parallel_tool_calls: 10", ["cordis.yml:4", "maxParallelToolCalls"]),
    ("- {id: llm, name: dsh-llm}", "- {id: llm, name: dsh-lm}", ["cordis.yml:7", "dsh-llm"]),
    ("- {id: llm, name: dsh-llm}", "- {id: llm}", ["cordis.yml:7", "name"]),
    ("- {id: llm, name: dsh-llm}", "- {id: session, name: dsh-llm}", ["cordis.yml", "session"]),
    ("- {id: llm, name: dsh-llm}", "- {id: llm, name: dsh-llm, nmae: x}", ["cordis.yml:7", "name"]),
    ("- {id: llm, name: dsh-llm}", "", ["agent-loop", "llm"]),
    ("- {id: llm, name: dsh-llm}", "- {id: llm, name: dsh-llm", ["cordis.yml:"]),
    ("name: ./hello.py", "name: ./hullo.py", ["cordis.yml:24", "hullo.py"]),
    ("!!js dshHomePath('sessions')", "!!js dshHomePath(", ["cordis.yml:17", "persistence"]),
    ("      - id: main", "\t- id: main", ["cordis.yml:6"]),
]


@pytest.mark.parametrize(("old", "new", "said"), BAD, ids=[str(n) for n in range(len(BAD))])
async def test_config_check_says_place_and_remedy(place: Place, old: str, new: str, said: list[str]) -> None:
    place.write("cordis.yml", CORDIS)
    place.write("hello.py", HELLO)
    edit(place, "cordis.yml", old, new)
    done = await place.dsh("config", "check")
    for text in said:
        assert text in done.err, done.err
    warned_only = "did you mean" in done.err and done.code == 0
    assert done.code == 1 or warned_only
    assert "Traceback" not in done.err


@pytest.mark.parametrize("kind", ["missing", "empty", "directory", "binary", "mapping"])
async def test_a_file_that_is_no_composition_is_named(place: Place, kind: str) -> None:
    path = place.work / "cordis.yml"
    if kind == "directory":
        path.mkdir()
    elif kind != "missing":
        path.write_bytes({"empty": b"", "binary": b"\x00\xff\xfe\x80", "mapping": b"a: 1\n"}[kind])
    for command in (["config", "check", "cordis.yml"], ["run", "cordis.yml"]):
        done = await place.dsh(*command)
        assert done.code == 1 and "cordis.yml" in done.err and "Traceback" not in done.err


async def test_config_check_as_json(place: Place) -> None:
    place.write("cordis.yml", CORDIS.replace("maxParallelToolCalls: 10", "maxParallelToolCalls: x"))
    place.write("hello.py", HELLO)
    result = (await place.dsh("config", "check", "--json")).json()
    assert result["ok"] is False
    (problem,) = result["problems"]
    assert problem["file"] == "cordis.yml" and problem["line"] == 4 and problem["row"] == "agent-loop"
    assert problem["key"] == "config.maxParallelToolCalls"


async def test_settings_are_listed_with_their_layer_kept_with_their_comments_and_forgotten(place: Place) -> None:
    place.write("cordis.yml", CORDIS)
    document = place.home / "settings.yaml"
    place.home.mkdir()
    document.write_text("# mine\nagent-loop:\n  maxParallelToolCalls: 5  # five\n")
    assert (await place.dsh("settings", "get", "agent-loop.maxParallelToolCalls")).out == "5\n"
    assert (await place.dsh("settings", "set", "agent-loop.maxParallelToolCalls", "4")).code == 0
    assert document.read_text() == "# mine\nagent-loop:\n  maxParallelToolCalls: 4  # five\n"
    listed = (await place.dsh("settings", "list", "--json")).json()
    said = {"key": "agent-loop.maxParallelToolCalls", "value": 4, "layer": "user", "place": "$DSH_HOME/settings.yaml:3"}
    assert said in listed
    assert (await place.dsh("settings", "unset", "agent-loop.maxParallelToolCalls")).code == 0
    (value,) = (await place.dsh("settings", "get", "agent-loop.maxParallelToolCalls", "--json")).json()
    assert value == {
        "key": "agent-loop.maxParallelToolCalls",
        "value": 10,
        "layer": "row",
        "place": "cordis.yml:4",
    }
    wrong = await place.dsh("settings", "get", "agent-loop.maxParalelToolCalls")
    assert wrong.code == 1 and 'did you mean "agent-loop.maxParallelToolCalls"' in wrong.err


async def test_a_secret_is_not_taken_into_the_settings(place: Place) -> None:
    done = await place.dsh("settings", "set", "llm-deepseek.apiKey", "sk-not-here")
    assert done.code == 1 and "dsh credentials set" in done.err and "sk-not-here" not in done.err
    assert not (place.home / "settings.yaml").exists()


async def test_settings_take_effect_over_the_row_at_the_next_start(place: Place) -> None:
    assert (await place.dsh("settings", "set", "agent-default-model", "{provider: demo, model: demo}")).code == 0
    async with MockLlmServer(["success"]) as server:
        place.model(server.url)
        done = await place.dsh("exec", "hello")
    assert "demo reply" in done.out and server.bodies == []


async def test_a_value_of_several_lines_is_refused_and_its_first_one_not_kept(place: Place) -> None:
    done = await place.dsh("credentials", "set", "A", stdin="a\nb\n")
    assert (done.code, done.err) == (2, "dsh: the value has several lines; nothing was stored\n")
    assert not (place.home / ".credentials.yaml").exists()
    assert (await place.dsh("credentials", "set", "A", stdin=" a \n\n")).code == 0


async def test_a_stored_key_is_used_never_shown_and_owner_only(place: Place) -> None:
    stored = await place.dsh("credentials", "set", "DEEPSEEK_API_KEY", stdin="sk-stored-secret\n")
    assert stored.code == 0 and "sk-stored" not in stored.out
    document = place.home / ".credentials.yaml"
    assert document.stat().st_mode & 0o777 == 0o600
    listed = await place.dsh("credentials", "list")
    assert "DEEPSEEK_API_KEY  file" in listed.out and "sk-stored" not in listed.out
    async with MockLlmServer(["success"], api_key="sk-stored-secret") as server:
        place.env["DEEPSEEK_BASE_URL"] = server.url
        assert (await place.dsh("exec", "hi")).code == 0
    document.chmod(0o640)
    refused = await place.dsh("exec", "hi")
    assert refused.code == 1 and "chmod 600" in refused.err and "sk-stored" not in refused.err


async def test_sessions_survive_bad_neighbours(place: Place) -> None:
    async with MockLlmServer(["success"], repeat_last=True) as server:
        place.model(server.url)
        session_id = (await place.dsh("exec", "hi", "--output", "json")).json()["sessionId"]
        (project,) = (place.home / "sessions").iterdir()
        for name, content in (("empty", b""), ("binary", b"\x00\x01\xff"), ("text", b"no json\n")):
            (project / name).mkdir()
            (project / name / "session.jsonl").write_bytes(content)
        (project / "folder" / "session.jsonl").mkdir(parents=True)
        listed = await place.dsh("sessions", "list")
        assert listed.code == 0 and session_id in listed.out
        assert "binary" in listed.err and "text" in listed.err
        good = await place.dsh("sessions", "verify", session_id)
        assert good.code == 0 and "ok" in good.out
        everything = await place.dsh("sessions", "verify")
        assert everything.code == 1 and "DAMAGED" in everything.out and f"{session_id}: ok" in everything.out
        assert (await place.dsh("resume", session_id, "again")).code == 0
        raw = await place.dsh("sessions", "show", session_id, "--raw")
    lines = [json.loads(line) for line in raw.out.split("\n") if line]
    assert lines[0]["type"] == "session" and lines[0]["id"] == session_id
    shown = await place.dsh("sessions", "show", session_id[:20])
    assert "> hi" in shown.out and "> again" in shown.out


async def test_a_session_is_listed_under_its_title_and_can_be_renamed(place: Place) -> None:
    async with MockLlmServer(["success"], repeat_last=True) as server:
        place.model(server.url)
        session_id = (await place.dsh("exec", "What does this folder hold today?", "--output", "json")).json()[
            "sessionId"
        ]
        assert "What does this folder hold " in (await place.dsh("sessions", "list")).out
        renamed = await place.dsh("sessions", "rename", session_id[:-1], "The \x1b[31mfolder")
        assert (renamed.code, renamed.out) == (0, f"{session_id}: The folder\n")
        assert (await place.dsh("sessions", "rename", session_id, " ")).code == 1
        assert (await place.dsh("resume", session_id, "again")).code == 0
        (listed,) = (await place.dsh("sessions", "list", "--json")).json()["sessions"]
    assert listed["title"] == "The folder" and listed["turns"] == 2
    assert (await place.dsh("sessions", "show", session_id)).out.startswith(f"{session_id}, The folder\n")
    assert (await place.dsh("sessions", "verify")).code == 0


async def test_the_mock_server_speaks_to_exec(place: Place) -> None:
    place.write("script.yml", "- {text: from the script}\n")
    process = await asyncio.create_subprocess_exec(
        PYTHON, "-m", "dsh.cli.main", "dev", "mock-llm", "--script", "script.yml",
        cwd=place.work, env=place.env, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    ready = json.loads(await asyncio.wait_for(process.stdout.readline(), 20))
    place.model(ready["url"])
    done = await place.dsh("exec", "hi")
    assert done.out == "from the script\n"
    request = json.loads(await asyncio.wait_for(process.stdout.readline(), 20))
    assert request["type"] == "request"
    process.send_signal(signal.SIGINT)
    assert await asyncio.wait_for(process.wait(), 20) == 130


async def test_everything_works_in_a_folder_with_odd_names_and_a_poor_locale(place: Place) -> None:
    place.work = place.work / "ä 目录 'q' 😀"
    place.work.mkdir()
    place.env |= {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0"}
    call = {"toolCalls": [{"name": "write", "arguments": '{"file_path":"naïve.txt","content":"日本\\n"}'}]}
    async with MockLlmServer([call, {"text": "wrote 日本 😀"}]) as server:
        place.model(server.url)
        done = await place.dsh("exec", "schreib ä", "--output", "json")
    assert done.code == 0, done.err
    assert done.json()["output"] == "wrote 日本 😀"
    assert (place.work / "naïve.txt").read_text("utf-8") == "日本\n"
    assert (await place.dsh("resume", done.json()["sessionId"], "--model", "demo/demo", "weiter")).code == 0


@pytest.mark.skipif(sys.platform == "win32", reason="pipes close differently")
async def test_a_pipe_that_closes_early_leaves_no_traceback(place: Place) -> None:
    process = await asyncio.create_subprocess_shell(
        f"{PYTHON} -m dsh.cli.main exec hi --output stream-json | head -n 1",
        cwd=place.work, env=place.env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(), 40)
    assert out.count(b"\n") == 1 and b"Traceback" not in err
