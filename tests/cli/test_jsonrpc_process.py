"""The JSON-RPC runtime as a process: what reaches its standard output, how it starts, and how it ends."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import pytest

from dsh.models.mock_server import MockLlmServer
from tests.cli.jsonrpc_kit import AGENT, COMMAND, PROFILE, ROWS, STALL, RpcFailure, runtime, written_pid
from tests.cli.kit import Place
from tests.processes import alive, until_gone

SAID = "dsh: no composition named by $DSH_CORDIS_CONFIG or argument: using the packaged profile sdk\n"

CHATTY = '''\
"""Writes to standard output in every way there is."""
import os, subprocess, sys, warnings
from dsh.core.tools import Tools
print("import noise")
os.write(1, b"raw import noise\\n")


def apply(ctx, config, tools: Tools):
    print("apply noise", flush=True)
    subprocess.run(["sh", "-c", "echo child noise; cat; echo child read its input"], check=True)

    @tools.tool
    async def shout() -> str:
        """Say something aloud."""
        print("tool noise")
        warnings.warn("warning noise")
        sys.stdout.write("no line end")
        sys.stdout.flush()
        subprocess.run(["sh", "-c", "echo background noise; (sleep 0.1; echo late noise) &"], check=True)
        return "said"
'''

SLOW = """\
import asyncio, sys
async def apply(ctx):
    print("slow begins", file=sys.stderr, flush=True)
    {body}
    print("slow is there", file=sys.stderr, flush=True)
"""

STUBBORN = """\
import asyncio, sys
def apply(ctx):
    async def end():
        print("stubborn stays", file=sys.stderr, flush=True)
        await asyncio.sleep(60)
    ctx.defer(end)
"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place.make(tmp_path)
    place.write("cordis.yml", ROWS)
    return place


def with_plugin(place: Place, name: str, text: str) -> None:
    place.write(f"{name}.py", text)
    place.write("cordis.yml", ROWS + f"- {{id: {name}, name: ./{name}.py}}\n")


# -- standard output --------------------------------------------------------------------------------------------------


async def test_b01a_whatever_plugins_and_children_print_the_output_holds_frames_alone(place: Place) -> None:
    with_plugin(place, "chatty", CHATTY)
    script = [{"toolCalls": [{"name": "shout", "arguments": "{}"}]}, {"text": "ok"}]
    async with MockLlmServer(script) as server:
        place.model(server.url)
        async with runtime(place, "cordis.yml") as run:
            await run.initialize()
            await run.turn("s")
            await run.call("shutdown")
            assert await run.finish(10) == 0
            assert run.events("s")[-1]["data"]["reason"] == {"kind": "completed"}
            for frame in run.raw.decode().split("\n")[:-1]:
                assert json.loads(frame)["jsonrpc"] == "2.0"
            assert b"noise" not in run.raw.replace(b"shout", b"")
            for noise in ("import", "raw import", "apply", "child", "tool", "warning", "background"):
                assert f"{noise} noise" in run.err
            assert "child read its input" in run.err  # and took none of ours


async def test_b01b_five_megabytes_odd_separators_and_half_a_line(place: Place) -> None:
    text = "\u2028\u2029\u0085\x0b\x0c\x1c😀é" + "x" * 5_300_000 + "ende\u2028"
    async with runtime(place, "cordis.yml") as run:
        await run.initialize(provider="demo", model="demo")
        await run.turn("s", text)
        user = next(e for e in run.events("s") if e["type"] == "user/message")
        assert user["data"]["content"] == [{"type": "text", "text": text}]
        assert "\u2028".encode() in run.raw  # as it is, not escaped
        run.write(b'{"jsonrpc":"2.0","id":77,"method":"session/list"}')  # no line end
        run.close_input()
        assert await run.finish(15) == 0
        assert all(frame["id"] != 77 for frame in run.answers())


# -- starting ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["command", "agent", "profile"])
async def test_b03a_a_start_that_fails_names_row_and_plugin_and_writes_nothing(place: Place, how: str) -> None:
    with_plugin(place, "broken", "def apply(ctx):\n    raise RuntimeError('not today')\n")
    place.write("patch.yml", f"- insert: [{{id: broken, name: {place.work}/broken.py}}]\n")
    command, arguments, env = {
        "command": (COMMAND, ["cordis.yml"], {}),
        "agent": (AGENT, [], {"DSH_CORDIS_CONFIG": str(place.work / "cordis.yml")}),
        "profile": (PROFILE, ["--patch", str(place.work / "patch.yml")], {}),
    }[how]
    async with runtime(place, *arguments, command=command, env=env) as run:
        run.send("initialize", run.route())
        assert await run.finish(20) == 1
        assert run.raw == b""
        assert "broken.py" in run.err and '"broken"' in run.err and "not today" in run.err


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("missing.yml", None, "missing.yml"),
        ("torn.yml", "- id: [", "torn.yml"),
        ("waiting.yml", ROWS.replace("- {id: tools, name: dsh-tools}\n", ""), "tools"),
        ("unknown.yml", ROWS + "- {id: odd, name: dsh-nonsense}\n", "nonsense"),
        ("include.yml", "- {id: inner, name: '@deepseek-ai/cordis-plugin-include', config: {}}\n", "path: required"),
    ],
)
async def test_b03b_a_composition_that_cannot_work_is_code_1_with_the_place(
    place: Place, name: str, text: str | None, said: str
) -> None:
    if text is not None:
        place.write(name, text)
    async with runtime(place, name) as run:
        assert await run.finish(20) == 1
        assert run.raw == b"" and said in run.err and "Traceback" not in run.err


async def test_b03c_a_dotenv_that_moves_the_home_folder_is_refused(place: Place) -> None:
    place.write(".env", "DSH_HOME=/somewhere/else\n")
    async with runtime(place, "cordis.yml") as run:
        assert await run.finish(20) == 1
        assert run.raw == b"" and "DSH_HOME" in run.err


async def test_b05a_a_waiting_row_stops_the_start_and_is_named_with_its_service(place: Place) -> None:
    with_plugin(
        place, "needy", "from dsh.core.seams import Approval\ndef apply(ctx, config, approval: Approval): ...\n"
    )
    async with runtime(place, "cordis.yml") as run:
        assert await run.finish(20) == 1
        assert run.raw == b"" and '"needy"' in run.err and "approval" in run.err


async def test_b05b_a_patch_for_another_plugin_is_reported_and_skipped(place: Place) -> None:
    place.write("wrong.yml", "- {id: system-prompt, name: dsh-tools, config: {persona: No.}}\n")
    async with runtime(place, "cordis.yml", "--patch", "wrong.yml") as run:
        await run.initialize(provider="demo", model="demo")
        await run.said("wrong.yml")
        assert "system-prompt" in run.err


async def test_b12a_initialize_waits_for_a_plugin_that_starts_slowly(place: Place) -> None:
    with_plugin(
        place, "slow", SLOW.format(body="while not __import__('os').path.exists('go'): await asyncio.sleep(0.01)")
    )
    async with runtime(place, "cordis.yml") as run:
        await run.said("slow begins")
        first = run.send("initialize", run.route(provider="demo", model="demo"))
        prompt = run.send("session/prompt", {"sessionId": "s", "contentBlocks": [{"type": "text", "text": "hi"}]})
        with pytest.raises(RpcFailure, match="unknown DeepSeek"):  # requests are taken all the while
            await run.call("nope")
        assert len(run.answers()) == 1
        (place.work / "go").touch()
        assert "serverInfo" in await run.answer(first)
        assert "slow is there" in run.err
        assert "messageId" in await run.answer(prompt)


async def test_b12b_a_slow_plugin_that_fails_is_an_error_and_not_a_hang(place: Place) -> None:
    with_plugin(place, "slow", SLOW.format(body="await asyncio.sleep(0.2); raise RuntimeError('too slow')"))
    async with runtime(place, "cordis.yml") as run:
        await run.said("slow begins")
        run.send("initialize", run.route())
        assert await run.finish(20) == 1
        assert run.raw == b"" and "too slow" in run.err and "slow.py" in run.err


async def test_a_row_that_nobody_speaks_to_leaves_standard_output_alone(place: Place) -> None:
    place.write("cordis.yml", ROWS + "- {id: acp, name: dsh-acp}\n")
    done = await place.dsh("exec", "hello", "--config", "cordis.yml", "--model", "demo/demo")
    assert done.code == 0 and "You said: hello" in done.out and "jsonrpc" not in done.out
    async with runtime(place, "cordis.yml") as run:
        for _ in range(20):  # no request reaches the other protocol's server
            with pytest.raises(RpcFailure, match="session/resume before initialize"):
                await run.call("session/resume", {"sessionId": "s"})
        assert "serverInfo" in await run.initialize(provider="demo", model="demo")
        assert "authMethods" not in str(run.frames)


async def test_two_servers_on_one_input_are_refused(place: Place) -> None:
    place.write("cordis.yml", ROWS + "- {id: again, name: dsh-sdk-jsonrpc-server}\n")
    async with runtime(place, "cordis.yml") as run:
        assert await run.finish(20) == 1
        assert run.raw == b"" and "again" in run.err


# -- ending -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delay", [0.0, 0.05, 0.5])
async def test_b02a_sigterm_early_ends_the_process_soon_and_quietly(place: Place, delay: float) -> None:
    async with runtime(place, "cordis.yml", command=AGENT) as run:
        await asyncio.sleep(delay)
        run.signal(signal.SIGTERM)
        code = await run.finish(10)
        # Before Python itself runs there is nobody to say 0.
        assert code == 0 or (delay < 0.5 and code == -signal.SIGTERM)
        assert run.raw == b"" and run.err in ("", SAID)


@pytest.mark.parametrize("end", ["sigterm", "eof", "shutdown"])
@pytest.mark.parametrize("during", ["stream", "tool"])
async def test_b02b_every_end_closes_the_turn_and_leaves_no_process(place: Place, end: str, during: str) -> None:
    call = '{"command":"echo $$ > pid; sleep 1000 & wait","description":"wait"}'
    script = [STALL if during == "stream" else {"toolCalls": [{"name": "bash", "arguments": call}]}]
    async with MockLlmServer(script) as server:
        place.model(server.url)
        async with runtime(place, "cordis.yml") as run:
            await run.initialize()
            await run.prompt("s")
            await run.event("assistant/chunk" if during == "stream" else "tool/call")
            pid = None
            if during == "tool":
                pid = await written_pid(place.work / "pid")
                assert alive(pid)
            if end == "sigterm":
                run.signal(signal.SIGTERM)
            elif end == "eof":
                run.close_input()
            else:
                asked = asyncio.get_running_loop().time()
                await run.call("shutdown")
                assert asyncio.get_running_loop().time() - asked < 5
            assert await run.finish(10) == 0
            assert run.told("s")[-2:] == ["turn/end", "idle"]
            assert run.events("s")[-1]["data"]["reason"] == {"kind": "aborted", "reason": {"kind": "disposed"}}
            if pid is not None:
                await until_gone(pid)
        verified = await place.dsh("sessions", "verify")
        assert verified.code == 0, verified.err


async def test_b02c_a_client_may_ask_close_and_signal_in_one_go(place: Place) -> None:
    with_plugin(place, "stubborn", STUBBORN.replace("60", "0.3"))
    async with runtime(place, "cordis.yml") as run:
        await run.initialize(provider="demo", model="demo")
        await run.call("shutdown")
        run.close_input()
        await run.said("stubborn stays")
        run.signal(signal.SIGTERM)
        assert await run.finish(10) == 0


@pytest.mark.parametrize(("first", "code"), [("sigterm", 143), ("eof", 143), ("shutdown", 143)])
async def test_b02d_a_second_signal_leaves_at_once(place: Place, first: str, code: int) -> None:
    with_plugin(place, "stubborn", STUBBORN)
    async with runtime(place, "cordis.yml") as run:
        await run.initialize(provider="demo", model="demo")
        if first == "shutdown":
            await run.call("shutdown")
        elif first == "eof":
            run.close_input()
        else:
            run.signal(signal.SIGTERM)
        await run.said("stubborn stays")
        run.signal(signal.SIGTERM)
        if first != "sigterm":
            await asyncio.sleep(0.05)  # two signals that meet are one
            run.signal(signal.SIGTERM)
        assert await run.finish(3) == code  # the plugin would take a minute, the grace time five seconds


@pytest.mark.parametrize("body", ["await asyncio.sleep(0.5)", "await asyncio.sleep(1000)"])
async def test_b02e_an_input_that_ends_during_the_start_ends_the_process(place: Place, body: str) -> None:
    with_plugin(place, "slow", SLOW.format(body=body))
    async with runtime(place, "cordis.yml") as run:
        await run.said("slow begins")
        run.close_input()
        assert await run.finish(5) == 0
        assert run.raw == b""


async def test_b02f_a_shutdown_during_the_start_is_answered_and_ends_it(place: Place) -> None:
    with_plugin(place, "slow", SLOW.format(body="await asyncio.sleep(1000)"))
    async with runtime(place, "cordis.yml") as run:
        await run.said("slow begins")
        assert await run.call("shutdown") == {}
        assert await run.finish(5) == 0


async def test_b02g_requests_written_before_the_input_ends_are_answered(place: Place) -> None:
    async with runtime(place, "cordis.yml") as run:
        first = run.send("initialize", run.route(provider="demo", model="demo"))
        second = run.send("session/prompt", {"sessionId": "s", "contentBlocks": [{"type": "text", "text": "hi"}]})
        run.close_input()
        assert await run.finish(15) == 0
        assert [frame["id"] for frame in run.answers()] == [first, second]
        assert run.told("s")[-2:] == ["turn/end", "idle"]


async def test_b02h_a_prompt_that_was_answered_is_in_the_log_also_after_a_kill(place: Place) -> None:
    async with MockLlmServer([STALL]) as server:
        place.model(server.url)
        async with runtime(place, "cordis.yml") as run:
            await run.initialize()
            message_id = await run.prompt("s", "do not lose this")
            run.kill()
            await run.process.wait()
    shown = await place.dsh("sessions", "show", "s", "--events")
    assert message_id in shown.out and "do not lose this" in shown.out
