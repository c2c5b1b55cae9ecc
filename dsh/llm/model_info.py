"""Checking what an adapter says about its models, so that a wrong answer is named where it is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, cast

from dsh.llm.adapter import ModelInfo
from dsh.llm.failure import LlmError


def check_model_info(provider: str, model: str, info: object) -> ModelInfo:
    """The facts about one model. Raises `LlmError` ``INVALID_MODEL_INFO``, ``_CONTEXT``, ``_MAX_TOKENS`` or
    ``_REASONING`` when they are malformed or about something else.
    """
    where = f'adapter of provider "{provider}" described model "{model}"'
    if not isinstance(info, Mapping):
        _refuse("INFO", where, "without a mapping")
    if info.get("provider") != provider or info.get("id") != model:
        _refuse("INFO", where, f'as "{info.get("provider")}/{info.get("id")}"')
    if not _text(info.get("name")):
        _refuse("INFO", where, "without a name")
    if not _texts(info.get("inputModalities", ())):
        _refuse("INFO", where, "with malformed input modalities")
    context = info.get("context")
    if context is not None and not (isinstance(context, Mapping) and _count(context.get("contextWindow"))):
        _refuse("CONTEXT", where, "with a context window that is no positive integer")
    if "defaultMaxTokens" in info and not _count(info["defaultMaxTokens"]):
        _refuse("MAX_TOKENS", where, "with a default token limit that is no positive integer")
    if info.get("reasoning") is not None:
        _check_reasoning(where, info["reasoning"])
    return cast(ModelInfo, info)


def check_catalog(provider: str, models: object) -> list[ModelInfo]:
    """A provider's list of models, copied. Raises `LlmError` ``INVALID_CATALOG`` for a wrong provider, an empty id or
    name, or an id that stands twice.
    """
    if not isinstance(models, Sequence) or isinstance(models, str):
        raise LlmError.of("INVALID_CATALOG", f'the catalog of provider "{provider}" is no list')
    seen: set[str] = set()
    copies: list[ModelInfo] = []
    for entry in models:
        sound = isinstance(entry, Mapping) and entry.get("provider") == provider
        if not sound or not _text(entry.get("id")) or not _text(entry.get("name")):
            raise LlmError.of("INVALID_CATALOG", f'the catalog of provider "{provider}" has a malformed model')
        if entry["id"] in seen:
            raise LlmError.of("INVALID_CATALOG", f'the catalog of provider "{provider}" lists "{entry["id"]}" twice')
        seen.add(entry["id"])
        copies.append(cast(ModelInfo, dict(entry)))
    return copies


def _check_reasoning(where: str, reasoning: object) -> None:
    efforts = reasoning.get("efforts") if isinstance(reasoning, Mapping) else None
    if not isinstance(efforts, Sequence) or isinstance(efforts, str) or not efforts:
        _refuse("REASONING", where, "with reasoning but without efforts")
    ids = [
        effort.get("id") if isinstance(effort, Mapping) and _text(effort.get("name")) else None for effort in efforts
    ]
    if not all(map(_text, ids)) or len(set(ids)) != len(ids):
        _refuse("REASONING", where, "with malformed or repeated reasoning efforts")
    default = cast(Mapping[str, Any], reasoning).get("defaultEffort")
    if default is not None and default not in ids:
        _refuse("REASONING", where, f'with a default effort "{default}" it does not offer')


def _refuse(kind: str, where: str, what: str) -> NoReturn:
    raise LlmError.of(f"INVALID_MODEL_{kind}", f"{where} {what}")


def _text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _texts(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str) and all(map(_text, value))


def _count(value: object) -> bool:
    return type(value) is int and value > 0
