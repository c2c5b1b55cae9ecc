"""What a tool call came to: a value with the blocks a model reads, or a failure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict, cast

from dsh.cordis.errors import HarnessError, describe_error, error_chain
from dsh.cordis.jsonio import FrozenDict, FrozenList, JsonValue
from dsh.cordis.records import identity_record, record
from dsh.llm.content import text_block

if TYPE_CHECKING:
    from dsh.llm.types import Block, Message


class ErrorInfo(TypedDict):
    """Class name and stable code of a `HarnessError`."""

    name: str
    code: str


@record
class ToolErrorInfo:
    """Why a call failed; `info` is there when the failure has a stable code."""

    message: str
    info: ErrorInfo | None = None


@identity_record
class ToolResult:
    """The immutable outcome of one call.

    `content` holds the blocks a model reads; `value` the validated value of a success; `meta` presentation data no
    model reads; `additional_contexts` messages for the next step, in order. A wrapper of `tools/execute` that answers
    on its own returns `ToolResult.success(...)` or `ToolResult.failure(...)`.
    """

    is_error: bool
    content: Sequence[Block]
    value: JsonValue = None
    meta: JsonValue = None
    error: ToolErrorInfo | None = None
    additional_contexts: tuple[Message, ...] = ()
    concludes_turn: bool = False

    @classmethod
    def success(cls, value: object, additional_contexts: Sequence[Message] = ()) -> ToolResult:
        """A success known by its value alone; the pipeline validates it and renders its content."""
        return cls(False, (), cast(JsonValue, value), additional_contexts=tuple(additional_contexts))

    @classmethod
    def failure(
        cls,
        message: str,
        *,
        info: ErrorInfo | None = None,
        content: Sequence[Block] | None = None,
        additional_contexts: Sequence[Message] = (),
    ) -> ToolResult:
        """A failure; without `content` the model reads `Error: <message>`."""
        blocks = cast("Sequence[Block]", FrozenList([text_block("Error: " + message)])) if content is None else content
        error = ToolErrorInfo(message, None if info is None else cast(ErrorInfo, FrozenDict(info)))
        return cls(True, blocks, error=error, additional_contexts=tuple(additional_contexts))

    @classmethod
    def from_error(cls, error: object) -> ToolResult:
        """The failure that a thrown value becomes. Never raises; only a `HarnessError` carries name and code.

        A group of one stands for its member; a larger one names all of them, since its own text says nothing.
        """
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        info: ErrorInfo | None = None
        if isinstance(error, HarnessError):
            info = {"name": type(error).__name__, "code": str(error.code)}
        message = error_chain(error) if isinstance(error, BaseExceptionGroup) else describe_error(error)
        return cls.failure(message, info=info)


def block_message(feedback: Sequence[Mapping[str, object]]) -> str:
    """The failure message of blocks written for a model: texts line by line, other blocks by their type."""
    return "\n".join(
        str(block.get("text", "")) if block.get("type") == "text" else f"[{block.get('type')} content]"
        for block in feedback
    )
