"""A prompt whose log cannot be written: it is refused, and so it must not run later."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from dsh.core.session_store import SessionAppended

from ..prompt_trace import PromptTrace

if TYPE_CHECKING:
    from dsh.core.agent import Agent
    from dsh.core.session_event import SessionEvent

    from .routes import Api


async def take_back_unwritten(api: Api, agent: Agent, message_id: str, before: int) -> bool:
    """Take a message that could not be written out of the inbox; False when a step of the agent has it already.

    before: the log's length before the message. A turn that has claimed it and waits for the same log is given the
    time to fail and to give it back.
    """
    session = agent.session
    trace = PromptTrace(message_id)
    decided: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def see(event: SessionEvent) -> None:
        trace.event(event.type, event.data)
        if trace.state == "taken" and event.type == "step/start" and not decided.done():
            decided.set_result(False)

    def appended(happened: SessionAppended) -> None:
        if happened.session is session:
            see(happened.event)
            judge()

    def judge() -> None:
        if trace.state != "taken" and not decided.done():
            decided.set_result(True)

    for seq in range(before, session.seq):
        see(session.events[seq])
    judge()
    stop = api.ctx.on(SessionAppended, appended)
    try:
        free = await decided
    finally:
        stop()
    if free:
        agent.inbox.remove(message_id)
    return free
