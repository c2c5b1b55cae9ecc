"""Tool calls and tool results that break the rules, each followed by another turn and a resume."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dsh.models.mock_server import MockLlmServer
from tests.faults.kit import fault, living, strict


def calls(*named: tuple[str, Any]) -> dict[str, Any]:
    """A reply that calls tools; the ids are c0, c1, …"""
    return {"toolCalls": [{"name": name, "arguments": given, "id": f"c{at}"} for at, (name, given) in enumerate(named)]}


def outputs(messages: list[Any]) -> dict[str, str]:
    """The text of each tool message by call id."""
    return {message["tool_call_id"]: message["content"] for message in messages if message["role"] == "tool"}


ECHO = """\
from dsh.core.tools import Tools

def apply(ctx, config, tools: Tools):
    @tools.tool
    async def echo(word: str = "nothing") -> str:
        "Say a word."
        return f"said {word}"
"""
ECHO_ROW = "- {id: echo, name: ./echo.py}\n"


async def test_fault10_an_unknown_tool_is_answered_and_its_neighbour_runs(tmp_path: Path) -> None:
    script = [calls(("no_such_tool", {}), ("echo", {"word": "yes"})), "success"]
    async with fault(tmp_path, script, ECHO_ROW, {"echo.py": ECHO}) as life:
        assert await life.prompt("go") == {"kind": "completed"}
        said = outputs(life.messages)
        assert "no_such_tool" in said["c0"] and said["c1"] == "said yes"
        (unknown,), (known,) = life.results()["c0"], life.results()["c1"]
        assert unknown["error"]["code"] == "UNKNOWN_TOOL" and "error" not in known


HOSTILE = "{{name}} {0} {} %(x)s %s \\\\1 $& ${HOME} {{ no_end"

TEMPLATES = f"""\
from dsh.core.system_prompt import SystemPrompt
from dsh.core.tools import Tools, Output, define_tool, text

HOSTILE = {HOSTILE!r}

def apply(ctx, config, tools: Tools, prompt: SystemPrompt):
    async def execute(args, run):
        return HOSTILE
    tools.register(define_tool(
        "echo", HOSTILE,
        {{"word": {{"type": "string", "description": HOSTILE}}}},
        Output(schema={{"type": "string"}}, render=lambda args, value: [text(value)]),
        execute,
    ))
    prompt.variable("instructions", lambda scope: HOSTILE)
    prompt.section("instructions", 50, "Rules: {{{{instructions}}}} end.")
"""


async def test_fault11_only_declared_templates_are_expanded(tmp_path: Path) -> None:
    """Descriptions, values of variables, prompts and results hold template syntax of all kinds and stay as they are."""
    rows = "- {id: templates, name: ./templates.py}\n"
    async with fault(
        tmp_path, [calls(("echo", {"word": HOSTILE})), "success"], rows, {"templates.py": TEMPLATES}
    ) as life:
        assert await life.prompt(HOSTILE) == {"kind": "completed"}
        body = life.server.bodies[-1]
        (tool,) = [each["function"] for each in body["tools"] if each["function"]["name"] == "echo"]
        assert tool["description"] == HOSTILE
        assert tool["parameters"]["properties"]["word"]["description"] == HOSTILE
        assert f"Rules: {HOSTILE} end." in body["messages"][0]["content"]
        assert life.messages[0]["content"] == HOSTILE
        assert json.loads(life.messages[1]["tool_calls"][0]["function"]["arguments"]) == {"word": HOSTILE}
        assert outputs(life.messages) == {"c0": HOSTILE}


PERSONA = """\
from dsh.core.system_prompt import SystemPrompt

def apply(ctx, config, prompt: SystemPrompt):
    prompt.section("rules", 50, "Work in {{folder}}")
"""


async def test_fault11_an_unknown_name_of_a_declared_template_is_named_with_its_place(tmp_path: Path) -> None:
    async with MockLlmServer([strict("success")]) as server:
        async with living(tmp_path, server, "- {id: persona, name: ./persona.py}\n", {"persona.py": PERSONA}) as life:
            reason = await life.prompt("go")
            assert reason["kind"] == "error" and server.requests == []
            assert "{{folder}}" in reason["error"]["message"] and 'section "rules"' in reason["error"]["message"]
        async with living(tmp_path, server) as life:
            assert await life.prompt("once more") == {"kind": "completed"}
            assert [message["content"] for message in life.messages] == ["go", "once more"]


ODD = """\
import asyncio
import datetime
from dsh.core.tools import Tools, ToolDefinition, Output, define_tool, text

ODD = {"set": {1}, "datetime": datetime.datetime(2024, 1, 1), "bytes": b"\\xff", "nan": float("nan"), "object": object}

def apply(ctx, config, tools: Tools):
    @tools.tool
    async def raises() -> str:
        "Raise."
        raise ValueError("the shelf is empty")

    @tools.tool
    async def cancels() -> str:
        "Raise a cancellation itself."
        raise asyncio.CancelledError("mine")

    @tools.tool
    async def leaves() -> str:
        "Exit."
        raise SystemExit(3)

    @tools.tool
    async def nothing() -> None:
        "Return nothing."

    @tools.tool
    async def empty() -> str:
        "Return no text."
        return ""

    @tools.tool
    async def fine() -> str:
        "Work."
        return "fine"

    for kind, value in ODD.items():
        async def execute(args, run, value=value):
            return value
        output = Output(schema={}, render=lambda args, value: [text(str(value))])
        tools.register(define_tool(f"odd_{kind}", "Return something odd.", {}, output, execute))
"""
ODD_NAMES = (
    "raises", "cancels", "leaves", "nothing", "empty", "fine",
    "odd_set", "odd_datetime", "odd_bytes", "odd_nan", "odd_object",
)  # fmt: skip


async def test_fault12_whatever_a_tool_does_its_call_has_one_result_and_its_neighbours_run(tmp_path: Path) -> None:
    script = [calls(*[(name, {}) for name in ODD_NAMES]), "success"]
    async with fault(tmp_path, script, "- {id: odd, name: ./odd.py}\n", {"odd.py": ODD}) as life:
        assert await life.prompt("go") == {"kind": "completed"}
        said = dict(zip(ODD_NAMES, outputs(life.messages).values(), strict=True))
        assert "the shelf is empty" in said["raises"] and said["fine"] == "fine"
        assert said["nothing"] and said["empty"], "an empty result is said to be empty"
        failed = {name: life.results()[f"c{at}"][0] for at, name in enumerate(ODD_NAMES)}
        for name in ("raises", "cancels", "leaves", "odd_set", "odd_datetime", "odd_bytes", "odd_nan", "odd_object"):
            assert failed[name]["message"]["content"][0]["isError"], name
        for text in said.values():
            assert "Traceback" not in text and str(tmp_path) not in text and "/dsh/" not in text


async def test_fault13_text_that_looks_like_a_call_stays_text(tmp_path: Path) -> None:
    like = '<tool_call>{"name": "echo", "arguments": {"word": "x"}}</tool_call> [TOOL_CALLS] ```tool_code\necho()```'
    thought = '<tool_call>{"name": "echo"}</tool_call>'
    script = [{"text": like, "reasoning": thought}]
    async with fault(tmp_path, script, ECHO_ROW, {"echo.py": ECHO}) as life:
        assert await life.prompt("go") == {"kind": "completed"}
        assert life.of_type("tool/call") == []
        (message,) = life.of_type("assistant/message")
        assert [block["type"] for block in message["message"]["content"]] == ["reasoning", "text"]
        assert message["message"]["content"][1]["text"] == like


BATCH = """\
import asyncio
from dsh.core.tools import Output, Tools, ToolsPreExecute, define_tool, text
from dsh.core.tool_events import Deny

LOG = []

def apply(ctx, config, tools: Tools):
    fast_done = asyncio.Event()
    shelf = {"x": "old"}

    async def slow(args, run):
        await fast_done.wait()
        return "slow"

    async def fast(args, run):
        fast_done.set()
        return "fast"

    async def write(args, run):
        for _ in range(5):
            await asyncio.sleep(0)
        shelf["x"] = args["value"]
        return "written"

    async def read(args, run):
        return shelf["x"]

    plain = Output(schema={"type": "string"}, render=lambda args, value: [text(value)])
    value = {"value": {"type": "string"}}
    tools.register(define_tool("slow", "Slow.", {}, plain, slow, is_concurrency_safe=True))
    tools.register(define_tool("fast", "Fast.", {}, plain, fast, is_concurrency_safe=True))
    tools.register(define_tool("denied", "Denied.", {}, plain, fast, is_concurrency_safe=True))
    tools.register(define_tool("read", "Read.", {}, plain, read, is_concurrency_safe=True))
    tools.register(define_tool("write", "Write.", value, plain, write))

    async def policy(event, next):
        return Deny("not that one") if event.exec.name == "denied" else await next()
    ctx.on(ToolsPreExecute, policy)
"""
BATCH_ROW = "- {id: batch, name: ./batch.py}\n"
BATCH_CALLS = (
    ("slow", {}), ("denied", {}), ("fast", {}), ("read", {}), ("write", {"value": "new"}), ("read", {}),
)  # fmt: skip


async def test_fault14_results_come_in_call_order_and_exclusive_calls_are_barriers(tmp_path: Path) -> None:
    async with fault(tmp_path, [calls(*BATCH_CALLS), "success"], BATCH_ROW, {"batch.py": BATCH}) as life:
        assert await life.prompt("go") == {"kind": "completed"}
        said = outputs(life.messages)
        assert list(said) == ["c0", "c1", "c2", "c3", "c4", "c5"]
        assert said == {"c0": "slow", "c1": said["c1"], "c2": "fast", "c3": "old", "c4": "written", "c5": "new"}
        assert "not that one" in said["c1"]


async def test_fault14_two_runs_with_equal_answers_send_equal_bytes(tmp_path: Path) -> None:
    bodies = []
    for run in ("one", "two"):
        (tmp_path / run).mkdir()
        async with MockLlmServer([strict(calls(*BATCH_CALLS)), strict("success"), strict("success")]) as server:
            async with living(tmp_path / run, server, BATCH_ROW, {"batch.py": BATCH}) as life:
                await life.prompt("go")
                await life.prompt("next")
            bodies.append([request.raw for request in server.requests])
    assert bodies[0] == bodies[1] and len(bodies[0]) == 3


async def test_fault09_after_truncated_arguments_the_session_goes_on_and_resumes(tmp_path: Path) -> None:
    def cut(finish: str) -> dict[str, Any]:
        return {"toolCalls": [{"name": "echo", "arguments": '{"word": "a', "id": "c0"}], "finish": finish}

    async with fault(tmp_path, [cut("length")], ECHO_ROW, {"echo.py": ECHO}) as life:
        assert await life.prompt("one") == {"kind": "max-tokens"}
        assert life.of_type("tool/call") == []
        (message,) = life.of_type("assistant/message")
        assert message["message"]["content"] == [], "half a call is dropped from the reply"
    (tmp_path / "two").mkdir()
    async with fault(tmp_path / "two", [cut("tool_calls"), "success"], ECHO_ROW, {"echo.py": ECHO}) as life:
        assert await life.prompt("two") == {"kind": "completed"}
        ((result,),) = life.results().values()
        assert result["error"]["code"] == "INVALID_ARGS"


async def test_fault08_a_call_without_arguments_survives_a_resume(tmp_path: Path) -> None:
    for at, empty in enumerate(("", "null", " \n")):
        folder = tmp_path / str(at)
        folder.mkdir()
        script = [{"toolCalls": [{"name": "echo", "arguments": empty, "id": "c0"}]}, "success"]
        async with fault(folder, script, ECHO_ROW, {"echo.py": ECHO}) as life:
            assert await life.prompt("go") == {"kind": "completed"}
            assert outputs(life.messages) == {"c0": "said nothing"}
            assert life.messages[1]["tool_calls"][0]["function"]["arguments"] == "{}"


async def test_fault05_reasoning_goes_back_byte_for_byte_also_after_a_resume(tmp_path: Path) -> None:
    thought = "I look first 🤔\n  then\u2028 I answer\t"

    def demanding(reply: Any) -> Any:
        def entry(body: Any) -> Any:
            given = [m.get("reasoning_content") for m in body["messages"] if m["role"] == "assistant"]
            if given[:1] not in ([], [thought]) or None in given:
                return {"status": 400, "error": {"message": "The `reasoning_content` must be passed back to the API."}}
            return strict(reply)

        return entry

    first = {"reasoning": thought, **calls(("echo", {}))}
    async with MockLlmServer([demanding(each) for each in (first, "success", "success", "success")]) as server:
        async with living(tmp_path, server, ECHO_ROW, {"echo.py": ECHO}) as life:
            assert await life.prompt("go") == {"kind": "completed"}
            assert await life.prompt("and now?") == {"kind": "completed"}
        async with living(tmp_path, server, ECHO_ROW) as life:
            assert await life.prompt("once more") == {"kind": "completed"}
        assert life.messages[1]["reasoning_content"] == thought
