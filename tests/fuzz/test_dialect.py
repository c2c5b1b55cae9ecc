"""The YAML dialect, rows, patches and expressions on any text and value: problems with a place, never an accident."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dsh.loader.expr import ExprError, Scope, check_expr, evaluate
from dsh.loader.patches import Layer, compose
from dsh.loader.problems import LoadError
from dsh.loader.rows import parse_rows
from dsh.loader.sources import Source
from dsh.loader.yamlio import Expr, YamlError, YamlList, YamlMap, dump_yaml, parse_json, parse_yaml, same_value
from tests.fuzz.kit import EDITS, JSON, fuzz, mutated

SAMPLE = (Path(__file__).parents[2] / "cordis.yml").read_text("utf-8")

PIECES = st.sampled_from(
    [
        "- ",
        "a: ",
        "b:\n  ",
        "\n",
        "  ",
        "\t",
        "{",
        "}",
        "[",
        "]",
        ", ",
        "'",
        '"',
        "|\n",
        ">-\n",
        "&x ",
        "*x",
        "<<: ",
        "!!js ",
        "!expr ",
        "!env A",
        "!!python/object:os.system",
        "!!binary ",
        "!x ",
        "? ",
        "# c\n",
        "---\n",
        "...\n",
        "%YAML 1.1\n",
        "010",
        "0x1F",
        "1e3",
        ".inf",
        ".nan",
        "-0",
        "-0.0",
        "1_000",
        "no",
        "null",
        "~",
        "true",
        "12:30:00",
        "2024-01-01",
        "id: x",
        "name: dsh-llm",
        "config: ",
        "\u2028",
        "\x85",
        "\ufeff",
        "😀",
        "\ud800",
        "\x07",
        "\r\n",
        "\r",
        "=",
        "@",
        "`",
        "9" * 5000,
    ]
)
TEXT = st.lists(PIECES | st.text(max_size=4), max_size=18).map("".join)
DAMAGED = st.tuples(st.just(SAMPLE.encode()), EDITS).map(lambda both: mutated(*both).decode("utf-8", "replace"))


def read(text: str, **how: Any) -> tuple[Any, YamlError | None]:
    try:
        return parse_yaml(text, file="f.yml", **how), None
    except YamlError as error:
        assert error.reason and error.file in ("", "f.yml") and error.line >= 0
        return None, error


@fuzz(400)
@given(TEXT | DAMAGED)
def test_any_text_is_a_value_or_an_error_with_its_place_and_both_parsers_agree(text: str) -> None:
    value, error = read(text)
    pure, pure_error = read(text, pure=True)
    if "\t" in text or "\ufeff" in text or "nan" in text.lower():
        return  # one of them takes a tab at the end of a line for nothing; NaN differs from itself
    assert (error is None) == (pure_error is None), (error, pure_error)
    if error is None:
        assert same_value(value, pure)


@fuzz(300)
@given(TEXT | DAMAGED)
def test_what_is_read_is_written_so_that_it_reads_back_equal(text: str) -> None:
    value, error = read(text)
    if error is None and "nan" not in text.lower():
        again, problem = read(dump_yaml(value))
        assert problem is None and same_value(again, value)


VALUE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=10)
    | PIECES
    | st.builds(
        Expr, st.text(min_size=1, max_size=6).map(str.strip).filter(bool), st.sampled_from(["!!js", "!expr", "!env"])
    ),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6) | PIECES, inner, max_size=4),
    max_leaves=12,
)
PRINTABLE = VALUE.filter(lambda value: _printable(value))


def _printable(value: Any) -> bool:
    """Whether YAML can carry every character at all (it has no way to write a lone surrogate)."""
    if isinstance(value, dict):
        return all(_printable(key) and _printable(item) for key, item in value.items()) and "__jsExpr" not in value
    if isinstance(value, list):
        return all(map(_printable, value))
    text = value.source if isinstance(value, Expr) else value
    if not isinstance(text, str):
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@fuzz(300)
@given(PRINTABLE)
def test_any_value_is_written_so_that_it_reads_back_equal(value: Any) -> None:
    text = dump_yaml(value)
    again, problem = read(text)
    assert problem is None, (text, problem)
    assert same_value(again, value) or (again is None and value is None), text


@fuzz(200)
@given(JSON.map(lambda value: json.dumps(value, ensure_ascii=False, indent=2)) | TEXT | st.text(max_size=20))
def test_json_is_a_value_or_an_error(text: str) -> None:
    try:
        value = parse_json(text, file="f.json")
    except YamlError as error:
        assert error.reason
        return
    if "__jsExpr" not in text:
        assert same_value(value, json.loads(text.removeprefix("\ufeff")))


def placed(value: Any) -> Any:
    """As the parser gives it: mappings and lists with places."""
    if isinstance(value, dict):
        return YamlMap({key: placed(item) for key, item in value.items()})
    if isinstance(value, list):
        return YamlList([placed(item) for item in value])
    return value


ROW_KEY = st.sampled_from(
    [
        "id",
        "name",
        "config",
        "disabled",
        "group",
        "inject",
        "isolate",
        "intercept",
        "label",
        "insert",
        "Name",
        "config_x",
    ]
)
WORD = st.sampled_from(["llm", "dsh-llm", "cordis:group", "cordis:include", "./x.py", "", "a.b", "true", "*"])
ANY = st.none() | st.booleans() | st.integers(-1, 2) | WORD | st.builds(Expr, st.sampled_from(["1", "env.X", "("]))
CONFIG = st.recursive(
    ANY, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ROW_KEY | WORD, inner, max_size=5), max_leaves=14
)
ROW = st.fixed_dictionaries({}, optional={"id": WORD | ANY, "name": WORD | ANY, "config": CONFIG, "insert": CONFIG})
ROWS = st.lists(ROW | CONFIG, max_size=4) | CONFIG


@fuzz(300)
@given(ROWS.map(placed))
def test_any_list_of_rows_is_rows_or_problems(rows: Any) -> None:
    before = copy.deepcopy(rows)
    parsed = parse_rows(rows, file="cordis.yml")
    assert same_value(rows, before)
    ids = [row.id for row in parsed.walk()]
    assert parsed.problems or len(ids) == len(set(ids))
    for problem in parsed.problems:
        assert problem.message and str(problem).startswith("cordis.yml")
    for row in parsed.walk():
        assert isinstance(row.id, str) and isinstance(row.name, str) and row.name


@fuzz(300)
@given(ROWS.map(placed), st.lists(ROWS.map(placed), max_size=3), st.booleans())
def test_any_patches_over_any_rows_change_neither_and_explain_themselves(
    rows: Any, layers: list[Any], soft: bool
) -> None:
    before = copy.deepcopy((rows, layers))
    composition = compose(rows, "cordis.yml", [Layer(f"patch {at}", items, soft) for at, items in enumerate(layers)])
    assert same_value([rows, layers], list(before))
    for problem in [*composition.problems, *composition.warnings]:
        assert problem.message
    parse_rows(composition.rows, file="cordis.yml")
    again = compose(rows, "cordis.yml", [Layer(f"patch {at}", items, soft) for at, items in enumerate(layers)])
    assert same_value(again.rows, composition.rows)


SET = st.lists(
    st.sampled_from(["a", "b", ".", "=", "config", "llm", "[", "1", "!!js x", "{x: 1}", "__proto__"]), max_size=7
)


@fuzz(200)
@given(ROWS.map(placed), st.lists(SET.map("".join), max_size=3))
def test_any_set_arguments_over_any_rows(rows: Any, sets: list[str]) -> None:
    try:
        text = dump_yaml(rows)
    except UnicodeEncodeError:
        return
    source = Source(Path("/nowhere/cordis.yml"), sibling=False, sets=sets)
    try:
        reading = source.read(texts={Path("/nowhere/cordis.yml"): text})
    except LoadError as error:
        assert error.problems and all(problem.message for problem in error.problems)
        return
    assert isinstance(reading.composition.rows, list)


SCOPE = Scope({"X": "1"}, "/cwd", Path("/base"), None, lambda *parts: "/home", ("python",))
TOKENS = st.sampled_from(
    [
        "1",
        "0x",
        "1e999",
        "'a'",
        '"',
        "env",
        "env.X",
        ".",
        "?.",
        "??",
        "?",
        ":",
        "(",
        ")",
        "[",
        "]",
        ",",
        "+",
        "-",
        "*",
        "/",
        "%",
        "!",
        "==",
        "===",
        "<",
        "&&",
        "||",
        " if ",
        " else ",
        " not ",
        " in ",
        "true",
        "null",
        "undefined",
        "ctx",
        "__class__",
        "constructor",
        "len",
        "String",
        "JSON",
        "Math.max",
        "[1,2]",
        ".length",
        ".map",
        "...",
        "=>",
        "`",
        "{",
        "9" * 400,
        "'a' * 1000000000",
        "10 ** 10",
        "home('x')",
        "\\u",
        "\n",
        "😀",
        "path",
        "URL",
        "'x'.repeat(99999999)",
    ]
)
SOURCE = st.lists(TOKENS | st.text(max_size=3), max_size=14).map("".join)


@fuzz(500)
@given(SOURCE)
def test_any_expression_is_a_value_or_the_one_error(source: str) -> None:
    try:
        check_expr(Expr(source))
    except ExprError as error:
        assert error.reason
        return
    try:
        value = evaluate(Expr(source), SCOPE)
    except ExprError as error:
        assert error.reason
        return
    repr(value)


@fuzz(100)
@given(st.integers(1, 4000), st.sampled_from(["(", "[", "-", "!", "a?", "[1,", "env.", "1+", "not "]))
def test_deep_expressions_and_documents_are_refused_and_not_followed(depth: int, token: str) -> None:
    try:
        evaluate(Expr(token * depth + "1"), SCOPE)
    except ExprError:
        pass
    read("[" * depth)
    read("{a: " * depth)
    read("- " * depth + "x")
