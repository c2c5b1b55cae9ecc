"""A home, a workspace and a composition for trials with real `dsh` processes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from tests.cli.compositions import SHELL
from tests.cli.kit import Place
from tests.fire.judge import Rows, strict_rows

CORDIS = (
    """\
- id: agent-loop
  name: dsh-agent-loop
  config:
    agents: %(agents)s
- {id: llm, name: dsh-llm}
- {id: session, name: dsh-session}
- {id: system-prompt, name: dsh-system-prompt}
- {id: tools, name: dsh-tools}
- {id: agent, name: dsh-agent}
- {id: settings, name: dsh-settings-file}
- {id: credentials, name: dsh-credentials-local}
- id: llm-deepseek
  name: dsh-llm-deepseek
- {id: llm-retry, name: dsh-llm-retry}
- {id: default-model, name: dsh-agent-default-model, config: {provider: deepseek-official, model: deepseek-flash}}
- {id: persistence, name: dsh-session-persistence-jsonl, config: {root: !!js dshHomePath('sessions')%(persistence)s}}
- {id: checkpoints, name: dsh-session-checkpoint-policy, config: {minLeaseMs: 100}}
"""
    + SHELL
)


def composition(place: Place, *, agents: str = "[]", persistence: str = "", rows: str = "") -> None:
    """Write `cordis.yml`. persistence: more keys of that row, ``, key: value``; rows: more lines."""
    place.write("cordis.yml", CORDIS % {"agents": agents, "persistence": persistence} + rows)


def log_path(place: Place, session_id: str) -> Path:
    """Where a session's log is."""
    (path,) = place.home.glob(f"sessions/*/{session_id}/session.jsonl*")
    return path


def stored(place: Place, session_id: str) -> Rows:
    """A session's log, read strictly."""
    return strict_rows(log_path(place, session_id))


def bash(*commands: str) -> Any:
    """A reply that runs commands, in parallel as far as the row allows."""
    calls = [{"name": "bash", "arguments": json.dumps({"command": c, "description": "fire"})} for c in commands]
    return {"toolCalls": calls}


async def until(condition: Any, what: str, seconds: float = 30.0) -> None:
    """Wait for a sign from another process."""
    try:
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"{what}: not within {seconds:g} s") from None
