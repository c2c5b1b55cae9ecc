"""One session on a pseudo-terminal from its first line to its end, its screens kept as text in `snapshots`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dsh.models.mock_server import MockLlmServer
from tests.cli.compositions import SHELL, SPINE
from tests.cli.kit import Place
from tests.interfaces.control_kit import begun, go
from tests.interfaces.pictures import check
from tests.interfaces.terminal import CTRL_C, CTRL_D, console

COMPOSITION = (
    SPINE
    + """\
- {id: llm-deepseek, name: dsh-llm-deepseek}
- {id: default-model, name: dsh-agent-default-model, config: {provider: deepseek-official, model: deepseek-flash}}
- {id: persistence, name: dsh-session-persistence-jsonl, config: {root: !!js dshHomePath('sessions')}}
- {id: settings, name: dsh-settings-file}
"""
    + SHELL
)

COMMAND = {"command": "touch begun; until [ -e go ]; do sleep 0.02; done; rm go; echo 3 passed", "description": "Tests"}

ANSWER = """\
All **three** tests pass:

- `test_one` is quick
- `test_two` waits for a socket

```python
assert answer == 42
```

Nothing else to do."""


def partial(text: str) -> dict[str, Any]:
    """A reply that stops in the middle and leaves the connection open."""
    event = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "deepseek-flash"}
    return {
        "chunks": [
            {**event, "choices": [{"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}]}
        ],
        "ending": "stall",
    }


async def test_a_session_from_its_first_line_to_its_end(tmp_path: Path) -> None:
    place = Place.make(tmp_path, LANG="C.UTF-8")
    path = place.write("cordis.yml", COMPOSITION)
    script = [
        {
            "reasoning": "I should run the tests first.",
            "text": "I run the tests.",
            "toolCalls": [{"name": "bash", "arguments": json.dumps(COMMAND)}],
        },
        {"text": ANSWER},
        partial("Once upon a time there was a daemon that"),
    ]
    async with MockLlmServer(script, chunk_size=6, delay_ms=5) as server:
        place.model(server.url)
        async with console(place, "cordis.yml", rows=30, columns=110) as terminal:
            # the first line, then the prompt
            await terminal.shows("cordis.yml")
            terminal.type("Do the te")  # typed ahead: kept for the prompt
            await terminal.stands("> Do the te")
            check("session-1-started", terminal.picture())

            # a tool call, and a steer while it runs
            terminal.type("sts pass?\r")
            await begun(place)
            terminal.type("!Only say whether they pass\r")
            await terminal.stands("steers: Only say")
            terminal.type("Thank you\r")
            await terminal.stands("waits: Thank you")
            check("session-2-steer-during-a-tool-call", terminal.picture())
            go(place)
            await terminal.stands("Nothing else to do.")
            steered = server.bodies[1]["messages"]
            assert steered[-1]["content"] == "Only say whether they pass"

            # the next prompt's answer streams, and is cancelled
            await terminal.stands("there was a daemon that")
            check("session-3-streaming", terminal.picture())
            terminal.type(CTRL_C)
            await terminal.stands("turn ended: aborted")
            check("session-4-cancelled", terminal.picture())

            # an edit of the file is noticed
            path.write_text(COMPOSITION.replace("maxParallelToolCalls: 10", "maxParallelToolCalls: 3"), "utf-8")
            await terminal.stands("config applied: agent-loop")
            path.write_text(COMPOSITION.replace("maxParallelToolCalls: 10", "maxParallelToolCalls: few"), "utf-8")
            await terminal.stands("what ran before runs on")
            check("session-5-edited", terminal.picture())

            # another size of the window
            terminal.type("half a line")
            await terminal.stands("> half a line")
            terminal.resize(20, 50)
            await terminal.until(lambda: terminal.picture().endswith("(0%)"), "not drawn for the new width")
            terminal.type(", and the rest")
            await terminal.stands("> half a line, and the rest")
            check("session-6-resized", "\n".join(terminal.visible()))

            # a clean exit
            for _ in range(len("half a line, and the rest")):
                terminal.type("\x7f")
            terminal.type(CTRL_D)
            assert await terminal.ends() == 0
            check("session-7-ended", terminal.picture())


async def test_the_first_line_is_there_within_half_a_second(tmp_path: Path) -> None:
    """The best of some starts: what else the machine does in that moment is not the console's."""
    place = Place.make(tmp_path)
    place.write("cordis.yml", COMPOSITION)
    best = 60.0
    for _ in range(8):
        async with console(place, "cordis.yml") as terminal:
            await terminal.until(lambda: terminal.first_output is not None, "nothing was written")
            best = min(best, terminal.first_output or best)
        if best < 0.5:
            break
    assert best < 0.5
