"""Finding daemons: where sockets stand, and what is left of daemons that were killed."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsh.interfaces.control import run_folder
from dsh.interfaces.control.client import (
    Client,
    ControlError,
    NoAnswerError,
    find_agent,
    find_daemon,
    find_daemons,
    seen_daemons,
    wait_for_end,
)
from dsh.interfaces.control.run_folder import (
    Entry,
    RunFolderError,
    find_entries,
    listen,
    open_run_folder,
    publish,
    why_unseen,
)
from tests.cli.kit import PYTHON, Place
from tests.interfaces.control_kit import DEMO, controlled, demo_place


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def open_sockets() -> Iterator[list[socket.socket]]:
    held: list[socket.socket] = []
    yield held
    for sock in held:
        sock.close()


def fake(home: Path, sockets: list[socket.socket], run_id: str = "aa", pid: int | None = None) -> Entry:
    """The entry of a daemon that listens, though it never answers."""
    folder = open_run_folder(home)
    sock, path = listen(folder, run_id)
    sockets.append(sock)
    number = os.getpid() if pid is None else pid
    return publish(folder, Entry("", number, run_id, path, run_folder.host_name(), "/x/cordis.yml", "/x", len(run_id)))


FORKS = """\
import os, signal

def apply(ctx):
    if os.fork() == 0:
        for fd in map(int, os.listdir("/proc/self/fd")):
            if os.path.lexists(f"/proc/self/fd/{fd}") and os.readlink(f"/proc/self/fd/{fd}").startswith("pipe:"):
                os.close(fd)
        signal.pause()
"""
"""A plugin with a child that lives on, without the pipes that the test reads."""


# -- where the socket stands ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["häuser und 家", "q'uo\"te;$(x)", "%41#frag?query&x=y"])
async def test_homes_of_any_name_work(tmp_path: Path, name: str) -> None:
    place = demo_place(tmp_path)
    place.home = tmp_path / name
    place.env["DSH_HOME"] = str(place.home)
    async with controlled(place) as control:
        assert (await control.ask("GET", "/api/status"))["home"] == str(place.home)
        shown = await place.dsh("ps", "--json")
        assert shown.code == 0, shown.err
        assert [each["pid"] for each in shown.json()["daemons"]] == [control.daemon.process.pid]


async def test_a_home_too_deep_for_a_socket_uses_a_short_folder_of_the_user(tmp_path: Path) -> None:
    place = demo_place(tmp_path)
    place.home = tmp_path.joinpath(*["a-long-part-of-a-path" * 3] * 4)
    place.env["DSH_HOME"] = str(place.home)
    runtime = tmp_path / "rt"
    runtime.mkdir()
    short = str(runtime) if len(str(runtime)) < 60 else "/tmp"
    place.env["XDG_RUNTIME_DIR"] = short
    async with controlled(place) as control:
        path = Path(control.entry.socket)
        assert path.parent == Path(short, f"dsh-{os.geteuid()}")
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700 and stat.S_IMODE(path.stat().st_mode) == 0o600
        assert (await place.dsh("send", "main", "hello", "--wait")).code == 0
        await control.ask("POST", "/api/stop", {}, 202)
        assert await control.daemon.finish() == 0
        assert not path.exists()
    assert list((place.home / "run").iterdir()) == []


async def test_a_home_that_cannot_be_written_is_said_and_the_run_goes_on(tmp_path: Path) -> None:
    place = demo_place(tmp_path)
    place.home.mkdir()
    (place.home / "run").write_text("in the way")
    done = await place.dsh("run", "cordis.yml", "--prompt", "hi", "--exit-when-idle")
    assert done.code == 0 and "You said: hi" in done.out
    assert "this run cannot be controlled from other terminals" in done.err and "remove it" in done.err


def test_a_folder_open_to_others_is_closed_and_one_of_somebody_else_refused(home: Path, tmp_path: Path) -> None:
    (home / "run").mkdir(parents=True, mode=0o755)
    os.chmod(home / "run", 0o777)
    assert stat.S_IMODE(os.stat(open_run_folder(home)).st_mode) == 0o700
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    other = tmp_path / "other"
    other.mkdir()
    (other / "run").symlink_to(elsewhere)
    with pytest.raises(RunFolderError, match="is not a folder of your own"):
        open_run_folder(other)
    if os.geteuid() == 0:
        os.chown(home / "run", 12345, -1)
        with pytest.raises(RunFolderError, match="is not a folder of your own"):
            open_run_folder(home)


# -- what dead daemons leave ------------------------------------------------------------------------------------------


async def test_what_a_killed_daemon_leaves_is_removed_by_whoever_looks(tmp_path: Path) -> None:
    place = demo_place(tmp_path)
    async with controlled(place) as control:
        control.daemon.signal(signal.SIGKILL)
        await control.daemon.finish()
        left = Path(control.entry.path), Path(control.entry.socket)  # the latter in a short folder if need be
        assert all(path.exists() for path in left)
        shown = await place.dsh("ps")
        assert shown.code == 0 and shown.out == "no daemon is running; start one with `dsh run`\n"
        assert not any(path.exists() for path in left) and list((place.home / "run").iterdir()) == []


def test_a_pid_that_was_given_to_another_process_confuses_nobody(home: Path, open_sockets: list[socket.socket]) -> None:
    entry = fake(home, open_sockets, pid=os.getpid())  # this very process lives, and is not that daemon
    open_sockets.pop().close()
    assert find_entries(home) == []
    assert not os.path.exists(entry.path) and not os.path.exists(entry.socket)


def test_another_daemon_at_an_entrys_socket_is_not_taken_for_it(tmp_path: Path) -> None:
    home = tmp_path / "home"
    folder = open_run_folder(home)
    sock, path = listen(folder, "bb")
    publish(folder, Entry("", 1, "aa", path, run_folder.host_name(), "/x/cordis.yml", "/x", 1))

    def answer() -> None:
        sock.setblocking(True)
        while True:
            peer, _ = sock.accept()
            if peer.recv(65536):  # the first connection only looks whether anybody listens
                body = json.dumps({"runId": "bb", "agents": [], "state": "running"}).encode()
                peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body)
                peer.close()
                return
            peer.close()

    thread = threading.Thread(target=answer)
    thread.start()
    assert find_daemons(home) == []
    thread.join()
    sock.close()


def test_entries_of_other_machines_are_left_alone(home: Path, open_sockets: list[socket.socket]) -> None:
    entry = fake(home, open_sockets)
    os.rename(entry.path, entry.path + ".x")
    publish(os.path.dirname(entry.path), entry._replace(host="another"))
    open_sockets.pop().close()
    assert find_entries(home) == [] and os.path.exists(entry.path)


def test_a_socket_without_an_entry_is_removed_once_it_is_old(home: Path, open_sockets: list[socket.socket]) -> None:
    folder = open_run_folder(home)
    sock, path = listen(folder, "cc")
    sock.close()
    alive, used = listen(folder, "dd")
    open_sockets.append(alive)
    draft = os.path.join(folder, "1-ee.json.tmp")
    Path(draft).touch()
    assert find_entries(home) == []
    assert os.path.exists(path) and os.path.exists(draft), "their daemon may be just starting"
    for each in (path, used, draft):
        os.utime(each, (1, 1))
    assert find_entries(home) == []
    assert not os.path.exists(path) and not os.path.exists(draft) and os.path.exists(used)


def test_files_that_are_no_entries_are_passed_over(home: Path, open_sockets: list[socket.socket]) -> None:
    entry = fake(home, open_sockets)
    folder = Path(entry.path).parent
    for name, text in (("a.json", "{"), ("b.json", "[]"), ("c.json", "{}"), ("d.json", '{"pid": "x"}'), ("e.txt", "")):
        (folder / name).write_text(text)
    (folder / "f.json").write_bytes(b"\xff")
    (folder / "g.json").mkdir()
    os.mkfifo(folder / "h.json")  # nobody writes to it
    assert find_entries(home) == [entry]


def test_nothing_is_made_by_looking(tmp_path: Path) -> None:
    assert find_daemons(tmp_path / "nowhere") == [] and not (tmp_path / "nowhere").exists()
    with pytest.raises(ControlError, match="no daemon is running; start one with `dsh run`"):
        find_agent(tmp_path / "nowhere", None)


async def test_daemons_that_start_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    place = demo_place(tmp_path)
    command = [PYTHON, "-m", "dsh.cli.main", "run", "cordis.yml", "--output", "stream-json"]
    started = [
        subprocess.Popen(command, cwd=place.work, env=place.env, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
        for _ in range(3)
    ]
    try:
        for each in started:
            assert each.stdout is not None and b'"ready"' in each.stdout.readline()
            find_entries(place.home)
        assert {daemon.entry.pid for daemon in find_daemons(place.home)} == {each.pid for each in started}
        assert (await place.dsh("stop", "--all")).code == 0
        assert [each.wait(20) for each in started] == [0, 0, 0]
    finally:
        for each in started:
            each.kill()
            each.wait()
            assert each.stdout is not None
            each.stdout.close()


def test_the_end_of_a_process_is_waited_for_where_a_sandbox_has_no_handles_for_processes(
    home: Path, open_sockets: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(pid: int) -> int:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", missing, raising=False)
    here = fake(home, open_sockets)
    assert not wait_for_end(here, 0.01)
    child = subprocess.Popen([PYTHON, "-c", ""])
    child.wait()
    assert wait_for_end(here._replace(pid=child.pid), None)


# -- daemons that do not answer ---------------------------------------------------------------------------------------


async def test_a_paused_daemon_is_named_and_waits_for_nobody(tmp_path: Path) -> None:
    place = demo_place(tmp_path)
    async with controlled(place) as control:
        pid = control.daemon.process.pid
        control.daemon.signal(signal.SIGSTOP)
        try:
            commands = (("ps",), ("send", "main", "hello"), ("stop",))
            shown, sent, stopped = await asyncio.gather(*(place.dsh(*command) for command in commands))
            assert shown.code == 0 and "no answer" in shown.out and str(pid) in shown.out
            assert sent.code == 1 and f"`kill -CONT {pid}` lets it go on" in sent.err
            assert stopped.code == 1 and f"`kill {pid}` ends it" in stopped.err
        finally:
            control.daemon.signal(signal.SIGCONT)
        assert (await place.dsh("send", "main", "hello", "--wait")).code == 0


def test_a_daemon_that_never_answers_is_no_reason_to_wait_for_ever(
    home: Path, open_sockets: list[socket.socket]
) -> None:
    entry = fake(home, open_sockets)
    with Client(entry, 0.2) as client, pytest.raises(NoAnswerError, match="does not answer"):
        client.get("/api/status")


async def test_a_forked_child_of_a_dead_daemon_does_not_keep_its_socket(tmp_path: Path) -> None:
    place = demo_place(tmp_path)
    place.write("forks.py", FORKS)
    late = "- {id: control, name: dsh-control}\n- {id: forks, name: ./forks.py, inject: [control]}\n"
    place.write("cordis.yml", DEMO + late)
    async with controlled(place) as control:
        children = Path(f"/proc/{control.daemon.process.pid}/task/{control.daemon.process.pid}/children")
        forked = [int(pid) for pid in children.read_text().split()]
        assert forked
        try:
            control.daemon.process.kill()
            await control.daemon.process.wait()
            assert find_entries(place.home) == []
        finally:
            for pid in forked:
                os.kill(pid, signal.SIGKILL)


# -- what looking costs -----------------------------------------------------------------------------------------------


def test_looking_imports_nothing_of_the_runtime_and_running_imports_no_server(tmp_path: Path) -> None:
    place = Place.make(tmp_path)
    code = """
import sys
from dsh.cli.main import app
try:
    app(sys.argv[1:], standalone_mode=False)
finally:
    print("\\n".join(sorted(sys.modules)), file=sys.stderr)
"""

    def modules(*arguments: str) -> set[str]:
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments], cwd=place.work, env=place.env, capture_output=True, text=True
        )
        return set(done.stderr.split("\n"))

    asking = modules("ps")
    assert "dsh.interfaces.control.client" in asking
    assert not {name for name in asking if name.startswith(("dsh.cordis", "dsh.core", "dsh.loader.tree", "yaml"))}
    place.write("cordis.yml", DEMO)
    running = modules("run", "cordis.yml", "--prompt", "hi", "--exit-when-idle")
    assert "dsh.interfaces.control.server" in running
    heavy = {"h11", "httpx", "dsh.interfaces.control.routes", "dsh.interfaces.control.connection"}
    assert not running & heavy


@pytest.mark.skipif(not os.path.exists("/proc/net/unix"), reason="nothing tells there who holds a socket")
async def test_a_daemon_whose_socket_was_removed_is_kept_and_said_to_need_a_restart(tmp_path: Path) -> None:
    place = demo_place(tmp_path)
    async with controlled(place) as control:
        os.unlink(control.entry.socket)
        pid = control.daemon.process.pid
        lost = f"dsh: daemon {pid} (cordis.yml) has lost its socket, a file that was removed; "
        for command, code in ((("ps",), 0), (("send", "main", "hi"), 1), (("stop",), 1)):
            done = await place.dsh(*command)
            assert (done.code, done.err) == (code, f"{lost}end it with `kill {pid}` and start it again\n"), command
        assert find_entries(place.home) == [control.entry]
        control.daemon.signal(signal.SIGKILL)
        await control.daemon.finish()
        assert find_entries(place.home) == [] and not os.path.exists(control.entry.path)


# -- folders that cannot be looked into -------------------------------------------------------------------------------


def test_a_run_folder_that_cannot_be_listed_is_named_with_what_helps(home: Path, tmp_path: Path) -> None:
    assert why_unseen(home) is None
    home.mkdir(exist_ok=True)
    (home / "run").write_text("")
    with pytest.raises(ControlError, match="cannot be told: .*/run is not a folder; remove it"):
        find_agent(home, "main")
    with pytest.raises(ControlError, match="is not a folder"):
        find_daemon(home, None)
    (home / "run").unlink()
    (home / "run").symlink_to(tmp_path)
    assert "is not a folder" in str(why_unseen(home))
    assert why_unseen(tmp_path / "nowhere") is None


def test_a_run_folder_closed_to_its_own_user_is_named_with_what_helps(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_run_folder(home)

    def closed(path: str) -> list[str]:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(os, "listdir", closed)  # root, whom tests may run as, can read everything
    with pytest.raises(ControlError, match=f"{home}/run cannot be read; `chmod 700 {home}/run` opens it for its owner"):
        seen_daemons(home)
    monkeypatch.undo()
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    assert "belongs to another user" in str(why_unseen(home))


async def test_ps_does_not_say_that_no_daemon_runs_when_it_cannot_look(tmp_path: Path) -> None:
    place = demo_place(tmp_path)
    place.home.mkdir()
    (place.home / "run").write_text("")
    for command in (("ps",), ("send", "main", "hi"), ("stop", "--all")):
        done = await place.dsh(*command)
        assert (done.code, done.out) == (1, "") and "is not a folder; remove it" in done.err, command
