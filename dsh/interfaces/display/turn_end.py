"""How a turn ended, when that was not as it should: in words, and what a person can do about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from .ink import DIM, RED, YELLOW

_ADVICE: Final = {
    "AUTH": "check the key with `dsh credentials`, and baseURL of the provider's row",
    "MISSING_CREDENTIAL": "store a key with `dsh credentials set NAME`",
    "INVALID_CREDENTIAL": "store another key with `dsh credentials set NAME`",
    "QUOTA": "the account has no credit left: top it up, or switch to another model",
    "RATE_LIMIT": "wait a moment and send the prompt again; retryPolicy of the provider's row says how patient to be",
    "TIMEOUT": "send the prompt again; timeouts stand in the provider's row",
    "TRANSPORT": "check the network and baseURL of the provider's row, then send the prompt again",
    "SERVER": "the provider failed: send the prompt again later",
    "STREAM_CLOSED": "the connection broke: send the prompt again",
    "EMPTY_RESPONSE": "send the prompt again, or switch to another model",
    "MALFORMED_RESPONSE": "check baseURL of the provider's row: something else may answer there",
    "CONTEXT_WINDOW_EXCEEDED": "the conversation is too long for the model: start a new session or take a larger one",
    "NO_ADAPTER": "mount a row that serves this provider, or name another provider",
    "UNKNOWN_MODEL": "see `dsh models` for the names",
    "NO_ROUTE": "name provider and model in the row agent-default-model",
}
_ENDS: Final = {
    "max-tokens": "the answer reached maxTokens: raise it, or ask to go on",
    "turn-limit": "the limit of steps was reached: raise it, or ask to go on",
}


Line = tuple[str, str]
"""An SGR style and the text of a line."""


def told_end(name: str, reason: Mapping[str, Any]) -> list[Line]:
    """The lines about the end of a turn, none for one that was completed. name: what `outcome.end_name` says."""
    if name == "completed":
        return []
    if name == "error":
        error = reason["error"]
        message = str(error["message"])
        lines = [(RED, f"{error['code']}: {message}")]
        advice = None if "`dsh " in message else _ADVICE.get(str(error["code"]))  # some say it themselves
    else:
        cause = reason.get("reason")
        why = cause.get("reason") if name == "aborted" and isinstance(cause, Mapping) else None
        lines = [(YELLOW, f"turn ended: {name}{f' ({why})' if why else ''}")]
        advice = _ENDS.get(name)
    return lines if advice is None else [*lines, (DIM, f"  {advice}")]
