"""What a person can do about a turn that failed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

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


def error_advice(error: Mapping[str, Any]) -> str | None:
    """What to do about the error that ended a turn; None when its own message says it, or nobody knows."""
    message = str(error.get("message", ""))
    return None if "`dsh " in message else _ADVICE.get(str(error.get("code")))


def end_advice(name: str) -> str | None:
    """What to do about a turn that ended short of its goal."""
    return _ENDS.get(name)
