"""Other texts from outside: environment files, error answers of providers, config files that are edited in place."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dsh.llm.failure import LlmError
from dsh.llm.transport.classify import classify_http_error, classify_in_band_error, retry_after_ms
from dsh.loader.dotenv import parse_dotenv
from dsh.loader.textedit import rewrite
from dsh.loader.yamlio import same_value
from tests.fuzz.kit import JSON, fuzz
from tests.fuzz.test_dialect import DAMAGED, PRINTABLE, TEXT, read

LINES = st.sampled_from(
    [
        "A=",
        "export ",
        "'",
        '"',
        "\\n",
        "\\",
        "#",
        " ",
        "\n",
        "\r\n",
        "B",
        "=",
        "${A}",
        "$(x)",
        "`",
        "\ufeff",
        "é",
        "\0",
        "\x85",
    ]
)


@fuzz(300)
@given(st.lists(LINES | st.text(max_size=3), max_size=14).map("".join))
def test_any_environment_file_is_names_and_values(text: str) -> None:
    found = parse_dotenv(text)
    assert all(isinstance(name, str) and name and isinstance(value, str) for name, value in found.values.items())


AFTER = st.sampled_from(
    [
        "1",
        "0",
        "-1",
        "9" * 400,
        "1e9",
        "Wed, 21 Oct 2015 07:28:00 GMT",
        "Wed, 21 Oct 99999 07:28:00 GMT",
        "inf",
        "Mon, 00 Jan 0000 00:00:00 +9999",
        "1 Jan 2020 25:61:61",
        "\u0661",
        "nan",
        "",
        " 5 ",
        "Fri, 31 Dec 9999 23:59:59 -2359",
    ]
) | st.text(max_size=30)
ERROR = st.fixed_dictionaries({}, optional={"message": JSON | st.just(" "), "code": JSON, "type": JSON, "status": JSON})
BODY = (JSON | ERROR | ERROR.map(lambda error: {"error": error})).map(lambda value: json.dumps(value).encode())


@fuzz(300)
@given(st.integers(300, 700), BODY | st.binary(max_size=40), AFTER, st.text(max_size=4))
def test_any_refusal_is_a_failure_with_words_and_a_code(status: int, body: bytes, after: str, request_id: str) -> None:
    error = classify_http_error(status, body, {"retry-after": after, "x-request-id": request_id}, where="w", secret="k")
    assert isinstance(error, LlmError) and error.failure.message and error.failure.code
    wait = retry_after_ms(after)
    assert wait is None or 0 < wait < float("inf")


@fuzz(200)
@given(JSON | ERROR)
def test_any_error_inside_a_stream_is_a_failure_with_words_and_a_code(error: Any) -> None:
    found = classify_in_band_error(error, {}, where="w", secret="k")
    assert found.failure.message and found.failure.code


@fuzz(300)
@given(TEXT | DAMAGED, PRINTABLE)
def test_any_text_is_edited_in_place_so_that_it_reads_as_intended(text: str, value: Any) -> None:
    was, problem = read(text)
    if problem is not None or "nan" in text.lower():
        return
    assert rewrite(text, was).text == text or was in (None, {})
    again, problem = read(rewrite(text, value).text)
    assert problem is None and (same_value(again, value) or (again is None and value == {}))
