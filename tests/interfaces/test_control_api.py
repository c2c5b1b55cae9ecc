"""The control API of a real daemon: what is asked, who may ask, and what is refused."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import stat
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.kit import Place
from tests.interfaces.control_kit import DEMO, WAIT, Controlled, controlled, demo_place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return demo_place(tmp_path)


async def refusal(control: Controlled, method: str, path: str, status: int, body: Any = None) -> Any:
    """The error of an answer that must be one."""
    answer = await control.ask(method, path, body, status)
    assert set(answer) == {"error"} and set(answer["error"]) == {"code", "message", "details"}
    return answer["error"]


# -- the daemon -------------------------------------------------------------------------------------------------------


async def test_the_socket_and_its_folder_belong_to_their_owner_alone(place: Place) -> None:
    async with controlled(place) as control:
        folder = place.home / "run"
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        for path in folder.iterdir():
            assert stat.S_IMODE(path.lstat().st_mode) == 0o600
        status = await control.ask("GET", "/api/status")
    assert status["pid"] == control.daemon.process.pid and status["runId"] == control.entry.run_id
    assert status["config"] == str(place.work / "cordis.yml") and status["home"] == str(place.home)
    assert status["state"] == "running"
    (agent,) = status["agents"]
    assert (agent["label"], agent["sessionId"], agent["status"]) == ("main", control.main, "idle")


async def test_a_stopped_daemon_leaves_nothing_in_the_run_folder(place: Place) -> None:
    async with controlled(place) as control:
        assert await control.ask("POST", "/api/stop", {}, 202) == {"stopping": "now"}
        assert await control.daemon.finish() == 0
    assert list((place.home / "run").iterdir()) == []


async def test_models_and_rows_are_told(place: Place) -> None:
    async with controlled(place) as control:
        models = await control.ask("GET", "/api/models")
        rows = (await control.ask("GET", "/api/plugins"))["rows"]
    assert models["default"] == {"provider": "demo", "model": "demo"}
    assert [each["id"] for each in models["providers"]] == ["demo"]
    assert {row["id"]: row["state"] for row in rows}["agent-loop"] == "active"
    assert [row["state"] for row in rows if row["id"] == "control"] == ["active"]


async def test_a_composition_with_its_own_control_row_keeps_it(place: Place) -> None:
    place.write("cordis.yml", DEMO + "- {id: mine, name: '@deepseek-ai/dsh-control', config: {port: 0}}\n")
    async with controlled(place) as control:
        rows = (await control.ask("GET", "/api/plugins"))["rows"]
        assert [row["id"] for row in rows if row["plugin"].endswith("dsh-control")] == ["mine"]
        assert control.entry.url is not None
    place.write("cordis.yml", DEMO + "- {id: control, name: dsh-control, disabled: true}\n")
    async with place.daemon("cordis.yml") as daemon:
        await daemon.ready()
        assert list((place.home / "run").glob(f"{daemon.process.pid}-*")) == []


# -- sessions ---------------------------------------------------------------------------------------------------------


async def test_a_session_is_made_prompted_read_and_deleted(place: Place) -> None:
    async with controlled(place) as control:
        made = await control.ask("POST", "/api/sessions", {"cwd": str(place.work), "model": "demo/demo"}, 201)
        path = f"/api/sessions/{made['sessionId']}"
        answer = await control.ask("POST", f"{path}/prompt", {"content": [{"type": "text", "text": "hello"}]}, 202)
        await control.idle(made["sessionId"])
        session = await control.ask("GET", path)
        assert session["live"] and session["status"] == "idle" and session["header"]["cwd"] == str(place.work)
        first = await control.ask("GET", f"{path}/events?limit=3")
        rest = await control.ask("GET", f"{path}/events?from={first['next']}&limit=5000")
        assert [event["seq"] for event in first["events"]] == [0, 1, 2]
        events = first["events"] + rest["events"]
        assert [event["seq"] for event in events] == list(range(session["asOfSeq"] + 1))
        assert rest["next"] is None and rest["lastSeq"] == session["asOfSeq"]
        surface = (await control.ask("GET", f"{path}/events?view=surface"))["events"]
        assert [event["type"] for event in surface] == ["user/message", "assistant/message"]
        assert surface[0]["data"]["id"] == answer["messageId"]
        listed = (await control.ask("GET", f"/api/sessions?q={made['sessionId'][:16]}"))["sessions"]
        assert [row["sessionId"] for row in listed] == [made["sessionId"]]
        await control.ask("DELETE", path)
        assert (await refusal(control, "GET", path, 404))["code"] == "SESSION_NOT_FOUND"
        assert (await refusal(control, "DELETE", f"/api/sessions/{control.main}", 409))["code"] == "CONFIGURED"


async def test_an_open_session_that_no_row_keeps_is_deleted_by_closing_it(place: Place) -> None:
    place.write("cordis.yml", DEMO.replace("root: !!js dshHomePath('sessions')}", "root: x}, disabled: true"))
    async with controlled(place) as control:
        path = f"/api/sessions/{(await control.ask('POST', '/api/sessions', {}, 201))['sessionId']}"
        assert await control.ask("DELETE", path) == {}
        assert (await refusal(control, "DELETE", path, 503))["code"] == "NO_SERVICE"


async def test_sessions_are_listed_a_page_at_a_time(place: Place) -> None:
    async with controlled(place) as control:
        made = [(await control.ask("POST", "/api/sessions", {}, 201))["sessionId"] for _ in range(4)]
        found: list[str] = []
        cursor = ""
        while True:
            page = await control.ask("GET", f"/api/sessions?limit=2{cursor}")
            found += [row["sessionId"] for row in page["sessions"]]
            if page["next"] is None:
                break
            cursor = f"&cursor={page['next']}"
        assert found == [control.main, *made]


async def test_a_fork_begins_with_the_events_before_it(place: Place) -> None:
    async with controlled(place) as control:
        await control.prompt("one")
        await control.idle()
        end = next(event["seq"] for event in await control.log() if event["type"] == "turn/end")
        await control.prompt("two")
        await control.idle()
        path = f"/api/sessions/{control.main}/fork"
        fork = await control.ask("POST", path, {"boundary": end}, 201)
        assert fork["seedLength"] == end + 1
        child = await control.ask("GET", f"/api/sessions/{fork['sessionId']}/events?limit=5000")
        assert child["events"][: end + 1] == (await control.log())[: end + 1]
        assert (await control.ask("GET", f"/api/sessions/{fork['sessionId']}"))["parentSession"] == control.main
        assert (await refusal(control, "POST", path, 409, {"boundary": 3}))["code"] == "OPEN_TURN"
        assert (await refusal(control, "POST", path, 400, {"boundary": 99999}))["code"] == "INVALID_BOUNDARY"


async def test_a_stored_session_is_opened_again_by_its_id(place: Place) -> None:
    async with controlled(place) as control:
        await control.prompt("remember me")
        await control.idle()
    async with controlled(place) as later:
        path = f"/api/sessions/{control.main}"
        assert not (await later.ask("GET", path))["live"]
        assert (await refusal(later, "POST", f"{path}/prompt", 409, {"content": "x"}))["code"] == "NOT_OPEN"
        assert await later.ask("POST", "/api/sessions", {"resume": control.main}, 201) == {"sessionId": control.main}
        assert (await later.ask("GET", path))["live"]
        assert (await refusal(later, "POST", "/api/sessions", 409, {"resume": control.main}))["code"] == "ALREADY_OPEN"
        assert (await refusal(later, "POST", "/api/sessions", 404, {"resume": "nothing"}))["code"] == (
            "SESSION_NOT_FOUND"
        )


async def test_a_running_turn_is_steered_queued_behind_and_cancelled(place: Place) -> None:
    async with controlled(place) as control:
        await control.prompt(WAIT)
        await control.begun()
        steer = await control.prompt("turn left", "steer")
        kept = await control.prompt("later")
        dropped = await control.prompt("never")
        queue = await control.ask("GET", f"/api/sessions/{control.main}/queue")
        assert [m["id"] for m in queue["nextStep"]] == [steer["messageId"]]
        assert [m["id"] for m in queue["nextTurn"]] == [kept["messageId"], dropped["messageId"]]
        waiting = f"/api/sessions/{control.main}/queue/{dropped['messageId']}"
        await control.ask("DELETE", waiting)
        assert (await refusal(control, "DELETE", waiting, 404))["code"] == "NOT_WAITING"
        control.go()
        await control.idle()
        users = [(e["seq"], e["data"]["id"]) for e in await control.log() if e["type"] == "user/message"]
        assert [id for _, id in users[-2:]] == [steer["messageId"], kept["messageId"]]
        turns = [event["seq"] for event in await control.log() if event["type"] == "turn/start"]
        assert turns[0] < users[-2][0] < turns[1] < users[-1][0], "the steer joined the first turn"
        assert await control.ask("POST", f"/api/sessions/{control.main}/cancel") == {"cancelled": False, "waiting": 0}
        await control.prompt(WAIT)
        await control.begun()
        assert await control.ask("POST", f"/api/sessions/{control.main}/cancel") == {"cancelled": True, "waiting": 0}
        await control.idle()
        ends = [event["data"]["reason"] for event in await control.log() if event["type"] == "turn/end"]
        assert ends[-1] == {"kind": "aborted", "reason": {"kind": "user"}}


async def test_prompts_that_a_cancel_left_waiting_are_dropped_later(place: Place) -> None:
    async with controlled(place) as control:
        cancel = f"/api/sessions/{control.main}/cancel"
        await control.prompt(WAIT)
        await control.begun()
        await control.prompt("later")
        assert await control.ask("POST", cancel, {"keepQueue": True}) == {"cancelled": True, "waiting": 1}
        async with asyncio.timeout(20):
            while (await control.ask("GET", f"/api/sessions/{control.main}"))["status"] != "idle":
                await asyncio.sleep(0.02)
        assert await control.ask("POST", cancel, {"keepQueue": False}) == {"cancelled": False, "waiting": 0}
        assert await control.ask("GET", f"/api/sessions/{control.main}/queue") == {"nextTurn": [], "nextStep": []}


async def test_an_agent_that_leaves_takes_no_more_prompts(place: Place) -> None:
    async with controlled(place) as control:
        await control.prompt(WAIT)
        await control.begun()
        place.write("cordis.yml", DEMO.replace("- id: main", "- id: other"))
        path = f"/api/sessions/{control.main}/prompt"
        async with asyncio.timeout(20):
            while True:
                answer = await control.http.post(path, json={"content": "too late"})
                if answer.status_code == 409:
                    break
                await asyncio.sleep(0.05)
        assert answer.json()["error"]["code"] == "LEAVING"
        control.go()


async def test_the_model_of_an_open_session_is_changed(place: Place) -> None:
    place.write("cordis.yml", DEMO + "- {id: deepseek, name: dsh-llm-deepseek}\n")
    async with controlled(place) as control:
        path = f"/api/sessions/{control.main}"
        assert (await control.ask("PATCH", path, {"model": "demo/other"}))["model"] == "demo/other"
        assert (await control.ask("PATCH", path, {"model": None}))["model"] == "demo/demo"
        unusable = await refusal(control, "PATCH", path, 422, {"model": "deepseek-official/deepseek-flash"})
        assert unusable["code"] == "UNUSABLE_MODEL" and "DEEPSEEK_API_KEY" in unusable["message"]
        assert (await refusal(control, "PATCH", path, 400, {"model": "demo"}))["code"] == "BAD_MODEL"
        assert (await refusal(control, "PATCH", path, 501, {"mode": "plan"}))["code"] == "NO_MODES"
        assert (await refusal(control, "PATCH", path, 400, {"colour": 1}))["code"] == "BAD_REQUEST"


async def test_a_session_gets_a_title_where_a_row_keeps_titles(place: Place) -> None:
    async with controlled(place) as control:
        path = f"/api/sessions/{control.main}"
        assert (await refusal(control, "PATCH", path, 501, {"title": "x"}))["code"] == "NO_TITLES"
    limits = "{fallbackMaxWords: 5, fallbackMaxBytes: 40, maxTitleBytes: 80}"
    place.write("cordis.yml", DEMO + f"- {{id: session-title, name: dsh-session-title, config: {limits}}}\n")
    async with controlled(place) as control:
        path = f"/api/sessions/{control.main}"
        assert (await control.ask("PATCH", path, {"title": "Häuser  bauen"}))["title"] == "Häuser bauen"
        listed = (await control.ask("GET", "/api/sessions?q=bauen"))["sessions"]
        assert [row["sessionId"] for row in listed] == [control.main]
        assert (await place.dsh("ps", "--json")).json()["daemons"][0]["agents"][0]["title"] == "Häuser bauen"


async def test_nobody_asks_so_nothing_can_be_answered(place: Place) -> None:
    async with controlled(place) as control:
        error = await refusal(control, "POST", "/api/respond", 501, {"requestId": "r", "answer": "allow-once"})
        assert error["code"] == "NOBODY_ASKS"


# -- configuration ----------------------------------------------------------------------------------------------------


async def test_a_config_key_is_changed_in_the_file_and_applied(place: Place) -> None:
    async with controlled(place) as control:
        shown = await control.ask("GET", "/api/config")
        assert shown["path"] == str(place.work / "cordis.yml") and "maxParallelToolCalls: 10" in shown["text"]
        await control.ask("PATCH", "/api/config", {"set": {"agent-loop.maxParallelToolCalls": 3}})
        text = (place.work / "cordis.yml").read_text("utf-8")
        assert text == DEMO.replace("maxParallelToolCalls: 10", "maxParallelToolCalls: 3")
        assert "maxParallelToolCalls: 3" in (await control.ask("GET", "/api/config"))["text"]
        (agent,) = (await control.ask("GET", "/api/status"))["agents"]
        assert agent["sessionId"] == control.main, "the agent went on"


@pytest.mark.parametrize("value", ["many", 0])
async def test_a_refused_change_leaves_the_file_as_it_was(place: Place, value: Any) -> None:
    async with controlled(place) as control:
        body = {"set": {"agent-loop.maxParallelToolCalls": value}}
        error = await refusal(control, "PATCH", "/api/config", 422, body)
        assert error["code"] == "REFUSED" and "maxParallelToolCalls" in error["details"]["problems"][0]
        assert (place.work / "cordis.yml").read_text("utf-8") == DEMO
        await control.ask("PATCH", "/api/config", {"unset": ["agent-loop.maxParallelToolCalls"]})
        assert (await refusal(control, "PATCH", "/api/config", 422, {"unset": ["nothing.x"]}))["code"] == "NO_ROW"


# -- bad requests -----------------------------------------------------------------------------------------------------


async def test_b17a_wrong_content_types_methods_paths_and_bodies_are_refused(place: Place) -> None:
    async with controlled(place) as control:
        path = f"/api/sessions/{control.main}/prompt"
        for headers in ({}, {"Content-Type": "text/plain"}, {"Content-Type": "application/x-www-form-urlencoded"}):
            response = await control.http.post(path, content=b'{"content":"x"}', headers=headers)
            assert response.status_code == 415 and response.json()["error"]["code"] == "NOT_JSON"
        response = await control.http.put(path, json={})
        assert response.status_code == 405 and response.headers["allow"] == "POST"
        assert (await control.http.request("HEAD", "/api/status")).status_code == 405
        for tricky in (
            "/api/../api/status",
            "/api/./status",
            "//api/status",
            "/api/status/",
            "/",
            "/api/%2e%2e/status",
        ):
            with socket.socket(socket.AF_UNIX) as raw:
                raw.connect(control.entry.socket)
                raw.sendall(f"GET {tricky} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
                answer = b"".join(iter(lambda: raw.recv(65536), b""))
            assert answer.startswith(b"HTTP/1.1 404 Not Found"), tricky
        for name in ("..%2f..%2f..%2fetc%2fpasswd", "%00", "..%5c.."):
            assert (await refusal(control, "GET", f"/api/sessions/{name}", 404))["code"] == "SESSION_NOT_FOUND"
        assert (await control.http.get("/api/sessions/%ff")).status_code == 400
        for body in (b"{", b"[]", b'"x"', b"\xff", b'{"content": NaN}'):
            response = await control.http.post(path, content=body, headers={"Content-Type": "application/json"})
            assert response.status_code == 400, body
        for content in ("", "  \n", [], [{"type": "image"}], 5, None, [{"type": "text", "text": 5}]):
            assert (await control.http.post(path, json={"content": content})).status_code == 400, content
        assert (await control.http.post(path, json={"content": "x", "mode": "now"})).status_code == 400
        assert (await control.http.get(f"/api/sessions/{control.main}/events?from=-1")).status_code == 400
        assert (await control.ask("GET", "/api/status"))["agents"][0]["lastSeq"] == -1, "nothing came of all that"


async def test_b17b_a_body_beyond_the_limit_is_refused_before_it_is_read(place: Place) -> None:
    async with controlled(place) as control:
        path = f"/api/sessions/{control.main}/prompt"
        body = json.dumps({"content": "x" * (33 * 2**20)}).encode()
        for content in (body, _pieces(body)):
            response = await control.http.post(path, content=content, headers={"Content-Type": "application/json"})
            assert response.status_code == 413 and response.json()["error"]["code"] == "TOO_LARGE"
        large = await control.prompt("y" * (5 * 2**20))
        assert large["messageId"]


async def _pieces(body: bytes) -> Any:
    for start in range(0, len(body), 2**20):
        yield body[start : start + 2**20]


async def test_bytes_that_are_no_request_end_the_connection_with_an_error(place: Place) -> None:
    async with controlled(place) as control:
        for junk in (
            b"hello\r\n\r\n",
            b"GET / HTTP/9.9\r\n\r\n",
            b"\x16\x03\x01\x02\x00",
            b"A" * 100_000,
            b"GET /\r\n",
            b"\0\1\2\3\r\n\r\n",
        ):
            with socket.socket(socket.AF_UNIX) as raw:
                raw.settimeout(20)
                raw.connect(control.entry.socket)
                raw.sendall(junk)
                raw.shutdown(socket.SHUT_WR)
                answer = b"".join(iter(lambda: raw.recv(65536), b""))
            assert answer == b"" or answer.startswith(b"HTTP/1.1 4"), answer
            assert b"bytearray" not in answer
        assert (await control.ask("GET", "/api/status"))["state"] == "running"


async def test_a_query_name_that_would_be_ignored_is_refused(place: Place) -> None:
    async with controlled(place) as control:
        for path, name, known in (
            (f"/api/stream?session={control.main}", "session", "sessions, after, host"),
            ("/api/sessions?limit=1&cdw=/", "cdw", "limit, cwd, q, cursor"),
            (f"/api/sessions/{control.main}/events?form=1", "form", "from, limit, view"),
            ("/api/status?verbose", "verbose", "(none)"),
        ):
            said = await refusal(control, "GET", path, 400)
            assert said["message"] == f"unknown query name '{name}'; known: {known}"


# -- the other door ---------------------------------------------------------------------------------------------------


async def test_b17c_on_tcp_host_origin_and_token_are_asked_for(place: Place) -> None:
    async with controlled(place, "--control-port", "0") as control:
        found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/#token=([0-9a-f]{48})", str(control.entry.url))
        assert found is not None
        port, token = found[1], {"Authorization": f"Bearer {found[2]}"}
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http:
            assert (await http.get("/api/status", headers=token)).json()["pid"] == control.daemon.process.pid
            assert (await http.get("/api/status", headers={**token, "Host": f"localhost:{port}"})).status_code == 200
            own = {**token, "Origin": f"http://localhost:{port}"}
            assert (await http.get("/api/status", headers=own)).status_code == 200
            for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": found[2]}):
                response = await http.get("/api/status", headers=headers)
                assert response.status_code == 401 and response.headers["www-authenticate"] == "Bearer"
            for origin in ("http://evil.example", "null", "http://127.0.0.1:1", f"https://127.0.0.1:{port}"):
                response = await http.post("/api/stop", headers={**token, "Origin": origin}, json={})
                assert response.status_code == 403 and response.json()["error"]["code"] == "FOREIGN_ORIGIN"
            for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", ""):
                response = await http.get("/api/status", headers={**token, "Host": host})
                assert response.status_code == 403, host
            response = await http.get("/api/nothing")
            assert response.status_code == 401, "a stranger learns nothing of the paths"
        foreign = await control.http.get("/api/status", headers={"Origin": "http://dsh"})
        assert foreign.status_code == 403


async def test_a_taken_port_stops_the_start_in_one_sentence(place: Place) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = await place.dsh("run", "cordis.yml", "--control-port", str(port))
    assert done.code == 1
    assert done.err.count(f"TCP port {port} cannot be opened: Address already in use\n") == 1
    assert list((place.home / "run").iterdir()) == []
