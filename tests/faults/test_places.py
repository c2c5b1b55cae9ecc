"""Everything in a folder whose name holds spaces, quotes, other scripts and an emoji, under a poor locale."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from dsh.models.mock_server import MockLlmServer
from tests.cli.kit import Place
from tests.faults.kit import read_log, strict
from tests.faults.test_sessions import COMPOSITION

HMR = "- {id: hmr, name: '@deepseek-ai/cordis-plugin-hmr', config: {debounce: 20}}\n"
ODD = "ä 目录 'q\" 😀 $HOME `x` &"
SAID = "Straße 日本 😀 é"

TOOL = """\
# Größe: 目录
from dsh.core.tools import Tools

def apply(ctx, config, tools: Tools):
    @tools.tool
    async def gruss(wort: str) -> str:
        "Sag Grüße."
        return f"Grüße {wort} EINS"
"""


def call(name: str, **arguments: str) -> dict[str, object]:
    return {"toolCalls": [{"name": name, "arguments": arguments}]}


LOCALES = [{"LANG": "C", "LC_ALL": "C"}, {"LC_ALL": "POSIX", "PYTHONIOENCODING": "ascii"}]


@pytest.fixture(params=LOCALES, ids=["C", "ascii"])
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Place:
    place = Place.make(tmp_path, PYTHONUTF8="0", PYTHONCOERCECLOCALE="0", **request.param)
    place.home = place.work / ODD / "zu Hause 家"
    place.work = place.work / ODD / "arbeit 工作"
    place.work.mkdir(parents=True)
    place.env["DSH_HOME"] = str(place.home)
    place.write("cordis.yml", COMPOSITION + HMR + "- {id: gruß, name: ./größe.py}\n")
    place.write("größe.py", TOOL)
    return place


async def test_fault58_files_commands_plugins_logs_and_resume_work_in_any_folder(place: Place) -> None:
    name = "naïve 目录 😀.txt"
    script = [
        call("write", file_path=name, content=f"{SAID}\n"),
        call("read", file_path=name),
        call("edit", file_path=name, old_string="日本", new_string="日本国"),
        call("bash", command=f"pwd; cat '{name}'; printf '\\xff'; ls", description="ü"),
        call("gruss", wort="目"),
        {"text": SAID, "reasoning": "Überlegung 🤔"},
    ]
    async with MockLlmServer([strict(each) for each in [*script, "success", "success"]]) as server:
        place.model(server.url)
        done = await place.dsh("exec", SAID, "--output", "json")
        assert done.code == 0, done.err
        assert done.json()["output"] == SAID
        assert (place.work / name).read_text("utf-8") == SAID.replace("日本", "日本国") + "\n"
        tool = [message["content"] for message in server.bodies[5]["messages"] if message["role"] == "tool"]
        assert SAID in tool[1] and str(place.work) in tool[3] and "日本国" in tool[3] and name in tool[3]
        assert tool[4] == "Grüße 目 EINS"
        assert SAID in server.requests[0].raw.decode("utf-8")
        again = await place.dsh("resume", done.json()["sessionId"], "weiter ü", "--output", "stream-json")
        assert again.code == 0 and again.err == "", again.err
    (path,) = place.home.glob("sessions/*/*/session.jsonl")
    rows = read_log(path)
    assert rows[0]["cwd"] == str(place.work)
    assert "\ufffd" not in json.dumps([row for row in rows if row["type"] != "tool/result"], ensure_ascii=False)
    listed = await place.dsh("sessions", "list", "--json")
    assert listed.code == 0 and [each["cwd"] for each in listed.json()["sessions"]] == [str(place.work)]
    assert (await place.dsh("sessions", "list")).code == 0


async def test_fault58_edits_are_followed_and_settings_and_keys_kept_in_any_folder(place: Place) -> None:
    async with MockLlmServer([strict(call("gruss", wort="a")), strict("success")] * 2) as server:
        place.model(server.url)
        async with place.daemon("cordis.yml", "--prompt", "los") as daemon:
            await daemon.event("turn/end")
            draft = place.write("entwurf", TOOL.replace("EINS", "ZWEI ü"))
            os.replace(draft, place.work / "größe.py")
            applied = await daemon.config("applied")
            assert applied["rows"] == ["gruß"]
            place.write("cordis.yml", "- {id: gruß, name: [")
            refused = await daemon.config("refused")
            assert "cordis.yml" in refused["error"]
        assert (await place.dsh("settings", "set", "shell.cwd", "ü 目")).code == 0
        shown = await place.dsh("settings", "get", "shell.cwd")
        assert shown.code == 0 and (shown.out.strip() in ("ü 目", "\\xfc \\u76ee", "? ?") or "ü" in shown.out)
        assert "ü 目" in (place.home / "settings.yaml").read_text("utf-8")
        assert (await place.dsh("credentials", "set", "MY_KEY", stdin="schlüssel-1\n")).code == 0
        checked = await place.dsh("config", "check", "cordis.yml")
        assert checked.code == 1 and "cordis.yml:1" in checked.err + checked.out and "Traceback" not in checked.err
