"""Reading the parameters of a request: what is wrong with one is a sentence that names it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from dsh.cordis import HarnessError

Params: TypeAlias = Mapping[str, Any]


def invalid(message: str) -> HarnessError:
    """The error of a parameter that cannot be used."""
    return HarnessError(message, code="INVALID_PARAMS")


def text(params: Params, method: str, key: str) -> str:
    """A text that must be there and not be empty."""
    value = params.get(key)
    if not isinstance(value, str) or not value:
        raise invalid(f"{method} {key} must be a non-empty string")
    return value


def optional_text(params: Params, method: str, key: str) -> str | None:
    """A text that may be left out."""
    return None if params.get(key) is None else text(params, method, key)


def count(params: Params, method: str, key: str, default: int) -> int:
    """A whole number from 0 on."""
    value = params.get(key, default)
    if type(value) is not int or value < 0:
        raise invalid(f"{method} {key} must be a non-negative integer")
    return value


def content_blocks(params: Params, method: str) -> list[Any]:
    """The content of a prompt: at least one block, each an object with a type."""
    blocks = params.get("contentBlocks")
    if not isinstance(blocks, list) or not blocks:
        raise invalid(f"{method} contentBlocks must be a non-empty array")
    for index, block in enumerate(blocks):
        if not isinstance(block, Mapping) or not isinstance(block.get("type"), str):
            raise invalid(f"{method} contentBlocks[{index}] must be an object with a type")
        if block["type"] == "text" and not isinstance(block.get("text"), str):
            raise invalid(f"{method} contentBlocks[{index}].text must be a string")
    return blocks
