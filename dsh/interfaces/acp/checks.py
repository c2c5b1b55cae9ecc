"""Requests of a client, checked by hand: each function gives the value or raises the error that is answered."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, cast

from dsh.interfaces.stdio_jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, RpcError

RESOURCE_NOT_FOUND = -32002


def invalid_params(why: str) -> RpcError:
    """The client asked for something that cannot be."""
    return RpcError(INVALID_PARAMS, f"Invalid params: {why}")


def internal_error(why: str) -> RpcError:
    """What was asked for went wrong."""
    return RpcError(INTERNAL_ERROR, f"Internal error: {why}")


def mapping_of(value: Any, what: str = "params") -> Mapping[str, Any]:
    """``value`` as an object."""
    if not isinstance(value, Mapping):
        raise invalid_params(f"{what} must be an object")
    return cast("Mapping[str, Any]", value)


def text_in(params: Mapping[str, Any], key: str, where: str = "") -> str:
    """The string under ``key``."""
    value = params.get(key)
    if not isinstance(value, str):
        raise invalid_params(f"{where}{key} must be a string")
    return value


def list_in(params: Mapping[str, Any], key: str, *, required: bool = True) -> Sequence[Any]:
    """The list under ``key``; an absent one that is not required is empty."""
    value = params.get(key)
    if value is None and not required:
        return ()
    if not isinstance(value, list):
        raise invalid_params(f"{key} must be a list")
    return value


def cwd_in(params: Mapping[str, Any]) -> str:
    """The workspace under ``cwd``: an absolute path."""
    cwd = text_in(params, "cwd")
    if not os.path.isabs(cwd) or "\0" in cwd:
        raise invalid_params(f"cwd must be an absolute path: {cwd}")
    return cwd
