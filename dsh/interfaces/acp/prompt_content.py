"""A prompt's content blocks as the blocks of a message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dsh.cordis.jsonio import encode_str
from dsh.llm.content import text_block
from dsh.llm.types import Block
from dsh.sessions.markdown import fence_for

from .checks import invalid_params, mapping_of, text_in
from .images import check_image


@dataclass(slots=True)
class PromptContent:
    """Text runs and images in the order the client gave them; an image is ``{mediaType, data}``, not kept yet."""

    parts: list[str | Mapping[str, Any]] = field(default_factory=list)

    @property
    def images(self) -> list[Mapping[str, Any]]:
        """The images alone."""
        return [part for part in self.parts if not isinstance(part, str)]

    def blocks(self, references: Sequence[Mapping[str, Any]]) -> list[Block]:
        """The message's blocks, with ``references`` in the places of the images."""
        kept = iter(references)
        return [
            text_block(part) if isinstance(part, str) else {"type": "image", "attachment": next(kept)}
            for part in self.parts
        ]


def read_prompt(blocks: Sequence[Any], *, images: bool, embedded: bool) -> PromptContent:
    """Check every block before anything is done with one of them.

    images, embedded: whether image blocks and text resources are taken.
    """
    content = PromptContent()
    for block in blocks:
        part = _part(mapping_of(block, "a prompt block"), images, embedded)
        if isinstance(part, str) and content.parts and isinstance(content.parts[-1], str):
            content.parts[-1] += part
        elif part:
            content.parts.append(part)
    if not any(part.strip() if isinstance(part, str) else True for part in content.parts):
        raise invalid_params("empty prompt")
    return content


def _part(block: Mapping[str, Any], images: bool, embedded: bool) -> str | Mapping[str, Any]:
    kind = block.get("type")
    if kind == "text":
        return text_in(block, "text", "text block: ")
    if kind == "resource_link":
        name, uri = text_in(block, "name", "resource_link: "), text_in(block, "uri", "resource_link: ")
        return f"\n[resource_link name={encode_str(name)} uri={encode_str(uri)}]\n"
    if kind == "image" and images:
        return check_image(block)
    if kind == "resource" and embedded:
        return _fenced(mapping_of(block.get("resource"), "resource"))
    raise invalid_params(f"prompt content of type {encode_str(kind)} is not supported")


def _fenced(resource: Mapping[str, Any]) -> str:
    """An embedded text resource as a fenced block under its address."""
    uri = text_in(resource, "uri", "resource: ")
    if "text" not in resource:
        raise invalid_params(f"embedded resources that are not text are not supported: {uri}")
    text = text_in(resource, "text", "resource: ")
    fence = fence_for(text)
    end = "" if text.endswith("\n") or not text else "\n"
    return f"\n{fence}{uri}\n{text}{end}{fence}\n"
