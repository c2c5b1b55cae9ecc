"""What failures are called."""

from __future__ import annotations

import time
from email.utils import formatdate

import pytest

from dsh.cordis import AbortError, HarnessError
from dsh.llm.failure import LlmError, LlmFailure, failure_of
from dsh.llm.transport.classify import classify_http_error, classify_in_band_error, retry_after_ms


def code(status: int, message: str = "no", **error: str) -> str:
    body = b'{"error": {"message": "%s"}}' % message.encode()
    if error:
        fields = ", ".join(f'"{key}": "{value}"' for key, value in error.items())
        body = b'{"error": {"message": "%s", %s}}' % (message.encode(), fields.encode())
    return classify_http_error(status, body, {}, where="api").code


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, "INVALID_REQUEST"),
        (401, "AUTH"),
        (402, "QUOTA"),
        (403, "AUTH"),
        (404, "HTTP_404"),
        (408, "TIMEOUT"),
        (413, "INVALID_REQUEST"),
        (418, "HTTP_418"),
        (422, "INVALID_REQUEST"),
        (429, "RATE_LIMIT"),
        (500, "SERVER"),
        (503, "SERVER"),
        (302, "HTTP_302"),
    ],
)
def test_b16a_the_status_decides(status: int, expected: str) -> None:
    assert code(status) == expected


@pytest.mark.parametrize(
    "message",
    [
        "This model's maximum context length is 65536 tokens. However, you requested 70000",
        "context_length_exceeded",
        "Context window exceeded",
        "context-window-overflow",
        "context window limit exceeded",
        "max context window is 8192",
        "Prompt too long for model",
        "input is too large for the model's context",
        "messages too long for this model",
        "prompt is too long: 212000 tokens > 200000 maximum",
        "the request exceeds the available context size, try increasing it",
        "input tokens are larger than the context",
    ],
)
@pytest.mark.parametrize("status", [400, 413, 422])
def test_b16b_overflow_wording_names_the_context(status: int, message: str) -> None:
    assert code(status, message) == "CONTEXT_WINDOW_EXCEEDED"


@pytest.mark.parametrize(
    "message",
    [
        "Invalid input: name is too long",
        "prompt must be a string",
        "max_tokens must be at most 8192",
        "the context of this error is unknown",
        "request body too large",
        "temperature exceeds 2",
    ],
)
def test_b16c_plain_validation_is_no_overflow(message: str) -> None:
    assert code(400, message) == "INVALID_REQUEST"


def test_b16d_overflow_by_type_or_code_and_only_at_its_statuses() -> None:
    assert code(400, "no", type="exceed_context_size_error") == "CONTEXT_WINDOW_EXCEEDED"
    assert code(400, "no", code="context_length_exceeded") == "CONTEXT_WINDOW_EXCEEDED"
    assert code(500, "maximum context length is 10") == "SERVER"


@pytest.mark.parametrize(
    "message",
    [
        "Insufficient Balance",
        "insufficient_quota",
        "insufficient credits",
        "You exceeded your current quota, please check your plan",
        "exceeded quota",
        "quota exceeded",
        "usage limit has been reached",
        "credits exhausted",
        "your balance is depleted",
        "You are out of credits",
        "out of budget",
    ],
)
@pytest.mark.parametrize("status", [400, 403, 429, 500])
def test_b16e_quota_wording_wins_at_any_status(status: int, message: str) -> None:
    assert code(status, message) == "QUOTA"


@pytest.mark.parametrize("message", ["Rate limit reached for requests", "Too many requests", "rate limit exceeded"])
def test_b16f_a_plain_rate_limit_is_no_quota(message: str) -> None:
    assert code(429, message) == "RATE_LIMIT"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ({"message": "slow down", "type": "rate_limit_error"}, "RATE_LIMIT"),
        ({"message": "busy", "code": 503}, "SERVER"),
        ({"message": "busy", "code": "429"}, "RATE_LIMIT"),
        ({"message": "Insufficient Balance"}, "QUOTA"),
        ({"message": "context_length_exceeded"}, "CONTEXT_WINDOW_EXCEEDED"),
        ({"message": "bad", "type": "invalid_request_error"}, "INVALID_REQUEST"),
        ({"message": "Invalid API key"}, "AUTH"),
        ({"message": "who knows"}, "SERVER"),
        ("plain text", "SERVER"),
    ],
)
def test_b16g_in_band_errors_are_coded_like_their_http_twin(error: object, expected: str) -> None:
    assert classify_in_band_error(error, {}, where="api").code == expected


def test_b17_retry_after_in_seconds_or_as_a_date_only_if_finite_and_positive() -> None:
    now = time.time()
    assert retry_after_ms("3") == 3000
    assert retry_after_ms(" 20 ") == 20000
    assert retry_after_ms(formatdate(now + 90, usegmt=True), now) == pytest.approx(90_000, abs=1000)
    for bad in (None, "", "0", "-1", "1.5.2", "soon", "inf", "nan", "²", "9" * 400, formatdate(now - 90, usegmt=True)):
        assert retry_after_ms(bad, now) is None, bad
    error = classify_http_error(429, b"{}", {"retry-after": "2", "x-request-id": "r1"}, where="api")
    assert error.failure == LlmFailure("api answered HTTP 429", "RATE_LIMIT", 429, 2000, "r1")


def test_b18_a_body_that_is_no_json_is_the_cause_and_never_the_message() -> None:
    error = classify_http_error(502, b"<html>Bad gateway \xff</html>", {}, where="api.example")
    assert error.failure == LlmFailure("api.example answered HTTP 502", "SERVER", 502)
    assert "<html>" in str(error.__cause__)
    empty = classify_http_error(500, b"", {}, where="api.example")
    assert empty.failure.message == "api.example answered HTTP 500" and empty.__cause__ is None
    huge = classify_http_error(500, b"x" * 200_000, {}, where="api.example")
    assert len(str(huge.__cause__)) == 64 * 1024


def test_b19a_an_echoed_key_is_blotted_out_everywhere() -> None:
    key = "sk-very-secret"
    error = classify_http_error(401, b'{"error":{"message":"bad key sk-very-secret"}}', {}, where="api", secret=key)
    assert error.failure.message == "bad key ***"
    assert key not in str(error.__cause__)
    in_band = classify_in_band_error({"message": f"key {key} unknown"}, {}, where="api", secret=key)
    assert in_band.failure.message == "key *** unknown"


def test_normalising_any_exception() -> None:
    class Hostile(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text for you")

    failure = LlmFailure("m", "C")
    assert failure_of(LlmError(failure)) is failure
    assert failure_of(HarnessError("text", "MY")) == LlmFailure("text", "MY")
    assert failure_of(AbortError()).code == "ABORTED"
    assert failure_of(TimeoutError()) == LlmFailure("TimeoutError", "UNKNOWN")
    assert failure_of(Hostile()).code == "UNKNOWN"


@pytest.mark.parametrize(
    "bad",
    [
        {"message": "", "code": "C"},
        {"message": "m", "code": ""},
        {"message": "m", "code": "C", "status": 99},
        {"message": "m", "code": "C", "status": 600},
        {"message": "m", "code": "C", "provider_retry_after_ms": 0},
        {"message": "m", "code": "C", "provider_retry_after_ms": float("inf")},
        {"message": "m", "code": "C", "request_id": ""},
    ],
)
def test_a_failure_is_well_formed_and_survives_the_wire(bad: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        LlmFailure(**bad)  # type: ignore[arg-type]
    whole = LlmFailure("m", "C", 500, 1.5, "r")
    assert LlmFailure.from_wire(whole.to_wire()) == whole
    assert LlmFailure("m", "C").to_wire() == {"message": "m", "code": "C"}
