"""What a provider's error means: from status, body and headers to a failure with a stable code."""

from __future__ import annotations

import email.utils
import re
import time
from collections.abc import Mapping
from typing import Any

from dsh.cordis.jsonio import JsonDecodeError, decode
from dsh.llm.failure import LlmError, LlmFailure

MAX_BODY_BYTES = 64 * 1024
_MAX_MESSAGE = 2000

_SUBJECT = r"\b(?:prompt|input|request|messages?)\b"
_OVERFLOW = re.compile(
    r"context[ _-](?:length|window)[ _-](?:exceeded|overflow|limit[ _-]exceeded)"
    r"|max(?:imum)?[ _-]context[ _-](?:length|window)"
    rf"|{_SUBJECT}.{{0,40}}\btoo (?:large|long) for (?:the |this )?model\b"
    r"|\bprompt is too long: \d+ tokens"
    rf"|{_SUBJECT}.{{0,80}}(?:\bexceed|\boverflow|\blarger than\b).{{0,60}}\bcontext\b"
    r"|exceed_context_size_error",
    re.IGNORECASE | re.DOTALL,
)
_QUOTA = re.compile(
    r"insufficient[ _-](?:\w+[ _-])?(?:quota|balance|credits?)\b"
    r"|\b(?:quota|usage[ _-]limit)(?:[ _-](?:has[ _-]been|is|was))?[ _-](?:exceeded|exhausted|reached)\b"
    r"|\bexceeded[ _-](?:your[ _-]|the[ _-])?(?:current[ _-])?quota\b"
    r"|\b(?:balance|credits?)(?:[ _-](?:has[ _-]been|have[ _-]been|is|are))?[ _-](?:exhausted|depleted)\b"
    r"|\bout of (?:credits?|budget)\b",
    re.IGNORECASE,
)
_IN_BAND = (
    ("RATE_LIMIT", re.compile(r"rate[ _-]?limit|too many requests", re.IGNORECASE)),
    ("AUTH", re.compile(r"authentication|permission|unauthorized|invalid[ _-]api[ _-]key", re.IGNORECASE)),
    ("INVALID_REQUEST", re.compile(r"invalid[ _-](?:request|parameter|argument)", re.IGNORECASE)),
)


class ProviderBody(Exception):
    """The raw error body, kept as the cause of a failure: for a log, never for a message."""


def classify_http_error(
    status: int, body: bytes, headers: Mapping[str, str], *, where: str, secret: str | None = None
) -> LlmError:
    """The error for a response that is no success.

    `where` names the peer; `secret` (the key sent) is blotted out should the peer echo it.
    """
    text = _blot(body[:MAX_BODY_BYTES].decode("utf-8", "replace"), secret)
    error = _error_object(text)
    haystack = _haystack(error) if error is not None else text
    message = _message(error) or f"{where} answered HTTP {status}"
    failure = LlmFailure(
        message=message,
        code=_code(status, haystack),
        status=status if 100 <= status <= 599 else None,
        provider_retry_after_ms=retry_after_ms(headers.get("retry-after")),
        request_id=headers.get("x-request-id") or None,
    )
    raised = LlmError(failure)
    if text:
        raised.__cause__ = ProviderBody(text)
    return raised


def classify_in_band_error(
    error: object, headers: Mapping[str, str], *, where: str, secret: str | None = None
) -> LlmError:
    """The error for an error object delivered inside a successful response, coded as its HTTP twin would be."""
    fields: Mapping[str, Any] = error if isinstance(error, Mapping) else {"message": error}
    haystack = _haystack(fields)
    status = _status(fields)
    if status is not None:
        code = _code(status, haystack)
    elif _QUOTA.search(haystack):
        code = "QUOTA"
    elif _OVERFLOW.search(haystack):
        code = "CONTEXT_WINDOW_EXCEEDED"
    else:
        # An unexplained failure halfway through a reply is the server's.
        code = next((code for code, pattern in _IN_BAND if pattern.search(haystack)), "SERVER")
    message = _blot(_message(fields) or f"{where} reported an error inside the stream", secret)
    return LlmError.of(code, message, status=status, request_id=headers.get("x-request-id") or None)


def retry_after_ms(value: str | None, now: float | None = None) -> float | None:
    """Milliseconds named by a ``Retry-After`` header (seconds or an HTTP date); None unless finite and positive."""
    text = (value or "").strip()
    if text.isascii() and text.isdigit():
        wait = float(text) * 1000
    else:
        try:
            when = email.utils.parsedate_to_datetime(text)
        except (TypeError, ValueError):
            return None
        wait = (when.timestamp() - (time.time() if now is None else now)) * 1000
    return wait if 0 < wait < float("inf") else None


def _code(status: int, haystack: str) -> str:
    if status == 402 or _QUOTA.search(haystack):
        return "QUOTA"
    if status in (401, 403):
        return "AUTH"
    if status == 429:
        return "RATE_LIMIT"
    if status == 408:
        return "TIMEOUT"
    if status >= 500:
        return "SERVER"
    if status in (400, 413, 422):
        return "CONTEXT_WINDOW_EXCEEDED" if _OVERFLOW.search(haystack) else "INVALID_REQUEST"
    return f"HTTP_{status}"


def _error_object(text: str) -> Mapping[str, Any] | None:
    try:
        value = decode(text)
    except JsonDecodeError:
        return None
    if not isinstance(value, Mapping):
        return None
    error = value.get("error", value)
    return error if isinstance(error, Mapping) else {"message": error}


def _haystack(error: Mapping[str, Any]) -> str:
    return " ".join(str(error[key]) for key in ("code", "type", "message") if error.get(key) is not None)


def _message(error: Mapping[str, Any] | None) -> str | None:
    text = None if error is None else error.get("message")
    return text.strip()[:_MAX_MESSAGE] or None if isinstance(text, str) else None


def _status(error: Mapping[str, Any]) -> int | None:
    for key in ("status", "status_code", "code"):
        value = error.get(key)
        if isinstance(value, str) and value.isascii() and value.isdigit():
            value = int(value)
        if type(value) is int and 400 <= value <= 599:
            return value
    return None


def _blot(text: str, secret: str | None) -> str:
    return text.replace(secret, "***") if secret else text
