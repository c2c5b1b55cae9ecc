"""`spill-policy`: a tool result longer than the cap is kept whole in a file; the model reads its head, its tail and
where the rest is.

Without it one result of some megabytes would go into every request from then on. Results of `read` pass: it has limits
of its own, and reading the file must not spill it again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from dsh.cordis import ConfigModel, Context, describe_error, field
from dsh.core.tool_events import UNSET, Accept, ResultDecision, ToolsPostExecute
from dsh.core.tools import ToolRun, text

from .spill_store import Spilled, SpillSource, SpillStore
from .text import valid_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dsh.llm.types import Block

PASSING = frozenset({"read"})


class Config(ConfigModel):
    """How long a result may be."""

    max_inline_bytes: int | None = field(
        None, min=1, live=True, unit="bytes", description="Longest result that a model reads whole; no cap if unset"
    )


def apply(ctx: Context, config: Config, store: SpillStore) -> None:
    """Judge every result last: what others made of it is what the model would read."""

    async def judge(event: ToolsPostExecute, next: Callable[[], Awaitable[ResultDecision]]) -> ResultDecision:
        decision = await next()
        run, cap = event.exec, config.max_inline_bytes
        if cap is None or run.parent is not None or run.agent is None or run.name in PASSING:
            return decision
        if not isinstance(decision, Accept) or decision.value is not UNSET:
            return decision
        content = event.result.content if decision.content is None else decision.content
        whole = _text(content)
        if whole is None or len(whole) * 4 <= cap or len(data := valid_text(whole).encode()) <= cap:
            return decision
        try:
            spilled = await store.save_text(_source(run), f"{run.name}.txt", whole)
        except Exception as error:
            ctx.logger.warning("a result of %s could not be kept in a file: %s", run.name, describe_error(error))
            return decision
        short = preview(data, cap, spilled)
        if short is None:
            return decision
        return Accept(content=[text(short)], additional_contexts=decision.additional_contexts)

    ctx.on(ToolsPostExecute, judge, prepend=True)


def preview(data: bytes, cap: int, spilled: Spilled) -> str | None:
    """Head and tail of a text of UTF-8 bytes, and where the whole of it is, in at most `cap` bytes; None if that
    cannot be."""
    notice = _notice(len(data), spilled)  # with the largest number it can hold
    room = cap - len(notice.encode())
    if room < 1:
        return None
    head = data[: (room + 1) // 2].decode("utf-8", "ignore")
    tail = _from_character(data[len(data) - room // 2 :]).decode() if room > 1 else ""
    omitted = len(data) - len(head.encode()) - len(tail.encode())
    return f"{head}{tail}{_notice(omitted, spilled)}"


def _notice(omitted: int, spilled: Spilled) -> str:
    where = f"Full formatted result stored at: {spilled.locator}. {spilled.hint}"
    return f"\n\n(Omitted {omitted} bytes. {where})"


def _from_character(data: bytes) -> bytes:
    """`data` without the rest of a character whose beginning is gone."""
    start = 0
    while start < min(3, len(data)) and data[start] & 0xC0 == 0x80:
        start += 1
    return data[start:]


def _text(content: Sequence[Block]) -> str | None:
    """The text of a result, None if it holds anything else."""
    if any(block["type"] != "text" for block in content):
        return None
    return "".join(block["text"] for block in content)


def _source(run: ToolRun) -> SpillSource:
    agent = run.agent
    return SpillSource(agent.session.id, run.name, run.call_id, "result")
