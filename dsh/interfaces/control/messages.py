"""Requests and answers of the control API, free of any wire."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import field
from typing import Any
from urllib.parse import parse_qs, unquote_to_bytes

from dsh.cordis.jsonio import JsonDecodeError, decode, encode
from dsh.cordis.records import record, struct


class ApiError(Exception):
    """An answer that is no success: HTTP status, a code for programs, a sentence, and details."""

    def __init__(self, status: int, code: str, message: str, details: Any = None, **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.details = details
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}

    def body(self) -> bytes:
        """The JSON text of the answer."""
        return encode({"error": {"code": self.code, "message": self.message, "details": self.details}})


@struct
class Request:
    """One request. segments: the decoded parts of the path; query: all values of each name."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes = b""
    segments: tuple[str, ...] = ()
    query: Mapping[str, list[str]] = field(default_factory=dict)

    def parse_target(self) -> None:
        """Fill `segments` and `query` from `target`. Raises ApiError for a target no resource can have."""
        path, _, query = self.target.partition("?")
        if not path.startswith("/"):
            raise ApiError(400, "BAD_TARGET", "the request target must be a path")
        parts = path[1:].split("/")
        if any(part in ("", ".", "..") for part in parts):
            raise ApiError(404, "NOT_FOUND", f"there is nothing at {path}")
        try:
            self.segments = tuple(unquote_to_bytes(part).decode("utf-8") for part in parts)
            self.query = parse_qs(query, keep_blank_values=True, errors="strict")
        except ValueError:
            raise ApiError(400, "BAD_TARGET", "the request target is no UTF-8 text") from None

    def json(self) -> dict[str, Any]:
        """The body as an object; an empty body is an empty one. Raises ApiError."""
        if not self.body:
            return {}
        try:
            value = decode(self.body)
        except JsonDecodeError as error:
            raise ApiError(400, "BAD_JSON", f"the body is no JSON: {error}") from None
        if not isinstance(value, dict):
            raise ApiError(400, "BAD_REQUEST", "the body must be a JSON object")
        return value

    def value(self, name: str) -> str | None:
        """The first value of a query name."""
        values = self.query.get(name)
        return values[0] if values else None

    def only_query(self, *known: str) -> None:
        """Raise ApiError when the query holds a name that would be ignored."""
        _refuse_unknown("query name", self.query, known)

    def number(self, name: str, default: int, largest: int = 2**53 - 1) -> int:
        """A query value as an integer from 0 to `largest`. Raises ApiError."""
        text = self.value(name)
        if text is None:
            return default
        if not (text.isascii() and text.isdigit() and len(text) < 17 and int(text) <= largest):
            raise ApiError(400, "BAD_REQUEST", f"{name} must be a whole number from 0 to {largest}, not {text!r}")
        return int(text)


@record
class Response:
    """A whole answer. body: JSON data unless `content_type` says otherwise."""

    status: int = 200
    body: Any = None
    content_type: str = "application/json"

    def encoded(self) -> bytes:
        """The bytes of the body."""
        return self.body if isinstance(self.body, bytes) else encode(self.body)


@record
class EventStream:
    """An answer that goes on: chunks of server-sent events. leave: called when the client is gone, ends `chunks`."""

    chunks: AsyncIterator[bytes]
    leave: Callable[[], None]


Answer = Response | EventStream


def text_field(body: Mapping[str, Any], name: str, *, required: bool = False) -> str | None:
    """A text of a request body; None when absent. Raises ApiError."""
    value = body.get(name)
    if value is None and not required:
        return None
    if not isinstance(value, str) or not value:
        raise ApiError(400, "BAD_REQUEST", f"{name} must be a text that is not empty")
    return value


def only_fields(body: Mapping[str, Any], *known: str) -> None:
    """Raise ApiError when a request body holds a field that would be ignored."""
    _refuse_unknown("field", body, known)


def _refuse_unknown(what: str, given: Iterable[str], known: tuple[str, ...]) -> None:
    unknown = [name for name in given if name not in known]
    if unknown:
        raise ApiError(400, "BAD_REQUEST", f"unknown {what} {unknown[0]!r}; known: {', '.join(known) or '(none)'}")
