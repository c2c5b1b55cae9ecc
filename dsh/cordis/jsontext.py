"""JSON text of any depth, with lone surrogates: the reader and the writer for what orjson refuses."""

from __future__ import annotations

import json
import re
from math import isfinite
from typing import Any, Final

import orjson


class JsonDecodeError(ValueError):
    """Text that is not JSON, or holds a number no double can carry; `position` is a character offset."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(f"{message} at character {position}")
        self.position = position


_SURROGATE = re.compile("[\ud800-\udfff]")


def encode_deep(root: Any) -> str:
    """Compact JSON of a frozen value; lone surrogates become `\\udXXX` escapes."""
    out: list[str] = []
    pending: list[Any] = [(root,)]  # a str is literal output, a 1-tuple holds a value still to write
    while pending:
        step = pending.pop()
        if isinstance(step, str):
            out.append(step)
            continue
        value = step[0]
        if isinstance(value, dict):
            pending.append("}")
            for index, (key, item) in enumerate(reversed(value.items())):
                pending.extend([",", (item,)] if index else [(item,)])
                pending.append(_quoted(key) + ":")
            out.append("{")
        elif isinstance(value, list):
            pending.append("]")
            for index, item in enumerate(reversed(value)):
                pending.extend([",", (item,)] if index else [(item,)])
            out.append("[")
        elif isinstance(value, str):
            out.append(_quoted(value))
        else:
            out.append(str(value) if type(value) is int else orjson.dumps(value).decode())
    return "".join(out)


def _quoted(text: str) -> str:
    return _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", json.encoder.encode_basestring(text))


_BLANK = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_WORD = re.compile(r"true|false|null")
_WORDS: Final = {"true": True, "false": False, "null": None}
_CLOSER: Final = {"{": "}", "[": "]"}


def decode_deep(raw: bytes) -> Any:
    """Parse without a depth limit; lone surrogate escapes pass, ints beyond 64 bits become floats."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise JsonDecodeError("invalid UTF-8", error.start) from None
    root: list[Any] = []
    open_: list[Any] = [root]
    key = ""
    at = _skip(text, 0)
    while True:
        head = text[at : at + 1]
        value: Any = {} if head == "{" else []
        if head not in _CLOSER:
            value, at = _scalar(text, at)
        if isinstance(open_[-1], dict):
            open_[-1][key] = value
        else:
            open_[-1].append(value)
        if head in _CLOSER:
            at = _skip(text, at + 1)
            if text[at : at + 1] != _CLOSER[head]:
                open_.append(value)
                if head == "{":
                    key, at = _key(text, at)
                continue
            at += 1
        # A value just ended: close containers or go to the next item.
        while True:
            at = _skip(text, at)
            if len(open_) == 1:
                if at != len(text):
                    raise JsonDecodeError("unexpected text after the value", at)
                return root[0]
            mark, in_map = text[at : at + 1], isinstance(open_[-1], dict)
            if mark == ",":
                at = _skip(text, at + 1)
                if in_map:
                    key, at = _key(text, at)
                break
            if mark != ("}" if in_map else "]"):
                raise JsonDecodeError("expected ',' or the end of the container", at)
            open_.pop()
            at += 1


def _skip(text: str, at: int) -> int:
    blank = _BLANK.match(text, at)
    return blank.end() if blank else at


def _key(text: str, at: int) -> tuple[str, int]:
    if text[at : at + 1] != '"':
        raise JsonDecodeError("expected a key in quotes", at)
    key, at = _string(text, at)
    at = _skip(text, at)
    if text[at : at + 1] != ":":
        raise JsonDecodeError("expected ':'", at)
    return key, _skip(text, at + 1)


def _string(text: str, at: int) -> tuple[str, int]:
    try:
        found: tuple[str, int] = json.decoder.scanstring(text, at + 1, True)  # type: ignore[attr-defined]
        return found
    except json.JSONDecodeError as error:
        raise JsonDecodeError(error.msg, error.pos) from None


def _scalar(text: str, at: int) -> tuple[Any, int]:
    if text[at : at + 1] == '"':
        return _string(text, at)
    word = _WORD.match(text, at)
    if word is not None:
        return _WORDS[word[0]], word.end()
    match = _NUMBER.match(text, at)
    if match is None:
        raise JsonDecodeError("expected a JSON value" if at < len(text) else "unexpected end of the text", at)
    number: int | float = float(match[0])
    if not (match[1] or match[2]) and len(match[0]) <= 20 and -(2**63) <= (whole := int(match[0])) < 2**64:
        number = whole
    elif not isfinite(number):
        raise JsonDecodeError("the number is infinite as a double", at)
    return number, match.end()
