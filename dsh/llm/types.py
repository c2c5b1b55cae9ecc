"""The words a model conversation is made of.

Messages, blocks and stream chunks are plain JSON values in wire shape: what an adapter yields is what the log stores
and what a reader finds on disk, without any conversion. The ``TypedDict`` types document those shapes; all three sets
are open, so a reader skips a block or source kind it does not know.

Only the request handed to an adapter is a class: it carries live things (an abort signal) and is never stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal, NotRequired, Required, TypeAlias, TypedDict

from dsh.cordis.records import identity_record
from dsh.llm.call_config import CallConfig

if TYPE_CHECKING:
    from dsh.cordis import AbortSignal

Role: TypeAlias = Literal["system", "user", "assistant"]
Purpose: TypeAlias = str
"""Why a one-shot call is made: ``compaction`` or ``session-title``; absent for an agent's own step."""


class Block(TypedDict, total=False):
    """One piece of a message. ``type`` decides which of the other fields are there.

    ``text {text}``; ``reasoning {text}``; ``image {attachment}``; ``tool-call {id, name, arguments}`` where
    ``arguments`` is the raw JSON text as the model produced it; ``tool-result {toolCallId, content, isError?}``.
    """

    type: Required[str]
    text: str
    attachment: Mapping[str, Any]
    id: str
    name: str
    arguments: str
    toolCallId: str
    content: Sequence[Block]
    isError: bool


class Source(TypedDict, total=False):
    """Where a message came from: ``user``, ``model``, ``tool``, ``plugin`` or a kind a plugin invented.

    ``model {provider, model, replayState?}``; ``tool {callId}``; ``plugin {plugin, form?, …}`` whose ``form`` is one of
    ``instructions``, ``catalog``, ``snapshot {sections}``, ``notice {summary}``, ``relay``, ``recall``.
    """

    kind: Required[str]
    provider: str
    model: str
    replayState: ReplayEnvelope
    callId: str
    plugin: str
    form: str
    sections: Sequence[Mapping[str, str]]
    summary: str


class ReplayEnvelope(TypedDict):
    """Private notes of an adapter about a reply, handed back when the reply is sent to the same adapter again.

    ``blocks`` holds one entry for each emitted block, in the order the blocks were first seen.
    """

    response: Any
    blocks: NotRequired[Sequence[Any]]


class Message(TypedDict):
    """An immutable message. ``id`` is minted once and kept by every rewrite of the message."""

    id: str
    role: Role
    content: Sequence[Block]
    source: Source


class Usage(TypedDict):
    """Token counts of one call; the fields are disjoint.

    ``inputTokens`` excludes cache hits and writes; ``reasoningTokens`` is a part of ``outputTokens``, never added
    to it. An absent field means unknown.
    """

    inputTokens: int
    outputTokens: int
    cacheReadTokens: NotRequired[int]
    cacheWriteTokens: NotRequired[int]
    reasoningTokens: NotRequired[int]


class FinishReason(TypedDict, total=False):
    """How a stream ended: ``stop``, ``tool-calls``, ``max-tokens``, or ``error`` / ``aborted`` with a failure."""

    kind: Required[str]
    failure: Mapping[str, Any]


class StreamChunk(TypedDict, total=False):
    """One event of a model stream. ``type`` decides the other fields.

    ``block-start {index, blockType}``; ``text-delta`` and ``reasoning-delta {index, text}``;
    ``tool-call-delta {index, id, name?, argumentsDelta}``; ``block-end {index, block}``; ``usage {usage}``;
    ``finish {reason, replayState?}``, always the last one.
    """

    type: Required[str]
    index: int
    blockType: str
    text: str
    id: str
    name: str
    argumentsDelta: str
    block: Block
    usage: Usage
    reason: FinishReason
    replayState: ReplayEnvelope


class ToolSchema(TypedDict):
    """A tool as a model sees it; ``parameters`` is a JSON Schema object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@identity_record
class LlmRequest:
    """One request to one model.

    Build another with ``dataclasses.replace``; the copy does not inherit the mark of an agent loop request.
    """

    config: CallConfig
    messages: Sequence[Message]
    system: str | None = None
    tools: Sequence[ToolSchema] | None = None
    session_id: str | None = None
    signal: AbortSignal | None = None
    purpose: Purpose | None = None
    _loop_built: bool = field(default=False, init=False, repr=False)

    @property
    def provider(self) -> str:
        """Name of the route's provider."""
        return self.config.provider

    @property
    def model(self) -> str:
        """Model id within the provider."""
        return self.config.model


def mark_agent_loop_request(request: LlmRequest) -> LlmRequest:
    """Mark this very object as a step of an agent loop and return it."""
    object.__setattr__(request, "_loop_built", True)
    return request


def is_agent_loop_request(request: LlmRequest) -> bool:
    """Whether this very object was built by an agent loop (copies are not)."""
    return request._loop_built
