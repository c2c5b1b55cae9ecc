"""Completion in shells: what is offered at each place, and that real shells take it."""

from __future__ import annotations

import asyncio
import os
import pty
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from dsh.cli.completing import FILES
from dsh.cli.main import COMMANDS
from tests.cli.kit import PYTHON, Place

ROOT = Path(__file__).parents[2]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place.make(tmp_path)
    place.init()
    commands = tmp_path / "bin"
    commands.mkdir()
    (commands / "dsh").write_text(f'#!/bin/sh\nexec {PYTHON} -m dsh.cli.main "$@"\n')
    (commands / "dsh").chmod(0o755)
    place.env["PATH"] = f"{commands}:{place.env['PATH']}"
    return place


async def offered(place: Place, *words: str) -> dict[str, str]:
    """What is offered for the last word, with what is said of it."""
    done = await place.dsh("completion", "words", "--", *words)
    assert (done.code, done.err) == (0, "")
    return dict(line.partition("\t")[::2] for line in done.out.splitlines())


async def test_commands_and_options_are_offered_with_what_they_do(place: Place) -> None:
    assert await offered(place, "") == COMMANDS
    assert (await offered(place, "conf")) == {"config": COMMANDS["config"]}
    assert {"get", "set", "schema", "edit"} <= set(await offered(place, "config", ""))
    assert "words" not in await offered(place, "completion", "")
    options = await offered(place, "--quiet", "run", "cordis.yml", "--")
    assert options["--prompt"] == "First prompt for the agent." and "--help" in options
    assert {"--home", "--profile"} <= set(await offered(place, "--"))
    assert await offered(place, "nonsense", "") == {} and await offered(place, "run", "--nonsense", "x", "y", "") == {}


async def test_config_keys_and_their_values_are_those_of_the_composition(place: Place) -> None:
    keys = await offered(place, "config", "set", "")
    assert keys["agent-loop.maxParallelToolCalls"].startswith("Tool calls of one step")
    assert keys["clock.timezone"] == "IANA name such as Europe/Berlin, or local"
    assert not any("[]" in key for key in keys)
    assert await offered(place, "config", "set", "agent-loop.max") == {
        "agent-loop.maxParallelToolCalls": keys["agent-loop.maxParallelToolCalls"]
    }
    assert set(await offered(place, "config", "set", "llm-deepseek.thinking", "")) == {"enabled", "disabled"}
    assert await offered(place, "config", "set", "agent-loop.maxParallelToolCalls", "") == {"10": "default"}
    assert set(await offered(place, "config", "set", "a.b", "c", "--layer", "")) == {"file", "user"}
    assert "agent-loop" in await offered(place, "config", "get", "agent")
    place.write("other.yml", "- {id: mine, name: ./plugins/clock.py}\n")
    assert set(await offered(place, "config", "set", "--file", "other.yml", "")) == {"mine.timezone"}
    assert set(await offered(place, "run", "other.yml", "--set", "")) == {"mine.timezone="}
    assert set(await offered(place, "run", "--set", "llm-local.toolMode=n")) == {
        "llm-local.toolMode=native",
        "llm-local.toolMode=none",
    }
    assert set(await offered(place, "run", "--output=")) == {"--output=text", "--output=json", "--output=stream-json"}


async def test_settings_plugins_and_files_are_offered(place: Place) -> None:
    assert "agent-loop.maxParallelToolCalls" in await offered(place, "settings", "set", "agent")
    assert set(await offered(place, "settings", "set", "llm-deepseek.sendUserId", "")) == {"official", "always"}
    plugins = await offered(place, "config", "schema", "")
    assert {"clock", "dsh-agent-loop", "./plugins/clock.py"} <= set(plugins)
    assert set(await offered(place, "run", "")) == {FILES} == set(await offered(place, "config", "show", ""))


async def test_a_composition_that_cannot_be_read_offers_nothing_and_says_nothing(place: Place) -> None:
    place.write("cordis.yml", "- {id: a\n")
    assert await offered(place, "config", "set", "") == {}


async def test_agents_of_daemons_and_stored_sessions_are_offered(place: Place) -> None:
    async with place.daemon(
        "cordis.yml", "--set", "agent-default-model.candidates=[{provider: demo, model: demo}]"
    ) as it:
        ready = await it.ready()
        session = ready["agents"][0]["sessionId"]
        agents = await offered(place, "send", "")
        assert session in agents and session in agents["main"]
        assert set(await offered(place, "stop", "")) == {str(ready["pid"])}
        assert (await place.dsh("send", "main", "hello there", "--wait")).code == 0
        assert await offered(place, "resume", "main-") == {session: "hello there"}
        assert set(await offered(place, "sessions", "rm", session, "")) == {session}
        assert await offered(place, "--home", str(place.work / "elsewhere"), "resume", "") == {}


async def shell(place: Place, *command: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *command, cwd=place.work, env=place.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    out, _ = await asyncio.wait_for(process.communicate(), 40)
    return out.decode()


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not there")
async def test_bash_completes_words_that_it_splits_itself(place: Place) -> None:
    place.write("inner.yml", "- {id: deep, name: ./plugins/clock.py}\n")
    place.write(
        "cordis.yml",
        "- {id: more, name: 'cordis:include', config: {path: inner.yml}}\n- {id: t, name: dsh-llm-local}\n",
    )
    script = (
        'eval "$(dsh completion bash)"\n'
        't() { COMP_LINE="$1"; COMP_POINT=${#1}; COMPREPLY=(); _dsh; echo "${COMPREPLY[*]}"; }\n'
        't "dsh confi"; t "dsh config set more:d"; t "dsh run --set t.toolMode=n"\n'
        't "dsh run inn"; t "dsh run --output=js"'
    )
    assert (await shell(place, "bash", "-c", script)).splitlines() == [
        "config",
        "deep.timezone",
        "native none",
        "inner.yml",
        "json",
    ]


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not there")
async def test_fish_completes(place: Place) -> None:
    lines = ("dsh confi", "dsh config set agent-loop.max", "dsh run cordis.y")
    asked = "; ".join(f'complete -C "{line}"' for line in lines)
    out = await shell(place, "fish", "-c", f"dsh completion fish | source; {asked}")
    assert [line.partition("\t")[0] for line in out.splitlines()] == [
        "config",
        "agent-loop.maxParallelToolCalls",
        "cordis.yml",
    ]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not there")
async def test_zsh_completes(place: Place) -> None:
    ours, theirs = pty.openpty()
    env = {**place.env, "TERM": "dumb", "PS1": "> "}
    zsh = await asyncio.create_subprocess_exec(
        "zsh", "-f", "-i", cwd=place.work, env=env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    os.set_blocking(ours, False)
    heard = ""
    news = asyncio.Event()

    def read() -> None:
        nonlocal heard
        with suppress(BlockingIOError, OSError):
            heard += os.read(ours, 65536).decode(errors="replace")
        news.set()

    async def types(keys: str, wanted: str) -> None:
        """Type something and wait for what zsh makes of it."""
        begin = len(heard)
        os.write(ours, keys.encode())
        while wanted not in heard[begin:]:
            news.clear()
            await asyncio.wait_for(news.wait(), 30)

    asyncio.get_running_loop().add_reader(ours, read)
    try:
        await types('autoload -Uz compinit; compinit -u -D; eval "$(dsh completion zsh)"; echo re""ady\n', "ready")
        await types("dsh config set agent-loop.max\t", "ParallelToolCalls ")
        await types("\x15dsh run --set llm-local.toolMo\t", "de=")
        await types("\x15dsh run cordis.y\t", "ml ")
        await types("\x15dsh settings set llm-deepseek.sendUserId \t", "always")
    finally:
        asyncio.get_running_loop().remove_reader(ours)
        os.close(ours)
        if zsh.returncode is None:
            zsh.kill()
        await zsh.wait()


async def test_a_script_is_printed_without_importing_what_it_completes(place: Place) -> None:
    code = (
        "import sys; sys.argv = ['dsh', 'completion', 'words', '--', 'con']\n"
        "from dsh.cli.main import app\n"
        "try: app()\nexcept SystemExit: pass\n"
        "print(sorted(each for each in sys.modules if each.startswith('dsh.') and not each.startswith('dsh.cli')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=place.env, cwd=ROOT)
    assert done.stdout.splitlines()[0].startswith("config\t")
    assert not any(each in done.stdout for each in ("dsh.core", "dsh.loader.drafts", "dsh.llm"))
