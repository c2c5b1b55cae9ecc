"""How tools present their calls and results, in the protocol's words."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dsh.sessions.markdown import fenced

if TYPE_CHECKING:
    from dsh.core.tool_presentation import PresentedResult
    from dsh.core.tools import ToolDefinition


def call_fields(definition: ToolDefinition | None, name: str, arguments: Any, cwd: str | None) -> dict[str, Any]:
    """Title, kind, locations, content and raw input of a call; a presenter that fails is left out."""
    fields: dict[str, Any] = {"title": name, "kind": "other", "rawInput": arguments}
    if definition is None or definition.present_call is None:
        return fields
    try:
        card: Any = definition.present_call(arguments)
        return fields if card is None else fields | _call_card(card, name, cwd)
    except Exception:
        return fields


def result_fields(
    definition: ToolDefinition | None, arguments: Any, result: PresentedResult, cwd: str | None
) -> dict[str, Any]:
    """Content of a result, if it has any; ``result``: content, isError, meta. A presenter that fails is left out."""
    content: list[dict[str, Any]] | None = None
    if definition is not None and definition.present_result is not None:
        try:
            card: Any = definition.present_result(arguments, result)
            content = None if card is None else _result_card(card, result, cwd)
        except Exception:
            content = None
    if content is None:
        content = block_contents(result["content"])
    return {"content": content} if content else {}


def _call_card(card: Mapping[str, Any], name: str, cwd: str | None) -> dict[str, Any]:
    title: str = card["title"]
    places = card.get("locations", ())
    fields: dict[str, Any] = {"title": f"{name} {title}" if any(each["path"] == title for each in places) else title}
    if places:
        fields["locations"] = [{**each, "path": _absolute(each["path"], cwd)} for each in places]
    content: list[dict[str, Any]] = []
    if card["card"] == "terminal":
        fields["kind"] = "execute"
        if description := card.get("description"):
            content = [text_content(description)]
    elif card["card"] == "diff":
        fields["kind"] = "edit"
        content = [_diff(each, cwd) for each in card["diffs"]]
    else:
        fields["kind"] = card.get("kind", "other")
        content = block_contents(card.get("content", ()))
    if content:
        fields["content"] = content
    return fields


def _result_card(card: Mapping[str, Any], result: PresentedResult, cwd: str | None) -> list[dict[str, Any]]:
    kind = card["card"]
    if kind == "diff":
        return [_diff(each, cwd) for each in card["diffs"]]
    if kind == "terminal":
        return [text_content(_fence(card.get("output", "")))]
    if kind == "read":
        return [text_content(_fence("\n".join(line["text"] for line in card["lines"])))]
    if kind == "generic" and "content" not in card:
        return []  # what the call showed says it already
    return block_contents(card.get("content") or result["content"])


def text_content(text: str) -> dict[str, Any]:
    """Text as content of a tool call."""
    return {"type": "content", "content": {"type": "text", "text": text}}


def block_contents(blocks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Blocks of a message as content of a tool call."""
    contents = []
    for block in blocks:
        if block["type"] == "text":
            contents.append(text_content(block["text"]))
        elif block["type"] == "image":
            contents.append(text_content(f"[image {block['attachment'].get('mediaType', '')}]"))
    return contents


def _diff(diff: Mapping[str, Any], cwd: str | None) -> dict[str, Any]:
    path = _absolute(diff["path"], cwd)
    return {"type": "diff", "path": path, "oldText": diff["oldText"], "newText": diff["newText"]}


def _absolute(path: str, cwd: str | None) -> str:
    return path if cwd is None else os.path.join(cwd, path)


def _fence(text: str) -> str:
    return fenced(text.removesuffix("\n"))
