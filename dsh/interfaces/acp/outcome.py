"""What a prompt is answered with, once the agent is quiet and everything it said is delivered."""

from __future__ import annotations

from dsh.cordis import describe_error
from dsh.cordis.errors import error_chain
from dsh.llm.failure import LlmError

from .checks import internal_error
from .session import Prompt

REFUSALS = frozenset({"REFUSAL", "CONTENT_FILTER"})
"""Failure codes by which a model declines to answer."""


def stop_reason(prompt: Prompt, delivery: Exception | None, *, editor: bool) -> str:
    """The stop reason of a prompt. Raises the error that is answered instead.

    An explicit cancel comes first, then a failed delivery, then a failure of the agent, then the last turn's end.
    """
    if prompt.cancelled:
        return "cancelled"
    if delivery is not None:
        raise internal_error(f"assistant output delivery failed: {describe_error(delivery)}")
    if prompt.error is not None:
        failure = prompt.error.failure if isinstance(prompt.error, LlmError) else None
        if editor and failure is not None and failure.code in REFUSALS:
            return "refusal"
        raise internal_error(f"turn failed: {error_chain(prompt.error) if failure is None else failure.message}")
    kind = None if prompt.end is None else prompt.end["kind"]
    if kind == "max-tokens" and editor:
        return "max_tokens"
    if kind == "aborted" and prompt.end is not None and prompt.end.get("reason", {}).get("kind") == "disposed":
        return "cancelled"
    return "end_turn" if kind in ("completed", "max-tokens", "blocked", "aborted") else "cancelled"
