"""A model that says what it said in a recorded session."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsh.cordis import Context
from dsh.cordis.jsonio import encode_str
from dsh.core.session import Session
from dsh.llm.service import Llm

if TYPE_CHECKING:
    from dsh.models.replay import Replay

ROUTE = "recorded"


class RecordedModel:
    """Answers the first session that asks with the replies of a recorded one, in their order.

        run_plugin(plugin, model=RecordedModel(Path("greeting.jsonl")))

    `log` is a session log as JSON lines, such as `save_log` writes. A request past its end fails its turn;
    `assert_used_up` tells whether all of it was asked for.
    """

    provider = ROUTE
    model = ROUTE

    def __init__(self, log: Path | str) -> None:
        self._log = Path(log)
        self._replay: Replay | None = None

    @asynccontextmanager
    async def serve(self, root: Context) -> AsyncIterator[None]:
        """Answer the requests of `root`, which needs the service `llm`, while the block runs."""
        from dsh.models import replay

        raw = {"file": str(self._log), "childFiles": [], "providers": [{"id": ROUTE}]}

        def recorded_model(ctx: Context, config: Any, llm: Llm) -> None:
            self._replay = replay.mount(ctx, replay.Config.validate(raw), llm)

        await root.plugin(recorded_model)
        yield

    def assert_used_up(self) -> None:
        """Fail unless every recorded reply was asked for, and no other."""
        from dsh.models.replay_script import ReplayError

        try:
            if self._replay is not None:
                self._replay.assert_consumed()
        except ReplayError as error:
            raise AssertionError(str(error)) from None


def save_log(session: Session, log: Path | str) -> None:
    """Write the log of a session as JSON lines, to be played by `RecordedModel`."""
    rows = [{"type": "session", **session.header.to_wire()}, *(event.to_wire() for event in session.events)]
    Path(log).write_text("".join(encode_str(row) + "\n" for row in rows), "utf-8")
