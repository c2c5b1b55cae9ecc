"""The YAML dialect: what is typed, what is refused and where, what survives writing."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from dsh.loader.yamlio import (
    Expr,
    YamlError,
    YamlList,
    YamlMap,
    detach,
    dump_yaml,
    find_mark,
    parse_json,
    parse_value,
    parse_yaml,
    read_text,
    same_value,
)

both_parsers = pytest.mark.parametrize("pure", [False, True], ids=["c", "pure"])

TABLE: list[tuple[str, Any]] = [
    ("~", None),
    ("null", None),
    ("Null", None),
    ("NULL", None),
    ("", None),
    ("true", True),
    ("True", True),
    ("TRUE", True),
    ("false", False),
    ("False", False),
    ("FALSE", False),
    ("0", 0),
    ("-7", -7),
    ("+5", 5),
    ("010", 10),
    ("1_000", 1000),
    ("0b101", 5),
    ("0o17", 15),
    ("0xFf", 255),
    ("-0x10", -16),
    ("1.5", 1.5),
    ("1e3", 1000.0),
    ("-2.5E-1", -0.25),
    (".5", 0.5),
    (".inf", math.inf),
    ("-.inf", -math.inf),
    ("off", "off"),
    ("no", "no"),
    ("on", "on"),
    ("yes", "yes"),
    ("y", "y"),
    ("2024-01-01", "2024-01-01"),
    ("12:30:00", "12:30:00"),
    ("=", "="),
    ("tRue", "tRue"),
    ("1_", "1_"),
    ("0o8", "0o8"),
    ('"5"', "5"),
    ("'true'", "true"),
]


@both_parsers
@pytest.mark.parametrize(("text", "value"), TABLE, ids=[text or "empty" for text, _ in TABLE])
def test_b01a_plain_scalars(text: str, value: Any, pure: bool) -> None:
    read = parse_yaml(f"x: {text}\n", pure=pure)["x"]
    assert read == value and type(read) is type(value)


@both_parsers
def test_b01b_nan_and_keys(pure: bool) -> None:
    value = parse_yaml("{a: .nan, 1: x, on: y, ~: z, true: t}", pure=pure)
    assert math.isnan(value["a"])
    assert list(value) == ["a", "1", "on", "~", "true"]


@both_parsers
def test_b01c_expression_tags(pure: bool) -> None:
    value = parse_yaml("a: !!js ctx.x ?? 1\nb: !expr 'x: y'\nc: !env HOME:/root\nd: {__jsExpr: 1 + 1}\n", pure=pure)
    assert value["a"] == Expr("ctx.x ?? 1", "!!js")
    assert value["b"] == Expr("x: y", "!expr")
    assert value["c"] == Expr("HOME:/root", "!env")
    assert value["d"] == Expr("1 + 1", "!!js")
    long = parse_yaml("a: !<tag:yaml.org,2002:js> x\n", pure=pure)
    assert long["a"] == Expr("x", "!!js")


@both_parsers
@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, 'the key "a" stands twice (first in line 1)'),
        ("x:\n  1: a\n  '1': b\n", 3, 'the key "1" stands twice'),
        ("a: !!js\n", 1, "!!js needs an expression"),
        ("a: !!js ''\n", 1, "!!js needs an expression"),
        ("a: {__jsExpr: ''}\n", 1, "needs an expression"),
        ("a: 1\nb: !foo x\n", 2, "the tag !foo is not known here (allowed: !!js, !expr, !env)"),
        ("a: !!python/object:os.system x\n", 1, "not known here"),
        ("a: !!binary aGk=\n", 1, "not known here"),
        ("a: !!timestamp 2024-01-01\n", 1, "not known here"),
        ("a: !!set {x}\n", 1, "not known here"),
        ("a: !!js [x]\n", 1, "before a single value"),
        ("a: x: y\n", 1, "needs quotes"),
        ("a:\n\t- b\n", 2, "not tabs"),
        ("a: @x\n", 1, "needs quotes"),
        ("---\na\n---\nb\n", 3, "a second document"),
        ("a: *x\n", 1, "alias"),
        ("a: \x01\n", 1, "control character"),
        ("? [a]\n: b\n", 1, "a key must be a single word"),
        ("a: 'x\n", 1, "is not closed"),
        ("a: " + "9" * 5000, 1, "too many digits"),
        ("&a [*a]", 1, "alias that contains itself"),
        ("a: [" * 3 + "[" * 300 + "]" * 300 + "]" * 3, 1, ""),
    ],
)
def test_b01d_refused_with_the_line(text: str, line: int, says: str, pure: bool) -> None:
    with pytest.raises(YamlError) as caught:
        parse_yaml(text, file="cordis.yml", pure=pure)
    assert says in caught.value.reason
    assert str(caught.value).startswith("cordis.yml:")
    if says:
        assert caught.value.line == line


@both_parsers
def test_aliases_are_copied_and_merges_fill_gaps(pure: bool) -> None:
    value = parse_yaml("a: &a {x: [1], y: 2}\nb: {<<: *a, y: 3}\nc: *a\n", pure=pure)
    assert value["b"] == {"y": 3, "x": [1]}
    value["c"]["x"].append(2)
    assert value["a"]["x"] == [1]


def test_repeated_aliases_cannot_explode() -> None:
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 8)]
    with pytest.raises(YamlError, match="aliases may repeat too much"):
        parse_yaml("\n".join(lines))


@both_parsers
def test_every_key_and_item_has_a_place(pure: bool) -> None:
    value = parse_yaml("- id: a\n  config:\n    deep:\n      - one\n      - {two: 2}\n", file="f.yml", pure=pure)
    assert value.mark == ("f.yml", 1, 1)
    assert find_mark(value, [0, "config", "deep", 1, "two"]) == ("f.yml", 5, 10)
    assert find_mark(value, [0, "config", "deep", 1]) == ("f.yml", 5, 9)
    assert find_mark(value, [0, "config", "missing", "x"]) == ("f.yml", 2, 3)
    copy = detach(value)
    copy[0]["config"]["deep"].append("x")
    assert len(value[0]["config"]["deep"]) == 2 and find_mark(copy, [0, "config"]) == ("f.yml", 2, 3)


def test_json_files_have_places_too() -> None:
    value = parse_json('[\n\t{"id": "a", "config": {"__jsExpr": "1"}}\n]', file="c.json")
    assert value == [{"id": "a", "config": Expr("1")}]
    assert find_mark(value, [0, "id"]).line == 2  # type: ignore[union-attr]
    with pytest.raises(YamlError, match=r"c.json:2"):
        parse_json('{\n"a": nope}', file="c.json")
    with pytest.raises(YamlError, match="stands twice"):
        parse_json('{"a": 1, "a": 2}', file="c.json")


@pytest.mark.parametrize("pure", [False, True])
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("- id: a\n  config: {b: 1,\n    c: 2\n", "2:11: the { here is not closed: } is missing"),
        ("- [1\n- b: 2\n", "1:3: the [ here is not closed: ] is missing; line 2 cannot be part of it"),
        ("- id: a\n  name: 'open\n- id: b\n", "2:9: the ' here is not closed: ' is missing"),
        ("# [\n- [\n\n- id: a\n", "2:3: the [ here is not closed: ] is missing; line 4 cannot be part of it"),
        ("a: [\n", "1:4: the [ here is not closed: ] is missing"),
        ("- [1,\n- id: a\n", "2:1: this cannot stand within [ ] or { }; is one above not closed?"),
        ("a: [1, 2}\n", "1:9: a comma or ] is missing here"),
        ("a: b: c\n", "1:5: a second ': ' stands in this line; a value that contains ': ' needs quotes"),
        ("a: b\n  c: d\n", "2:4: this line is indented by 2, the key above it by 0; keys of one mapping"),
        ("a: 'x' y\n", "1:8: this does not belong to the value before it; put the whole value in quotes"),
        ("a:\n  b: 1\n c: 2\n", "3:2: this line is indented by 1, the key above it by 2; keys of one mapping"),
        ("- a\nb: 1\n", "2:1: this line is indented by 0, the key above it by 2; keys of one mapping"),
        (
            "- a: 1\n  b: 2\n  # c\n\n - d: 3\n",
            "5:2: this line is indented by 1, the item above it by 0; an item of a list",
        ),
        ("a: [1]]\n", "1:7: this ] closes nothing"),
        ("- a\n-b: 1\n", "2:1: this line is indented by 0, the item above it by 0; an item of a list begins"),
        ("a: 1\nb 2\nc: 3\n", "2:1: a colon is missing behind this key"),
        ('a: "x\nb: "y"\nc: 1\n', '1:4: the " here is not closed: " is missing; line 2 has the next one'),
    ],
)
def test_broken_text_is_blamed_where_it_began_with_what_to_do(text: str, says: str, pure: bool) -> None:
    with pytest.raises(YamlError) as caught:
        parse_yaml(text, file="a.yml", pure=pure)
    assert str(caught.value).startswith(f"a.yml:{says}")


def test_files_may_begin_with_a_bom_and_must_be_utf8(tmp_path: Path) -> None:
    path = tmp_path / "a.yml"
    path.write_bytes(b"\xef\xbb\xbf- caf\xc3\xa9\n")
    assert parse_yaml(read_text(path, "a.yml")) == ["café"]
    path.write_bytes(b"- a\n- caf\xe9\n")
    with pytest.raises(YamlError) as caught:
        read_text(path, "a.yml")
    assert caught.value.line == 2 and "not UTF-8" in caught.value.reason


def test_what_is_written_reads_back_equal() -> None:
    value = {
        "texts": [
            "off",
            "true",
            "10",
            "1e3",
            "~",
            "",
            "a: b",
            "# no",
            "two\nlines\n",
            "- x",
            "é",
            "0x1F",
            "null",
            "<<",
        ],
        "numbers": [0, -1, 1.5, 1e300, math.inf, 10**20],
        "others": [None, True, False, [], {}, [[1], {"a": []}]],
        "expressions": [Expr("ctx.a ?? 'x: y'"), Expr("[1, 2]", "!expr"), Expr("A:b", "!env"), Expr("a # b")],
        "10": "key that looks like a number",
    }
    text = dump_yaml(value)
    assert same_value(parse_yaml(text), value)
    assert same_value(parse_yaml(text, pure=True), value)
    assert "!!js ctx.a ?? 'x: y'" not in text.splitlines()[0]
    assert dump_yaml(YamlMap({"a": YamlList([Expr("1 + 1")])})) == "a:\n- !!js 1 + 1\n"


def test_equality_tells_flags_from_numbers_and_expressions_by_source() -> None:
    assert same_value({"a": [1, Expr("x")]}, YamlMap({"a": YamlList([1.0, Expr("x")])}))
    assert not same_value(True, 1)
    assert not same_value([0], [False])
    assert not same_value(Expr("x"), Expr("x", "!expr"))
    assert not same_value({"a": None}, {})
    assert not same_value("x", Expr("x"))


def test_json_strings_keep_characters_that_yaml_would_fold_or_refuse() -> None:
    """Found by fuzzing: both were read as something else when the file was read again for its places."""
    assert parse_json('{"a": "x\x85y\u2028z\u2029"}') == {"a": "x\x85y\u2028z\u2029"}
    value = parse_json('[{"name": "x", "config": {"__jsExpr": "1 + 1"}, "label": "\\ud83d\\ude00"}]')
    assert value == [{"name": "x", "config": Expr("1 + 1"), "label": "😀"}]
    assert isinstance(value[0], YamlMap)


@pytest.mark.parametrize("text", ["...\n", "x\n...", "x\n...\n", "...", "x\n\n", "\n"])
def test_a_text_whose_last_line_looks_like_the_end_of_a_document_is_kept(text: str) -> None:
    """Found by fuzzing: the last line was cut off as if it were the mark of the document's end."""
    for value in (text, {"a": text}, [{"a": [text]}]):
        assert parse_yaml(dump_yaml(value)) == value


@pytest.mark.parametrize("mark", "\x85\u2028\u2029")
def test_an_expression_with_a_foreign_line_break_is_written_as_it_is(mark: str) -> None:
    value = {"a": Expr(f"'x{mark}y'")}
    assert parse_yaml(dump_yaml(value)) == value


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ("fix issue #5", "fix issue #5"),
        ("two\nlines", "two\nlines"),
        (" spaced ", "spaced"),
        ("'quoted' # and told", "quoted"),
        ('"a\\tb"', "a\tb"),
        ("5 # of them", 5),
        ("[a, b]", ["a", "b"]),
        ("{a: b}", {"a": "b"}),
        ("true", True),
        ("", None),
        ("!!str 5", "5"),
    ],
)
def test_a_text_typed_on_a_command_line_stands_as_it_is(typed: str, value: Any) -> None:
    assert parse_value(typed) == value


@pytest.mark.parametrize("typed", ["{{cwd}} x", "%p", "'open", "@home"])
def test_what_is_no_value_on_a_command_line_is_refused(typed: str) -> None:
    with pytest.raises(YamlError):
        parse_value(typed)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 'open\nb: x\nc: '@scope/x'\n", 1, "the ' here is not closed: ' is missing; line 3 has the next one"),
        ("l: ['open, x]\nb: x\nc: 'y'\n", 1, "the ' here is not closed: ' is missing; line 3 has the next one"),
        ("a: 'open # don't\n", 1, "the ' here is not closed: ' is missing; line 1 has the next one"),
        ('a: "closed"\n@b: 1\n', 2, "a value that begins with this character needs quotes"),
        ('a: "closed"\n\tb: 1\n', 2, "a tab stands here; indent with spaces, not tabs"),
        ('- id: "closed"\n   name: x\n', 2, "this line is indented by 3, the key above it by 2"),
        ("k:\n  - 'closed'\n - b\n", 3, "this line is indented by 1, the item above it by 2"),
        ("- id: a\n<<<<<<< HEAD\n  name: b\n=======\n  name: c\n>>>>>>> x\n", 2, "unresolved merge conflict"),
        ("- id: a\n=======\n  name: c\n>>>>>>> x\n", 2, "an unresolved merge conflict is marked here"),
        ("- id: a\n  name: c\n>>>>>>> x\n", 3, "an unresolved merge conflict is marked here"),
        ("a: {{ tz }}\n", 1, "{{ }} needs quotes"),
    ],
)
@both_parsers
def test_what_broke_a_text_is_named_where_it_began(text: str, line: int, words: str, pure: bool) -> None:
    with pytest.raises(YamlError) as refused:
        parse_yaml(text, file="f.yml", pure=pure)
    assert words in refused.value.reason and refused.value.line == line
