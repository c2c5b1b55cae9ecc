"""Failures of model calls as data: a message for a person, a stable code, and what the provider said about retrying.

A failure holds no policy: whether a code is retried is decided by the provider's retry policy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dsh.cordis.errors import HarnessError, describe_error
from dsh.cordis.records import record
from dsh.llm.types import StreamChunk


@record
class LlmFailure:
    """One failed provider attempt.

    `provider_retry_after_ms` is the wait the provider asked for, in milliseconds; `request_id` is the id under which
    the provider knows the request. Raises ``ValueError`` for an empty string, a status outside 100..599 or a wait that
    is not finite and positive.
    """

    message: str
    code: str
    status: int | None = None
    provider_retry_after_ms: float | None = None
    request_id: str | None = None

    def __post_init__(self) -> None:
        if not self.message or not self.code:
            raise ValueError("a failure needs a message and a code")
        if self.status is not None and not 100 <= self.status <= 599:
            raise ValueError(f"failure status must be 100..599, got {self.status}")
        wait = self.provider_retry_after_ms
        if wait is not None and not (math.isfinite(wait) and wait > 0):
            raise ValueError(f"failure retry delay must be finite and positive, got {wait}")
        if self.request_id is not None and not self.request_id:
            raise ValueError("failure request id must not be empty")

    def to_wire(self) -> dict[str, Any]:
        """The camelCase form stored in the log; absent fields are left out."""
        wire = {
            "message": self.message,
            "code": self.code,
            "status": self.status,
            "providerRetryAfterMs": self.provider_retry_after_ms,
            "requestId": self.request_id,
        }
        return {key: value for key, value in wire.items() if value is not None}

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> LlmFailure:
        """Read the form of `to_wire`; a missing message or code becomes a stated stand-in."""
        code = wire.get("code") or "UNKNOWN"
        return cls(
            message=wire.get("message") or str(code),
            code=code,
            status=wire.get("status"),
            provider_retry_after_ms=wire.get("providerRetryAfterMs"),
            request_id=wire.get("requestId"),
        )


class LlmError(HarnessError):
    """A failed model call, raised; its `failure` is what reaches the log."""

    def __init__(self, failure: LlmFailure) -> None:
        super().__init__(failure.message, code=failure.code)
        self.failure = failure

    @classmethod
    def of(cls, code: str, message: str, *, status: int | None = None, request_id: str | None = None) -> LlmError:
        """The error for a failure given field by field."""
        return cls(LlmFailure(message, code, status, request_id=request_id))


def failure_of(error: BaseException) -> LlmFailure:
    """The failure any exception stands for.

    A model error keeps its own failure, another harness error its code, everything else is ``UNKNOWN``. A blank text
    becomes the name of the exception's class.
    """
    if isinstance(error, LlmError):
        return error.failure
    code = error.code if isinstance(error, HarnessError) else "UNKNOWN"
    return LlmFailure(describe_error(error), code or "UNKNOWN")


def failed_finish(error: BaseException, *, aborted: bool) -> StreamChunk:
    """The last chunk of a stream that failed with `error`.

    It says ``aborted`` when the caller's signal is `aborted` or the failure's code is ``ABORTED``.
    """
    failure = failure_of(error)
    kind = "aborted" if aborted or failure.code == "ABORTED" else "error"
    return {"type": "finish", "reason": {"kind": kind, "failure": failure.to_wire()}}
