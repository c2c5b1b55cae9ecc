"""What a bare tool call and a prompt assembly cost.

    python benchmarks/tool_pipeline.py [rounds]

A call without any listener goes through all stages and is compared with an asyncio task that runs the same body; an
assembly gathers 20 tools and 20 sections without I/O and is compared with building the same lists by hand. Prints the
median of each and the ratio, and exits 1 past 150 µs a call or 300 µs an assembly.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from dsh.cordis import Context
from dsh.core.system_prompt import AssembleContext, SystemPrompt, render_prompt
from dsh.core.tools import Output, ToolInput, ToolRun, Tools, define_tool, text

CALL_BUDGET, ASSEMBLY_BUDGET = 150.0, 300.0
ARGUMENTS = {"path": "src/main.py", "limit": 20, "flags": ["a", "b"]}


async def body(args: Any, exec: ToolRun) -> str:
    """Does next to nothing, after one turn of the loop."""
    await asyncio.sleep(0)
    return str(args["path"])


TOOL = define_tool(
    "bench",
    "Measured",
    {
        "path": {"type": "string", "required": True},
        "limit": {"type": "integer"},
        "flags": {"type": "array", "items": {"type": "string"}},
    },
    Output({"type": "string"}, lambda args, value: [text(value)]),
    body,
)


async def median(rounds: int, once: Callable[[], Awaitable[object]]) -> float:
    """Microseconds of one call, the best of five medians."""
    medians = []
    for _ in range(5):
        times = []
        for _ in range(rounds):
            started = time.perf_counter()
            await once()
            times.append((time.perf_counter() - started) * 1e6)
        medians.append(statistics.median(times))
    return min(medians)


async def main(rounds: int) -> int:
    """Measure and print."""
    async with Context() as root:
        root.plugin(SystemPrompt)
        root.plugin(Tools)
        await root.settle()
        tools, prompt = root[Tools], root[SystemPrompt]
        tools.register(TOOL)
        agent = object()

        async def bare() -> None:
            await asyncio.get_running_loop().create_task(body(ARGUMENTS, None))  # type: ignore[arg-type]

        async def through_the_stages() -> None:
            await tools.execute(ToolInput("c1", "bench", ARGUMENTS, agent=agent))

        theirs, ours = await median(rounds, bare), await median(rounds, through_the_stages)
        print(f"tool call: {ours:.1f} µs, bare task {theirs:.1f} µs, ratio {ours / theirs:.1f}")

        for index in range(19):
            tools.register(define_tool(f"tool_{index}", "d", {}, TOOL.output, body))
        for index in range(20):
            prompt.section(f"section-{index}", index, f"Text {index} in {{{{cwd}}}}.")
        prompt.variable("cwd", lambda context: "/work")
        context = AssembleContext(scope=agent, agent=agent)

        async def by_hand() -> None:
            sorted(tools.schemas(), key=lambda schema: schema["name"])
            "\n\n".join(f"Text {index} in /work." for index in range(20))

        async def assembled() -> None:
            await prompt.assemble(context)

        async def rendered() -> None:
            render_prompt(await prompt.assemble(context))

        hand, assembly, text_too = [await median(rounds, each) for each in (by_hand, assembled, rendered)]
        print(
            f"assembly: {assembly:.1f} µs, rendered {text_too:.1f} µs, by hand {hand:.1f} µs, "
            f"ratio {text_too / hand:.1f}"
        )
    return int(ours > CALL_BUDGET or assembly > ASSEMBLY_BUDGET)


if __name__ == "__main__":
    sys.exit(asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)))
