"""The same scripted model, home and workspace for the command line and for programs, and their logs side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dsh.models.mock_server import MockLlmServer
from dsh.sdk import Harness
from dsh.sessions.log_file import read_log
from dsh.sessions.stored import list_stored
from tests.cli.kit import TIMEOUT, Place
from tests.conformance.comparison import differences
from tests.conformance.normalise import Normaliser

ROWS = """\
- {id: agent-loop, name: dsh-agent-loop, config: {agents: [{id: main}]}}
- {id: system-prompt, name: dsh-system-prompt, config: {persona: "You work in {{cwd}}."}}
- {id: agent-default-model, name: dsh-agent-default-model, config: {provider: deepseek-official, model: deepseek-flash}}
- id: llm-deepseek
  name: dsh-llm-deepseek
  config:
    retryPolicy: {mode: normal, maxRetries: 2, backoff: {initialDelayMs: 1, maxDelayMs: 1, jitterRatio: 0}}
- {id: llm-demo, name: dsh-llm-demo}
- {id: llm-retry, name: dsh-llm-retry}
- {id: llm, name: dsh-llm}
- {id: session, name: dsh-session}
- {id: session-title, name: dsh-session-title, config: {fallbackMaxWords: 5, fallbackMaxBytes: 40, maxTitleBytes: 80}}
- {id: agent, name: dsh-agent}
- {id: tools, name: dsh-tools}
- {id: settings, name: dsh-settings-file}
- {id: invariants, name: dsh-invariants}
- {id: tool-bash, name: dsh-tool-bash, config: {allowParallel: true}}
- {id: fs, name: dsh-fs-local}
- {id: tool-fs, name: dsh-tool-fs}
- {id: subprocess, name: dsh-subprocess-local}
- {id: bash, name: dsh-bash-local, config: {graceMs: 300}}
- {id: shell-env, name: dsh-shell-env}
- {id: credentials, name: dsh-credentials-local}
- {id: persistence, name: dsh-session-persistence-jsonl, config: {root: !!js dshHomePath('sessions')}}
- {id: checkpoints, name: dsh-session-checkpoint-policy}
"""


def made(root: Path) -> Place:
    """A place with the composition above."""
    root.mkdir()
    place = Place.make(root)
    place.write("cordis.yml", ROWS)
    return place


def harness(place: Place, server: MockLlmServer | None = None, **more: Any) -> Harness:
    """The place's composition, run by a program."""
    model = {"DEEPSEEK_BASE_URL": server.url, "DEEPSEEK_API_KEY": "test-key"} if server is not None else {}
    given = {"home": place.home, "cwd": place.work, "env": model, **more}
    return Harness(given.pop("config", place.work / "cordis.yml"), **given)


def spawned(place: Place, server: MockLlmServer | None = None, **more: Any) -> Harness:
    """The same in a process of its own."""
    model = {"DEEPSEEK_BASE_URL": server.url, "DEEPSEEK_API_KEY": "test-key"} if server is not None else {}
    return Harness.spawn(place.work / "cordis.yml", **{"home": place.home, "cwd": place.work, "env": model, **more})


WAYS: dict[str, Callable[..., Harness]] = {"in process": harness, "spawned": spawned}


def call(name: str, arguments: str) -> dict[str, Any]:
    """A scripted tool call."""
    return {"toolCalls": [{"name": name, "arguments": arguments}]}


def log_of(place: Place, session_id: str) -> list[Any]:
    """The stored log of one session, normalised: ids, paths and times are placeholders."""
    entry = next(one for one in list_stored(str(place.home / "sessions")).sessions if one.id == session_id)
    stored = read_log(entry.path, entry.id)
    records = [{"type": "session", **entry.header.to_wire()}, *(event.to_wire() for event in stored.events)]
    words = Normaliser([session_id], cwd=str(place.work), aliases=[str(place.work.resolve())])
    return [_plain(record) for record in words.log(records, keep_seq=True)]


def _plain(record: Any) -> Any:
    data = record.get("data")
    if record.get("type") == "session/title" and isinstance(data, dict):
        data.pop("updatedAt", None)
    return record


def assert_equal_logs(one: list[Any], other: list[Any]) -> None:
    """Equal event by event; the differences otherwise."""
    found = list(differences(one, other))
    assert not found, "\n".join(found)
    assert len(one) > 5


async def until(found: Callable[[], Any]) -> None:
    """Wait for something that nobody tells."""
    async with asyncio.timeout(TIMEOUT):
        while not found():
            await asyncio.sleep(0.02)
