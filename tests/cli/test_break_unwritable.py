"""Places that cannot be written or read: the run says so and ends; nothing waits for ever, nothing hides the rest."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest

from dsh.loader.environment import load_launch_environment
from dsh.loader.home import resolve_home
from dsh.models.mock_server import MockLlmServer
from tests.cli.kit import PYTHON, TIMEOUT, Place

NOWHERE = ("--set", "session-persistence-jsonl.root=/dev/null/sessions")


@pytest.mark.parametrize(
    "command", [("exec", "hi"), ("run", "--prompt", "hi", "--exit-when-idle")], ids=["exec", "run"]
)
async def test_a_log_that_cannot_be_written_fails_the_task(place: Place, command: tuple[str, ...]) -> None:
    async with MockLlmServer(["success"]) as server:
        place.model(server.url)
        done = await place.dsh(*command, *NOWHERE)
        assert server.requests == []
    assert done.code == 1
    assert "/dev/null" in done.err and "Traceback" not in done.err


async def test_a_model_that_cannot_be_stored_is_one_sentence(place: Place) -> None:
    done = await place.dsh("--home", "/dev/null/home", "local", "pull")
    assert done.code == 1 and done.out == "" and "Traceback" not in done.err


async def test_links_in_a_circle_hide_no_session(place: Place) -> None:
    session = (await place.dsh("exec", "hi", "--output", "json")).json()["sessionId"]
    sessions = place.home / "sessions"
    project = next(sessions.iterdir())
    for folder in (sessions / "--circle--", project / "circle"):
        os.symlink(folder, folder)
    listed = await place.dsh("sessions", "list", "--json")
    assert [each["id"] for each in listed.json()["sessions"]] == [session]
    assert (await place.dsh("sessions", "verify")).code == 0
    assert (await place.dsh("resume", session[:12], "again")).code == 0
    assert (await place.dsh("resume", "--last", "again")).code == 0


@pytest.mark.parametrize("command", [("exec", "hi"), ("run",), ("resume", "--last", "hi"), ("acp",)], ids=str)
async def test_a_folder_that_was_removed_is_one_sentence(place: Place, command: tuple[str, ...]) -> None:
    removed = 'mkdir removed; cd removed; rmdir ../removed; exec "$@"'
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", removed, "sh", PYTHON, "-m", "dsh.cli.main", *command),
        cwd=place.work,
        env=place.env,
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, err = await asyncio.wait_for(process.communicate(), TIMEOUT)
    text = "dsh: the folder that this command was started in was removed; go to another one\n"
    assert (process.returncode, err.decode()) == (1, text)


def test_an_env_file_of_a_folder_that_cannot_be_searched_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, stat = Path.open, Path.stat

    def refuse(path: Path) -> None:
        if path == tmp_path / ".env":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", lambda path, *args, **more: refuse(path) or opened(path, *args, **more))
    monkeypatch.setattr(Path, "stat", lambda path, **more: refuse(path) or stat(path, **more))
    home = resolve_home(str(tmp_path / "home"), {})
    (warning,) = load_launch_environment(home, tmp_path, {}).warnings
    assert warning.endswith(".env cannot be read, ignored: Permission denied")


@pytest.mark.parametrize("command", [("settings", "set", "shell.timeoutMs", "2000"), ("credentials", "set", "A")])
async def test_a_home_that_takes_no_lock_is_one_sentence_with_the_file(place: Place, command: tuple[str, ...]) -> None:
    full = """\
import os, sys

def write(descriptor, data, write=os.write):
    if data == f"{os.getpid()}\\n".encode():
        raise OSError(28, "No space left on device")
    return write(descriptor, data)

os.write = write
sys.argv[0] = "dsh"
from dsh.cli.main import main
main()
"""
    process = await asyncio.create_subprocess_exec(
        *(PYTHON, "-c", full, *command),
        cwd=place.work,
        env=place.env,
        stdin=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    _, err = await asyncio.wait_for(process.communicate(b"value\n"), TIMEOUT)
    assert process.returncode == 1
    assert err.decode().startswith(f"dsh: {place.home}/") and err.decode().endswith(
        ".yaml.lock: No space left on device\n"
    )
    assert not list(place.home.glob("*.lock"))
