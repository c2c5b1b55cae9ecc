"""Command lines through the shell service."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from dsh.cordis import AbortController, ConfigError
from dsh.core.seams import Settings
from dsh.settings.memory import MemorySettings
from dsh.shell.bash import Config
from dsh.shell.service import Shell, ShellRequest, SpawnError

from .helpers import root_with_shell, run, running, unique_seconds, until_running


async def test_a_command_runs_where_it_is_told(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    async with root_with_shell({"cwd": str(tmp_path)}) as root:
        assert (await run(root, "pwd -P")).stdout.text == f"{tmp_path.resolve()}\n"
        assert (await run(root, "pwd -P", workdir="sub")).stdout.text == f"{tmp_path.resolve()}/sub\n"
        assert (await run(root, "pwd -P", workdir="/")).stdout.text == "/\n"
        with pytest.raises(SpawnError, match="does not exist"):
            await run(root, "pwd", workdir="nowhere")


async def test_variables_come_in_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    async with root_with_shell() as root:
        shown = 'echo "$NO_COLOR $TERM $PAGER $GIT_PAGER $MINE $DSH_SHELL"'
        assert (await run(root, shown)).stdout.text == "1 dumb cat cat  \n"
        result = await run(
            root, shown, env={"PAGER": "less", "MINE": "a", "DSH_SHELL": "0"}, dsh_env={"DSH_SHELL": "1"}
        )
        assert result.stdout.text == "1 dumb less cat a 1\n"


async def test_it_is_no_login_shell_and_gets_the_input(tmp_path: Path) -> None:
    (tmp_path / ".profile").write_text("echo profile")
    (tmp_path / ".bashrc").write_text("echo rc")
    async with root_with_shell() as root:
        result = await run(root, "shopt -q login_shell && echo login; cat", env={"HOME": str(tmp_path)}, stdin=b"in")
        assert result.stdout.text == "in"
        assert (await run(root, "cat; echo done")).stdout.text == "done\n"  # without input: end of file at once


async def test_f46_b09a_a_time_limit_ends_the_tree_and_keeps_the_output() -> None:
    async with root_with_shell() as root:
        command = "(while :; do echo x; sleep .1; done) | cat"
        result = await run(root, command, timeout_ms=600)
        assert result.timed_out and not result.aborted and result.timeout_ms == 600
        assert result.stdout.text.startswith("x\nx\n")
        assert result.left_process is None
        assert not running(command)


async def test_b09b_a_trapped_term_is_a_time_out_all_the_same() -> None:
    async with root_with_shell() as root:
        seconds = unique_seconds()
        polite = await run(root, f"trap 'echo bye; exit 0' TERM; sleep {seconds} & wait", timeout_ms=300)
        assert (polite.timed_out, polite.exit_code, polite.signal) == (True, 0, None)
        assert polite.stdout.text == "bye\n"
        deaf = await run(root, f"trap '' TERM; sleep {seconds} & wait; wait; echo over", timeout_ms=300)
        assert (deaf.timed_out, deaf.exit_code, deaf.signal) == (True, None, "SIGKILL")
        assert not running(seconds)


async def test_b09c_a_command_that_kills_itself_was_neither_aborted_nor_timed_out() -> None:
    async with root_with_shell() as root:
        result = await run(root, "kill -9 $$", signal=AbortController().signal)
        assert (result.exit_code, result.signal, result.timed_out, result.aborted) == (None, "SIGKILL", False, False)


async def test_b09d_an_abort_ends_the_tree_before_it_answers() -> None:
    seconds = unique_seconds()
    async with root_with_shell() as root:
        controller = AbortController()
        command = f"echo first; sleep {seconds} & (trap '' TERM; sleep {seconds}) & wait"
        task = asyncio.ensure_future(run(root, command, signal=controller.signal))
        await until_running(seconds, 2)
        controller.abort()
        result = await task
        assert result.aborted and not result.timed_out
        assert result.stdout.text == "first\n"
        assert not running(seconds)


async def test_b09e_a_fired_signal_starts_nothing(tmp_path: Path) -> None:
    controller = AbortController()
    controller.abort()
    async with root_with_shell({"cwd": str(tmp_path)}) as root:
        result = await run(root, "touch made", signal=controller.signal)
        assert result.aborted and result.exit_code is None
        assert os.listdir(tmp_path) == []


async def test_cancelling_the_caller_ends_the_command() -> None:
    seconds = unique_seconds()
    async with root_with_shell() as root:
        task = asyncio.ensure_future(run(root, f"sleep {seconds} & wait"))
        await until_running(seconds)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert not running(seconds)


@pytest.mark.parametrize("start", ["{} & echo hi", "nohup {} >/dev/null & echo hi", "setsid {} & echo hi"])
async def test_f45_b09f_a_background_child_does_not_hold_the_call(start: str) -> None:
    seconds = unique_seconds()
    async with root_with_shell() as root:
        started = time.monotonic()
        result = await run(root, start.format(f"sleep {seconds}"))
        assert time.monotonic() - started < 15
        assert (result.exit_code, result.stdout.text, result.timed_out) == (0, "hi\n", False)
        assert result.child is not None and result.left_process == result.child.pid
        assert running(seconds)
    assert not running(seconds)


@pytest.mark.parametrize("command", ["echo hi > >(cat)", "(sleep 0.03 >/dev/null 2>&1 &); echo hi"])
async def test_a_process_that_ends_right_after_its_shell_is_not_left_behind(command: str) -> None:
    async with root_with_shell() as root:
        for _ in range(10):
            result = await run(root, command)
            assert (result.stdout.text, result.left_process) == ("hi\n", None)


async def test_limits_are_filled_in_and_capped() -> None:
    async with root_with_shell({"timeoutMs": 5000, "maxTimeoutMs": 9000, "maxOutputBytes": 10}) as root:
        shell = root[Shell]
        assert shell.resolve(ShellRequest("true")).timeout_ms == 5000
        assert shell.resolve(ShellRequest("true", timeout_ms=8000.5)).timeout_ms == 8000.5
        assert shell.resolve(ShellRequest("true", timeout_ms=99_999)).timeout_ms == 9000
        result = await run(root, "printf 0123456789abc; printf fine >&2")
        assert (result.stdout.text, result.stdout.truncated) == ("3456789abc", True)
        assert result.stdout.spill_path is not None
        assert Path(result.stdout.spill_path).read_text() == "0123456789abc"
        assert (result.stderr.text, result.stderr.truncated, result.stderr.spill_path) == ("fine", False, None)
        wider = await run(root, "printf 0123456789abc", stdout_max_bytes=100)
        assert (wider.stdout.text, wider.stdout.truncated) == ("0123456789abc", False)


@pytest.mark.parametrize("key", ["timeoutMs", "maxTimeoutMs", "maxOutputBytes", "maxSpillBytes", "graceMs"])
@pytest.mark.parametrize("value", [0, -1, 1.5, "10", True])
def test_limits_are_positive_integers(key: str, value: object) -> None:
    with pytest.raises(ConfigError):
        Config.validate({key: value})


async def test_the_users_settings_apply_to_the_next_command() -> None:
    async with root_with_shell({"timeoutMs": 5000, "maxTimeoutMs": 9000}) as root:
        shell = root[Shell]

        def limits() -> tuple[float, int]:
            spec = shell.resolve(ShellRequest("true"))
            return spec.timeout_ms, spec.stdout_max_bytes

        assert limits() == (5000, 64_000)
        memory = await root.plugin(MemorySettings, {"sections": {"shell": {"maxOutputBytes": 100}}})
        await root.settle()
        assert limits() == (5000, 100)
        await root[Settings].update("shell", {"timeoutMs": 7000})
        assert limits() == (7000, 100)
        with pytest.raises(Exception, match="timeoutMs"):
            await root[Settings].update("shell", {"timeoutMs": 0})
        assert limits() == (7000, 100)
        row = next(fiber for fiber in root.fiber.children() if fiber.name == "bash-local")
        await row.update({"timeoutMs": 5000, "maxTimeoutMs": 6000})  # a live edit of the row: no restart
        assert root[Shell] is shell
        assert limits() == (6000, 100)
        await memory.dispose()
        assert limits() == (5000, 64_000)


async def test_f47b_output_that_is_no_text_never_raises() -> None:
    async with root_with_shell() as root:
        result = await run(root, r"printf '\xff\xfe\x00ok'; head -c 4000 /dev/urandom >&2")
        assert result.stdout.text == "\ufffd\ufffd\ufffdok"
        result.stderr.text.encode()


async def test_f58a_directories_with_any_name_work(tmp_path: Path) -> None:
    folder = tmp_path / "ä 目录 'q' 😀"
    folder.mkdir()
    async with root_with_shell({"cwd": str(folder)}) as root:
        result = await run(root, "echo 'ünïcode 目' > f; cat f; pwd")
        assert result.stdout.text == f"ünïcode 目\n{folder}\n"
        with pytest.raises(SpawnError, match="NUL"):
            await run(root, "echo a\0b")


async def test_b09g_a_background_job_hands_out_its_output_once() -> None:
    async with root_with_shell() as root:
        shell = root[Shell]
        job = shell.start(shell.resolve(ShellRequest("echo one; read -r _ < /dev/zero; echo never", timeout_ms=1)))
        text = ""
        async with asyncio.timeout(20):
            while text != "one\n":
                text += job.read_output()[0].text
                await asyncio.sleep(0.005)
        assert (job.status, job.read_output()[0].text) == ("running", "")
        job.kill()
        await job.wait()
        assert job.status == "killed"
        done = shell.start(shell.resolve(ShellRequest("echo two; exit 3")))
        await done.wait()
        assert done.exit is not None and (done.status, done.exit.exit_code) == ("completed", 3)
        assert done.read_output()[0].text == "two\n"
        assert done.read_output()[0].text == ""
        done.kill()
        assert done.status == "completed"


async def test_b09h_a_job_that_cannot_start_says_so_once() -> None:
    async with root_with_shell() as root:
        shell = root[Shell]
        job = shell.start(shell.resolve(ShellRequest("true", workdir="/no/such")))
        await job.wait()
        assert (job.status, job.exit) == ("killed", None)
        assert job.read_output()[1].text == 'spawn failed: the working directory "/no/such" does not exist'
        assert job.read_output()[1].text == ""


async def test_b09i_a_job_outlives_a_reload_of_the_executor() -> None:
    seconds = unique_seconds()
    async with root_with_shell() as root:
        shell = root[Shell]
        job = shell.start(shell.resolve(ShellRequest(f"echo on; sleep {seconds} & wait")))
        await until_running(seconds)
        fiber = next(child for child in root.fiber.children() if child.name == "bash-local")
        await fiber.restart()
        assert running(seconds) and job.status == "running"
        job.kill()
        await job.wait()
        assert job.read_output()[0].text == "on\n"
    assert not running(seconds)
