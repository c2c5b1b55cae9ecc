"""The console on a daemon has the commands of the console of `dsh run`, carried by the control API."""

from __future__ import annotations

import signal
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from dsh.models.mock_server import MockLlmServer
from tests.cli.kit import Place
from tests.cli.test_control import following
from tests.interfaces.console_kit import BOTH, GREETER, HMR, SETTINGS, attached, leaves, opened
from tests.interfaces.control_kit import DEMO, WAIT, begun, controlled, demo_place, go
from tests.interfaces.terminal import ALT_ENTER, CTRL_C, UP, console

CHECKPOINTS = "- {id: checkpoints, name: dsh-session-checkpoint-policy}\n"
TWO = DEMO.replace("      - id: main\n", "      - id: main\n      - id: helper\n")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = demo_place(tmp_path, NO_COLOR="1")
    place.write("cordis.yml", TWO + SETTINGS)
    return place


async def test_agents_are_listed_and_one_can_go_over_to_another_and_to_a_copy(place: Place) -> None:
    async with attached(place) as (control, terminal):
        await terminal.enter("to the first", "You said: to the first")
        await terminal.enter("/agents", "\n* main    main-session-", "\n  helper  helper-session-")
        await terminal.enter("/switch nobody", 'no agent "nobody"; agents: main, helper')
        terminal.type("/switch help\t\r\r")
        await terminal.stands("now with helper, session helper-session-")
        await terminal.enter("to the second", "You said: to the second")
        await control.prompt("not for the second")
        await control.idle()
        terminal.type("/switch main\r")
        await terminal.stands("You said: not for the second")  # of its past
        await terminal.enter("/fork", "a copy; /agents lists both")
        await terminal.enter("in the copy", "You said: in the copy")
        assert "in the copy" not in str(await control.log())
        await leaves(terminal)


async def test_settings_configuration_rows_and_usage(place: Place) -> None:
    async with MockLlmServer(["success"], repeat_last=True) as server, AsyncExitStack() as stack:
        models = "models: [{id: m, contextWindow: 1000, prices: {input: 250, cachedInput: 10, output: 500}}]"
        row = f"- {{id: llm-deepseek, name: dsh-llm-deepseek, config: {{baseURL: '{server.url}', {models}}}}}\n"
        text = (place.work / "cordis.yml").read_text("utf-8")
        route = "provider: deepseek-official, model: m"
        place.write("cordis.yml", text.replace("provider: demo, model: demo", route) + row)
        control = await stack.enter_async_context(controlled(place))
        await control.prompt("before anybody looked")
        await control.idle()
        terminal = await stack.enter_async_context(console(place, "main", command="attach"))
        await terminal.stands("main · m · context 18/1.0k (2%) · 12 in, 6 out · $0.0050 · 10 at once")
        await terminal.enter("/settings agent-loop.maxParallelToolCalls 4", "agent-loop.maxParallelToolCalls = 4")
        assert "maxParallelToolCalls: 4" in (place.home / "settings.yaml").read_text("utf-8")
        await terminal.enter("/settings agent-loop.maxParallelToolCalls", "agent-loop.maxParallelToolCalls  4  user")
        await terminal.enter(
            "/settings unset agent-loop.maxParallelToolCalls", "is back to the row's value or the default"
        )
        await terminal.enter(
            "/settings agent-loop.maxParallelToolCall 4", 'unknown key; did you mean "maxParallelToolCalls"?'
        )
        await terminal.enter("/config agent-loop.maxParallelToolCalls few", "must be a whole number")
        terminal.type("/config agent-loop.max")
        await terminal.stands("\n agent-loop.maxParallelToolCalls  10")
        await terminal.enter("\t 7", "agent-loop.maxParallelToolCalls = 7")
        assert "maxParallelToolCalls: 7   # live" in (place.work / "cordis.yml").read_text("utf-8")
        await terminal.enter("/config default-model", "provider: deepseek-official")
        await terminal.enter("/plugins tool-bash", "state       active")
        await control.prompt("something")
        await terminal.stands("24 in, 12 out · $0.010 · 7 at once")
        await terminal.enter(
            "/usage",
            "turns  2\n\nmodel                calls  input  cached  output  cost\n",
            "deepseek-official/m  2      16     8       12      $0.010",
        )
        await terminal.enter(
            "/config llm-deepseek.models [{id: m, prices: {input: 0, cachedInput: 0, output: 0}}]",
            "24 in, 12 out · $0 · 7 at once",
        )
        await leaves(terminal)


async def test_what_waits_is_shown_and_can_be_taken_back(place: Place) -> None:
    async with attached(place) as (control, terminal):
        terminal.type(WAIT + "\r")
        await control.begun()
        await terminal.enter("one", "waits: one")
        assert (await place.dsh("send", "main", "from elsewhere")).code == 0
        await terminal.stands("waits: one\nwaits: from elsewhere")
        terminal.type(f"\x1b{UP}")
        await terminal.stands("> from elsewhere")
        await terminal.gone("waits: from elsewhere")
        terminal.type("\x15/queue drop 1\r")
        await terminal.gone("waits: one")
        control.go()
        await control.idle()
        terminal.type(f"{WAIT}\r{CTRL_C}")
        await terminal.stands("turn ended: aborted")
        await leaves(terminal)


async def test_commands_of_plugins_run_in_the_daemon_and_print_here(place: Place) -> None:
    place.write("plugins/greeter.py", GREETER)
    plain = (place.work / "cordis.yml").read_text("utf-8") + HMR
    place.write("cordis.yml", plain + "- {id: greeter, name: ./plugins/greeter.py}\n")
    async with attached(place) as (control, terminal):
        await terminal.enter("/greet alice", "> /greet alice\nhello alice")
        await terminal.enter("/fail", "it went wrong")
        await terminal.enter("/slow", "it starts")
        assert not (place.work / "ended").exists()
        terminal.type(CTRL_C)
        await terminal.stands("it starts\ncancelled")
        await terminal.until((place.work / "ended").exists, "it runs on in the daemon")
        refused = await control.ask("POST", "/api/commands/nothing", {}, expect=404)
        assert refused["error"]["code"] == "NO_COMMAND"
        place.write("cordis.yml", plain)
        await terminal.stands("config applied: greeter")
        await terminal.enter("/greet bob", 'there is no command "/greet"')
        await leaves(terminal)


async def test_without_a_terminal_commands_print_plain_lines(place: Place) -> None:
    async with controlled(place):
        async with following(place, "attach", "main", "--tail", "0") as attached:
            await attached.type("/agents\n/plugins tool-bash\n/nothing\nhello\n")
            await attached.shows("* main    main-session-")
            await attached.shows("state       active")
            await attached.shows('there is no command "/nothing"')
            await attached.shows("You said: hello")
            await attached.type("/quit\n")
            assert await attached.ends() == 0
            assert "\x1b" not in attached.out


async def test_edits_of_the_daemons_configuration_are_told_as_in_its_own_console(place: Place) -> None:
    place.write("cordis.yml", (place.work / "cordis.yml").read_text("utf-8") + HMR)
    async with opened(place, "attach") as terminal:
        good = (place.work / "cordis.yml").read_text("utf-8")
        place.write("cordis.yml", good.replace("paceMs: 0", "paceMs: 1"))
        await terminal.stands("config applied: llm-demo")
        await terminal.stands("main · demo · 10 at once")
        place.write("cordis.yml", good.replace("maxParallelToolCalls: 10", "maxParallelToolCalls: 3"))
        await terminal.stands("main · demo · 3 at once")
        place.write("cordis.yml", good.replace("paceMs: 0", "paceMs: slow"))
        await terminal.stands("paceMs: must be")
        assert terminal.picture().count("paceMs: must be") == 1
        place.write("cordis.yml", good.replace("paceMs: 0", "paceMs: 0, paceMz: 1"))
        await terminal.stands('did you mean "paceMs"?')
        await leaves(terminal)


async def test_a_killed_daemon_takes_no_draft_along_and_its_session_tells_what_was_cut_off(place: Place) -> None:
    place.write("cordis.yml", (place.work / "cordis.yml").read_text("utf-8") + CHECKPOINTS)
    async with attached(place) as (control, terminal):
        terminal.type(WAIT + "\r")
        await control.begun()
        terminal.type("a draft of")
        terminal.type(ALT_ENTER + "two lines")
        await terminal.stands("two lines")
        control.daemon.signal(signal.SIGKILL)
        assert await terminal.ends() == 1
        end = terminal.screen()
        assert f"ended; `dsh resume {control.main}` goes on with the session, `dsh run cordis.yml` starts it" in end
        assert end.endswith("to be found by Up in the next console:\na draft of\ntwo lines\n")
        main = control.main
    async with console(place, main, command="resume") as terminal:
        await terminal.stands("bash: the process ended before it had a result")
        await terminal.stands("the process ended in the middle of this turn")
        elsewhere = await place.dsh("attach", main, stdin="/quit\n")
        assert "bash: the process ended before it had a result" in elsewhere.out, elsewhere.err
        terminal.type(UP)
        await terminal.stands("> a draft of\n  two lines")
        terminal.type(CTRL_C)
        await terminal.gone("> a draft of")
        await leaves(terminal)


@pytest.mark.parametrize("command", BOTH)
async def test_a_fork_while_a_turn_runs_is_of_all_before_that_turn(place: Place, command: str) -> None:
    async with opened(place, command) as terminal:
        terminal.type(WAIT + "\r")
        await begun(place)
        await terminal.enter("/fork", "is in its first turn")
        go(place)
        await terminal.stands("[demo")
        terminal.type(WAIT + "\r")
        await begun(place)
        await terminal.enter("/fork", "a copy up to the last turn that has ended")
        await terminal.enter("in the copy", "You said: in the copy")
        go(place)
        await leaves(terminal)
