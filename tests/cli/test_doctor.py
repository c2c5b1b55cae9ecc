"""`dsh doctor`: one line for each check, on real files, processes and a real model server."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

from dsh.models.mock_server import MockLlmServer
from tests.cli.kit import PYTHON, TIMEOUT, Finished, Place


def found(done: Finished, what: str) -> list[dict[str, Any]]:
    return [each for each in done.json()["findings"] if each["check"] == what]


async def dead_pid(place: Place) -> int:
    process = await place.start("--version")
    await process.communicate()
    return process.pid


async def test_a_sound_installation_has_no_problem_and_nothing_is_made(place: Place) -> None:
    done = await place.dsh("doctor")
    assert done.code == 0, done.out
    for what in ("python", "bash", "disk", "home", "locks", ".env", "daemons", "sessions", "composition", "model"):
        assert any(line[2:].startswith(f"{what}:") for line in done.out.splitlines()), what
    assert "✗" not in done.out and "✓ composition: cordis.yml" in done.out and "nothing is broken" in done.out
    assert "! credentials: DEEPSEEK_API_KEY is not set -> `dsh credentials set" in done.out
    assert not (place.home / "sessions").exists()
    lines = [line for line in done.out.splitlines() if str(place.home.parent) not in line]
    assert max(map(len, lines)) <= 80


async def test_marks_are_plain_where_the_terminal_cannot_show_others(place: Place) -> None:
    done = await place.dsh("doctor", env={"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
    assert done.code == 0 and "+ python: " in done.out and done.out.isascii()


async def test_files_that_others_can_reach_are_problems_and_fix_closes_them(place: Place) -> None:
    place.home.mkdir(mode=0o700)
    place.home.chmod(0o777)
    secret = place.home / ".credentials.yaml"
    secret.write_text("version: 1\n")
    secret.chmod(0o644)
    before = await place.dsh("doctor")
    assert before.code == 1
    assert "✗ home:" in before.out and "✗ credentials file:" in before.out and "--fix" in before.out
    assert secret.stat().st_mode & 0o777 == 0o644, "nothing is changed without --fix"
    await place.dsh("doctor", "--fix")
    assert secret.stat().st_mode & 0o777 == 0o600 and place.home.stat().st_mode & 0o777 == 0o700


async def test_a_lock_of_a_dead_writer_is_found_and_removed_on_demand_that_of_a_living_one_stays(place: Place) -> None:
    place.home.mkdir(mode=0o700)
    lock = place.home / "settings.yaml.lock"
    pid = await dead_pid(place)
    lock.write_text(f"{pid}\n")
    done = await place.dsh("doctor", "--json")
    (one,) = found(done, "locks")
    assert done.code == 1 and one["level"] == "problem" and f"process {pid}, which is gone" in one["text"]
    assert one["remedy"] == f"rm {lock}" and one["fixable"] and lock.exists()
    mended = await place.dsh("doctor", "--fix", "--json")
    assert mended.code == 0 and found(mended, "locks")[0]["fixed"] == f"removed {lock}" and not lock.exists()
    lock.write_text(f"{os.getpid()}\n")
    living = await place.dsh("doctor", "--fix", "--json")
    assert living.code == 0 and lock.exists()


async def test_refused_and_odd_lines_of_dotenv_files(place: Place) -> None:
    place.write(".env", "PATH=/evil\n")
    refused = await place.dsh("doctor", "--json")
    assert refused.code == 1 and "sets PATH" in found(refused, ".env")[0]["text"]
    place.write(".env", "FINE=1\nnot a line\n")
    odd = await place.dsh("doctor", "--json")
    (one,) = found(odd, ".env")
    assert odd.code == 0 and one["level"] == "warning" and ".env:2" in one["text"]


async def test_a_broken_composition_is_said_with_place_and_not_started(place: Place) -> None:
    place.write("cordis.yml", "- {id: llm, name: dsh-lm}\n- {id: x, name: ./gone.py}\n")
    done = await place.dsh("doctor")
    assert done.code == 1 and "Traceback" not in done.err
    assert "✗ composition: cordis.yml:1" in done.out and 'did you mean "dsh-llm"' in done.out.replace("\n    ", " ")
    assert "cordis.yml:2" in done.out and "model:" not in done.out


async def test_broken_settings_are_said_with_place(place: Place) -> None:
    place.home.mkdir(mode=0o700)
    (place.home / "settings.yaml").write_text("a: [\n")
    done = await place.dsh("doctor", "--json")
    assert done.code == 1 and "settings.yaml" in found(done, "settings")[0]["text"]


async def test_unreadable_sessions_are_named(place: Place) -> None:
    assert (await place.dsh("exec", "hello")).code == 0
    (log,) = (place.home / "sessions").rglob("session.jsonl*")
    log.write_bytes(b"nonsense")
    done = await place.dsh("doctor", "--json")
    bad = [each for each in found(done, "sessions") if each["level"] == "problem"]
    assert done.code == 1 and len(bad) == 1 and log.parent.name in bad[0]["text"]


async def test_what_a_killed_daemon_left_is_found_and_cleared_and_its_session_goes_on(place: Place) -> None:
    async with place.daemon() as daemon:
        await daemon.ready()
        assert (await place.dsh("send", "main", "hello")).code == 0
        await daemon.event("turn/end")
        alive = await place.dsh("doctor", "--json")
        assert found(alive, "daemons")[0]["text"].startswith(f"{daemon.process.pid} runs ")
        assert "1 open" in found(alive, "leases")[0]["text"]
        daemon.signal(signal.SIGKILL)
        await daemon.finish()
        pid = daemon.process.pid
    left = await place.dsh("doctor", "--json")
    assert left.code == 0 and found(left, "sockets")[0]["level"] == "warning"
    assert f"(pid {pid})" in found(left, "sockets")[0]["text"] and f"(pid {pid})" in found(left, "leases")[0]["text"]
    assert list((place.home / "run").iterdir()), "nothing is changed without --fix"
    mended = await place.dsh("doctor", "--fix", "--json")
    assert [each["fixed"] for each in mended.json()["findings"] if each["fixable"]] == ["removed 1", "cleared 1 of 1"]
    clean = await place.dsh("doctor", "--json")
    assert found(clean, "daemons")[0]["text"] == "none is running" and not found(clean, "sockets")
    assert found(clean, "leases")[0]["text"].startswith("no session is open")
    assert (await place.dsh("resume", "--last", "again")).code == 0


async def test_the_model_is_asked_only_online_and_no_value_of_a_key_is_printed(place: Place) -> None:
    async with MockLlmServer([{"text": "ready"}]) as server:
        place.model(server.url)
        place.env["DEEPSEEK_API_KEY"] = "sk-very-secret-value"
        offline = await place.dsh("doctor", "--json")
        assert offline.code == 0 and server.requests == []
        assert found(offline, "credentials")[0]["text"] == "DEEPSEEK_API_KEY from env"
        online = await place.dsh("doctor", "--online", "--json")
    assert online.code == 0 and len(server.requests) == 1
    assert "deepseek-official/deepseek-flash answered in" in found(online, "model")[-1]["text"]
    assert "very-secret" not in offline.out + online.out + offline.err + online.err


async def test_a_model_that_refuses_is_a_problem_with_its_reason(place: Place) -> None:
    async with MockLlmServer([], api_key="another") as server:
        place.model(server.url)
        done = await place.dsh("doctor", "--online", "--json")
    last = found(done, "model")[-1]
    assert done.code == 1 and last["level"] == "problem" and "does not answer: " in last["text"]


async def test_a_home_that_is_no_folder_and_a_folder_that_is_gone_are_said(place: Place) -> None:
    place.home.write_text("")
    done = await place.dsh("doctor")
    assert done.code == 1 and "is no folder" in done.out and "Traceback" not in done.err
    gone = place.work / "gone"
    gone.mkdir()
    code = f"import os; os.chdir({str(gone)!r}); os.rmdir({str(gone)!r}); import sys; sys.argv[1:] = ['doctor']\n"
    process = await asyncio.create_subprocess_exec(
        *(PYTHON, "-c", code + "from dsh.cli.main import main; main()"),
        env=place.env,
        stderr=asyncio.subprocess.PIPE,
    )
    _, err = await asyncio.wait_for(process.communicate(), TIMEOUT)
    assert process.returncode == 1 and err.startswith(b"dsh: the folder that this was called in is gone")
