"""Child processes: how they start, what is kept of them, and that nothing of them is left."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time

import pytest

from dsh.cordis import AbortController, AbortError
from dsh.shell import process_tree
from dsh.shell.process_tree import ProcessTree
from dsh.shell.service import Collect, ExitStatus, SpawnError, SpawnSpec, Subprocess

from .helpers import output, root_with_shell, running, spawn, unique_seconds, until_gone, until_running


async def test_exit_code_signal_and_output() -> None:
    async with root_with_shell() as root:
        child = spawn(root, "echo out; echo err >&2; exit 3")
        assert await child.done() == ExitStatus(3, None)
        assert (output(child), output(child, "stderr")) == ("out\n", "err\n")
        assert not child.left_processes
        killed = spawn(root, "kill -USR1 $$")
        assert await killed.done() == ExitStatus(None, "SIGUSR1")


async def test_it_leads_its_own_session_and_group() -> None:
    async with root_with_shell() as root:
        child = spawn(root, "ps -o pid=,pgid=,sid= -p $$ 2>/dev/null || cut -d' ' -f1,5,6 /proc/$$/stat")
        await child.done()
        assert output(child).split() == [str(child.pid)] * 3


async def test_piped_streams_can_be_written_and_read() -> None:
    async with root_with_shell() as root:
        child = spawn(root, "cat; echo bye >&2", stdin="pipe", stdout="pipe", stderr="pipe")
        assert child.stdin is not None and child.stdout is not None and child.stderr is not None
        payload = os.urandom(1_000_000)
        stdin, stdout = child.stdin, child.stdout

        async def feed() -> None:
            await stdin.write(payload)
            stdin.close()

        received, _ = await asyncio.gather(stdout.read(), feed())
        assert received == payload
        assert await child.stderr.read() == b"bye\n"
        assert (await child.done()).exit_code == 0


async def test_a_reader_that_is_slow_loses_nothing_and_slows_the_writer() -> None:
    async with root_with_shell() as root:
        child = spawn(root, "head -c 3000000 /dev/zero; echo end", stdout="pipe")
        assert child.stdout is not None
        await asyncio.sleep(0.05)
        assert child.exit_status is None  # it waits for the reader
        assert len(await child.stdout.read()) == 3_000_004


async def test_b08g_input_that_nobody_reads_is_no_error() -> None:
    async with root_with_shell() as root:
        child = spawn(root, "true", stdin=b"x" * 1_000_000)
        assert (await child.done()).exit_code == 0
        child = spawn(root, "wc -c", stdin=b"x" * 1_000_000)
        await child.done()
        assert output(child).strip() == "1000000"
        piped = spawn(root, "exec 0<&-; echo closed; sleep 0.05", stdin="pipe")
        assert piped.stdin is not None
        with pytest.raises(BrokenPipeError):
            while True:
                await piped.stdin.write(b"x" * 100_000)
        assert (await piped.done()).exit_code == 0


async def test_b08h_grandchildren_die_with_the_child() -> None:
    seconds = unique_seconds()
    async with root_with_shell() as root:
        child = spawn(root, f"sleep {seconds} & (sleep {seconds} & wait) & wait")
        await until_running(seconds, 2)
        child.terminate()
        child.terminate()  # once is enough
        await child.wait_for_exit()
        assert not running(seconds)
        assert (await child.done()).signal == "SIGTERM"


async def test_f16_b08i_who_traps_term_is_killed_after_the_leader_is_gone() -> None:
    seconds = unique_seconds()
    async with root_with_shell() as root:
        child = spawn(root, f"sh -c 'sleep {seconds} & (trap \"\" TERM; sleep {seconds}) & wait'")
        await until_running(seconds, 2)
        started = time.monotonic()
        child.terminate()
        await child.done()
        await child.wait_for_exit()
        assert not running(seconds)
        assert time.monotonic() - started >= 0.4  # the trapper had its grace time


async def test_b08j_a_held_pipe_is_waited_for_at_most_the_grace_time() -> None:
    seconds = unique_seconds()
    async with root_with_shell() as root:
        started = time.monotonic()
        child = spawn(root, f"sleep {seconds} & echo hi")
        assert await child.done() == ExitStatus(0, None)
        assert time.monotonic() - started < 15
        assert output(child) == "hi\n"
        assert child.left_processes
        child.terminate()
        await child.wait_for_exit()
        assert not running(seconds) and not child.left_processes


async def test_b08k_what_detached_itself_is_found_and_ended() -> None:
    seconds = unique_seconds()
    for command in (
        f"setsid sleep {seconds} & echo hi",
        f"nohup sleep {seconds} >/dev/null 2>&1 & echo hi",
        f"set -m; sleep {seconds} >/dev/null 2>&1 & echo hi",
        f"(setsid sh -c 'sleep {seconds}; :' >/dev/null 2>&1 &) ; echo hi",
    ):
        async with root_with_shell() as root:
            child = spawn(root, f"{command}; until pgrep -f 'slee[p] {seconds}' >/dev/null; do :; done")
            await child.done()
            assert output(child) == "hi\n"
            assert child.left_processes, command
            await until_running(seconds)
        assert not running(seconds), command  # leaving the root ended it


async def test_b08l_unload_terminates_everything_and_waits() -> None:
    seconds = unique_seconds()
    async with root_with_shell() as root:
        spawn(root, f"sleep {seconds}")
        spawn(root, f'trap "" TERM; sleep {seconds} & wait; wait')
        await until_running(seconds, 2)
    assert not running(seconds)


async def test_b08m_an_emptied_group_is_never_signalled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its id may belong to somebody else by then."""
    sent: list[tuple[str, int, int]] = []
    async with root_with_shell() as root:
        child = spawn(root, "true")
        await child.done()
        monkeypatch.setattr(process_tree.os, "killpg", lambda group, number: sent.append(("killpg", group, number)))
        monkeypatch.setattr(process_tree.os, "kill", lambda pid, number: sent.append(("kill", pid, number)))
        child.terminate()
        await child.wait_for_exit()
    assert sent == []


async def test_b08n_a_stranger_with_the_old_id_is_left_alone() -> None:
    """A process group that took over a reaped leader's id carries neither its marker nor was it there before."""
    stranger = await asyncio.create_subprocess_exec("sleep", "30", start_new_session=True)
    try:
        tree = ProcessTree(stranger.pid, "marker-of-an-earlier-process")
        tree._reaped = True  # as after the real leader was waited for
        tree.signal(signal.SIGKILL)
        assert not tree.alive()
        assert stranger.returncode is None
        os.kill(stranger.pid, 0)
    finally:
        stranger.kill()
        await stranger.wait()


async def test_b08o_zombies_do_not_count() -> None:
    """A leader that ended but was not waited for, as seen from outside."""
    zombie = subprocess.Popen(["true"], start_new_session=True)
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
    try:
        assert not ProcessTree(zombie.pid, "none").alive()
    finally:
        zombie.wait()


async def test_b08p_collected_output_stays_readable_after_the_end() -> None:
    async with root_with_shell() as root:
        child = spawn(root, "seq 1000", stdout=Collect(50, 100_000))
        await child.done()
        read = child.collected["stdout"].read_from(0)
        whole = "".join(f"{number}\n" for number in range(1, 1001))
        assert (read.text, read.lossy, read.next_offset) == (whole[-50:], True, len(whole))
        assert read.spill_path is not None
        with open(read.spill_path) as file:
            assert file.read() == whole


async def test_a_signal_ends_the_tree_and_a_fired_one_starts_nothing() -> None:
    seconds = unique_seconds()
    async with root_with_shell() as root:
        controller = AbortController()
        child = spawn(root, f"sleep {seconds} & wait", signal=controller.signal)
        await until_running(seconds)
        controller.abort()
        await child.wait_for_exit()
        assert not running(seconds)
        late = spawn(root, f"sleep {seconds}", signal=controller.signal)
        with pytest.raises(AbortError):
            await late.done()
        assert late.pid is None


async def test_what_cannot_start_says_why() -> None:
    async with root_with_shell() as root:
        service = root[Subprocess]
        for argv, cwd, text in (
            (["no-such-program"], "/", 'cannot start "no-such-program": No such file or directory'),
            (["true"], "/no/such/dir", 'the working directory "/no/such/dir" does not exist'),
            (["/etc/passwd"], "/", 'cannot start "/etc/passwd": Permission denied'),
        ):
            child = service.spawn(SpawnSpec(argv=argv, cwd=cwd, grace_ms=100))
            with pytest.raises(SpawnError) as caught:
                await child.done()
            assert (str(caught.value), child.pid, child.left_processes) == (text, None, False)
            await child.wait_for_exit()
        for bad in (SpawnSpec([], "/", 100), SpawnSpec(["true"], "/", 0), SpawnSpec(["true"], "/", 2**31)):
            with pytest.raises(ValueError):
                service.spawn(bad)


async def test_b14e_nul_and_surrogates_never_crash_a_spawn() -> None:
    async with root_with_shell() as root:
        for broken in (SpawnSpec(["echo", "a\0b"], "/", 100), SpawnSpec(["echo"], "/a\0b", 100)):
            with pytest.raises(SpawnError, match="NUL"):
                await root[Subprocess].spawn(broken).done()
        child = root[Subprocess].spawn(SpawnSpec(["echo", "a\ud800b ä"], "/", 100, stdout=Collect(100)))
        await child.done()
        assert output(child) == "a\ufffdb ä\n"


async def test_secrets_do_not_reach_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "my_password", "GitHub_Token", "A_SECRET_B", "DSH_HOME", "COMPANY_PIN"):
        monkeypatch.setenv(name, "leaked")
    monkeypatch.setenv("HARMLESS", "kept")
    async with root_with_shell(subprocess={"scrubEnv": ["_PIN$"]}) as root:
        child = spawn(root, "env", env={"GIVEN_TOKEN": "asked for", "HARMLESS": None, "EMPTY": ""})
        await child.done()
        lines = output(child).split("\n")
        assert "leaked" not in output(child)
        assert "GIVEN_TOKEN=asked for" in lines and "EMPTY=" in lines
        assert not any(line.startswith("HARMLESS=") for line in lines)


async def test_executables_are_found_on_the_path_only(monkeypatch: pytest.MonkeyPatch) -> None:
    async with root_with_shell() as root:
        service = root[Subprocess]
        assert os.path.isabs(service.resolve_executable("sh"))
        assert service.resolve_executable("/bin/sh") == "/bin/sh"
        for name in ("./sh", "bin/sh", "no-such-program", "", "/etc/passwd", "/no/such"):
            with pytest.raises(SpawnError):
                service.resolve_executable(name)


async def test_a_left_over_tree_that_ended_by_itself_is_forgotten() -> None:
    async with root_with_shell() as root:
        child = spawn(root, "sleep 0.3 >/dev/null 2>&1 &")
        await child.done()
        assert child.left_processes
        await until_gone("0.3")
        await spawn(root, "true").done()
        assert not child.left_processes
        assert not root[Subprocess]._children  # type: ignore[attr-defined]


async def test_a_platform_without_pidfd_works_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("dsh.shell.child.os.pidfd_open", missing)
    async with root_with_shell() as root:
        child = spawn(root, "echo hi; exit 4")
        assert await child.done() == ExitStatus(4, None)
        assert output(child) == "hi\n"


async def test_a_platform_without_proc_ends_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_tree, "_PROC", False)
    seconds = unique_seconds()
    async with root_with_shell() as root:
        child = spawn(root, f"sleep {seconds} & sleep {seconds} & wait")
        await until_running(seconds, 2)
        child.terminate()
        await child.done()
        await until_gone(seconds)


@pytest.mark.parametrize("number", [int(signal.SIGTERM), int(signal.SIGHUP), None])
def test_children_do_not_outlive_a_process_that_just_ends(number: int | None) -> None:
    """The default effect of a signal, or an interpreter that exits without unloading."""
    seconds = unique_seconds()
    program = f"""
import asyncio, os, signal
from dsh.cordis import Context
from dsh.shell.service import SpawnSpec
import dsh.shell.subprocess

async def main():
    root = Context()
    await root.__aenter__()
    fiber = await root.plugin(dsh.shell.subprocess, {{}})
    root["subprocess"].spawn(SpawnSpec(["bash", "-c", 'trap "" TERM HUP; sleep {seconds} & wait'], "/", 3000))
    print("started", flush=True)
    if {number!r} is None:
        raise SystemExit(0)
    await asyncio.sleep(60)

loop = asyncio.new_event_loop()
loop.run_until_complete(main())
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"started\n"
        if number is not None:
            deadline = time.monotonic() + 20
            while not running(seconds) and time.monotonic() < deadline:
                time.sleep(0.005)
            process.send_signal(number)
        code = process.wait(20)
    assert code == (0 if number is None else -number)
    deadline = time.monotonic() + 20
    while running(seconds) and time.monotonic() < deadline:
        time.sleep(0.005)
    assert not running(seconds)


def test_it_works_on_uvloop_as_well() -> None:
    uvloop = pytest.importorskip("uvloop")
    seconds = unique_seconds()

    async def scenario() -> None:
        async with root_with_shell() as root:
            child = spawn(root, f"echo hi; sleep {seconds} & exit 5")
            assert await child.done() == ExitStatus(5, None)
            assert output(child) == "hi\n"
            piped = spawn(root, "cat", stdin="pipe", stdout="pipe")
            assert piped.stdin is not None and piped.stdout is not None
            await piped.stdin.write(b"x" * 10)
            piped.stdin.close()
            assert await piped.stdout.read() == b"x" * 10

    uvloop.run(scenario())
    assert not running(seconds)


async def test_nothing_is_left_open_in_the_harness() -> None:
    async with root_with_shell() as root:
        await spawn(root, "true").done()
        before = set(os.listdir("/proc/self/fd"))
        for _ in range(20):
            child = spawn(root, "cat; seq 100", stdin=b"data", stdout=Collect(10, 1000))
            await child.done()
            bad = root[Subprocess].spawn(SpawnSpec(["no-such-program"], "/", 100, stdin="pipe"))
            with pytest.raises(SpawnError):
                await bad.done()
        assert set(os.listdir("/proc/self/fd")) == before
