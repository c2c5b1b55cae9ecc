"""The scripted model server in a process of its own: ``python benchmarks/_model.py SCRIPT.json [FOLDER]``.

Prints its base URL, then for each request the monotonic time (s) at which it was read and the size of its body, one a
line. The script is repeated for ever; nothing waits between the pieces of an answer. Bodies are stored in FOLDER as
``1.json``, ``2.json`` and so on.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dsh.models.mock_server import MockLlmServer, MockRequest, load_script

FOLDER = Path(sys.argv[2]) if len(sys.argv) > 2 else None


def arrived(kind: str, request: MockRequest) -> None:
    """Tell that a request was read."""
    if kind == "request":
        print(time.monotonic(), len(request.raw), flush=True)
        if FOLDER is not None:
            (FOLDER / f"{request.attempt}.json").write_bytes(request.raw)
        request.raw, request.body = b"", None  # a thousand bodies of a long session are not kept


async def main() -> None:
    """Serve until killed."""
    entries: Iterator[Any] = itertools.cycle(load_script(Path(sys.argv[1])))
    async with MockLlmServer([lambda body: next(entries)], repeat_last=True, on_record=arrived) as server:
        print(server.url, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
