"""What a provider plugin implements: one class that speaks to one or several providers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NotRequired, TypedDict

from dsh.cordis.records import record
from dsh.llm.retry_policy import RetryPolicy
from dsh.llm.types import LlmRequest, StreamChunk

if TYPE_CHECKING:
    from dsh.cordis import AbortSignal
    from dsh.llm.prices import Prices


class ProviderInfo(TypedDict):
    """A provider as people see it."""

    id: str
    name: str


class ContextInfo(TypedDict):
    """Size of a model's window, in tokens."""

    contextWindow: int


class Effort(TypedDict):
    """One reasoning effort a model can be asked for."""

    id: str
    name: str
    description: NotRequired[str]


class ReasoningInfo(TypedDict):
    """The efforts a model takes; `defaultEffort` is used when the caller names none."""

    efforts: Sequence[Effort]
    defaultEffort: NotRequired[str]


class ModelInfo(TypedDict):
    """What is known about one model. No ``inputModalities`` means unknown; a list without ``image`` refuses images."""

    provider: str
    id: str
    name: str
    description: NotRequired[str]
    inputModalities: NotRequired[Sequence[str]]
    context: NotRequired[ContextInfo]
    defaultMaxTokens: NotRequired[int]
    reasoning: NotRequired[ReasoningInfo]


@record
class AdapterCall:
    """The facts of one model together with the attempt that uses exactly these facts."""

    info: ModelInfo
    stream: Callable[[LlmRequest], AsyncIterator[StreamChunk]]


class Adapter(ABC):
    """Speaks to providers. Only `stream` must be written; everything else has a sensible default.

    Adapters need no error handling of their own at the edges: whatever `stream` raises, at the call or at any chunk,
    becomes the failed finish of the stream. Raise `LlmError` to name the code.
    """

    @abstractmethod
    def stream(self, request: LlmRequest) -> AsyncIterator[StreamChunk]:
        """One attempt at the provider. It must end soon after ``request.signal`` is aborted."""

    def provider_info(self, provider: str) -> ProviderInfo:
        """Display data of a route this adapter serves."""
        return {"id": provider, "name": provider}

    def provider_retry_policy(self, provider: str) -> RetryPolicy | None:
        """How failed calls of this route are repeated; None means they are not."""
        return None

    async def list_models(self, provider: str) -> Sequence[ModelInfo]:
        """The catalog of a route: advice for people, never a list of what is allowed."""
        return []

    async def resolve_model(self, provider: str, model: str, signal: AbortSignal | None = None) -> ModelInfo:
        """The facts about one model, listed or not. Raises `LlmError` when the route cannot serve it."""
        return {"provider": provider, "id": model, "name": model}

    def prices(self, provider: str) -> Mapping[str, Prices]:
        """Stated prices by model id. Asked each time costs are shown, so that an edit shows at once."""
        return {}

    async def prepare_call(self, provider: str, model: str, signal: AbortSignal | None = None) -> AdapterCall:
        """Bind facts and dispatch together. Override when the facts can change between the two."""
        return AdapterCall(await self.resolve_model(provider, model, signal), self.stream)

    def usable(self, provider: str) -> str | None:
        """None when a call has a chance, else one sentence that says what is missing and how to supply it."""
        return None
