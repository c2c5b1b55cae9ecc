"""Changing values inside YAML text: what changes, and above all what does not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsh.loader.textedit import rewrite
from dsh.loader.yamlio import Expr, YamlError, dump_yaml, parse_yaml, same_value

ROWS = """\
# My agents.

- id: llm
  name: llm-deepseek   # the model
  config:
    apiKeyEnv: KEY     # never the key itself
    stop: [a,   b]

# tools below
- name: tool-fs
- id: group
  name: cordis:group
  config:
    # the shell
    - id: bash
      name: tool-bash
      disabled: !!js process.env.NO_SHELL
    - id: "todo"
      name: 'tool-todo'
# the end
"""


def set_value(text: str, path: list[str], value: Any) -> str:
    root = place = dict(parse_yaml(text) or {})
    for key in path[:-1]:
        place[key] = dict(place.get(key) or {})
        place = place[key]
    place[path[-1]] = value
    return rewrite(text, root).text


def unset_value(text: str, path: list[str]) -> str:
    root = place = dict(parse_yaml(text) or {})
    for key in path[:-1]:
        place = place.get(key, {})
    place.pop(path[-1], None)
    return rewrite(text, root).text


def rows(text: str = ROWS) -> Any:
    return parse_yaml(text)


def written(text: str, value: Any) -> str:
    """`text` rewritten as rows; it must not have been dumped anew."""
    result = rewrite(text, value, rows=True)
    assert not result.dumped
    assert same_value(parse_yaml(result.text), value)
    return result.text


def test_b13a_nothing_to_change_is_no_change() -> None:
    assert written(ROWS, rows()) == ROWS


def test_b13b_a_value_deep_inside_changes_and_nothing_else() -> None:
    value = rows()
    value[0]["config"]["apiKeyEnv"] = "OTHER"
    value[2]["config"][1]["name"] = "no"
    assert written(ROWS, value) == ROWS.replace("KEY  ", "OTHER  ").replace("'tool-todo'", "no")


def test_b13c_a_new_row_key_stands_after_the_name_and_a_new_row_at_the_end() -> None:
    value = rows()
    value[1]["config"] = {"root": ".", "deep": {"list": [1, {"a": "x: y"}]}}
    value.append({"id": "new", "name": "tool-x", "disabled": Expr("!env.X")})
    assert written(ROWS, value) == ROWS.replace(
        "- name: tool-fs\n",
        "- name: tool-fs\n  config:\n    root: .\n    deep:\n      list:\n        - 1\n        - a: 'x: y'\n",
    ).replace("# the end", "\n- id: new\n  name: tool-x\n  disabled: !!js '!env.X'\n# the end")


def test_b13d_a_removed_row_takes_its_own_comment_along() -> None:
    value = rows()
    del value[2]["config"][0]
    del value[1]
    assert written(ROWS, value) == ROWS.replace("# tools below\n- name: tool-fs\n", "").replace(
        "    # the shell\n    - id: bash\n      name: tool-bash\n      disabled: !!js process.env.NO_SHELL\n", ""
    )


def test_b13e_a_moved_row_keeps_its_text() -> None:
    value = rows()
    value[2]["config"].reverse()
    text = written(ROWS, value)
    shell = "    # the shell\n    - id: bash\n      name: tool-bash\n      disabled: !!js process.env.NO_SHELL\n"
    todo = "    - id: \"todo\"\n      name: 'tool-todo'\n"
    assert text == ROWS.replace(shell + todo, todo + shell)


def test_b13f_the_last_row_of_a_group_and_of_the_file_leave_empty_lists() -> None:
    value = rows()
    value[2]["config"].clear()
    text = written(ROWS, value)
    assert text.endswith("  config: []\n# the end\n")
    assert written(text, []).startswith("# My agents.\n")


def test_b13g_an_expression_is_written_as_it_was_given() -> None:
    value = rows()
    value[0]["disabled"] = Expr("process.env.X ?? true")
    value[1]["disabled"] = Expr("NAME:default", "!env")
    text = written(ROWS, value)
    assert "disabled: !!js process.env.X ?? true\n" in text
    assert "disabled: !env NAME:default\n" in text


@pytest.mark.parametrize(
    ("before", "path", "value", "after"),
    [
        ("a: 1 # c\n", ["a"], {"b": 2}, "a: # c\n  b: 2\n"),
        ("a: # c\n  b: 2\nz: 1\n", ["a"], 1, "a: 1 # c\nz: 1\n"),
        ("a:\n", ["a"], 1, "a: 1\n"),
        ("a: # later\n", ["a", "b"], 1, "a: # later\n  b: 1\n"),
        ("a: {}\n", ["a", "b"], 1, "a:\n  b: 1\n"),
        ("a: {b: 1}\n", ["a", "c"], {"d": [1]}, "a: {b: 1, c: {d: [1]}}\n"),
        ("a: |\n  text\n\n# c\nz: 1\n", ["a"], "x", "a: x\n\n# c\nz: 1\n"),
        ("a: 'x'\n", ["a"], "one\ntwo", "a: |-\n  one\n  two\n"),
        ("a:\n- 1\n- 2\n", ["a"], [3], "a:\n- 3\n"),
        ("a:\n- 1\n- 2\n", ["a"], {"b": 1}, "a:\n  b: 1\n"),
        ("{a: 1}", ["b"], "x\ny", '{a: 1, b: "x\\ny"}'),
        ("{}\n", ["a"], 1, "a: 1\n"),
        ("", ["a", "b"], 1, "a:\n  b: 1\n"),
        ("# only\n", ["a"], 1, "# only\na: 1\n"),
        ("a: 1", ["b"], 2, "a: 1\nb: 2"),
        ("\ufeffa: 1\n", ["a"], 2, "\ufeffa: 2\n"),
        ("a: 1\r\nb: 2\r\n", ["a"], {"x": 1}, "a:\r\n  x: 1\r\nb: 2\r\n"),
        ("base: &b {x: 1}\nuse: *b\n", ["use"], 2, "base: &b {x: 1}\nuse: 2\n"),
        ("a: 1\n", ["b"], "2024-01-01", "a: 1\nb: 2024-01-01\n"),
        ("a: 1\n", ["b"], "true", "a: 1\nb: 'true'\n"),
        (
            "a: 'x'\t# tabs are for one of the two parsers only\nb: 1\n",
            ["b"],
            2,
            "a: 'x'\t# tabs are for one of the two parsers only\nb: 2\n",
        ),
        ("a: 1\nb: [1,\t{u: http://x?y}]\n", ["a"], 2, "a: 2\nb: [1,\t{u: http://x?y}]\n"),
        ("a: 1\n", ["b"], "x\x85y\u2028", 'a: 1\nb: "x\\Ny\\L"\n'),
    ],
)
def test_b13h_single_values(before: str, path: list[str], value: Any, after: str) -> None:
    assert set_value(before, path, value) == after


@pytest.mark.parametrize(
    ("before", "path", "after"),
    [
        ("a: 1\n# of b\nb: 2 # x\nc: 3\n", ["b"], "a: 1\nc: 3\n"),
        ("a: 1\n\n# not of b\n\nb: 2\n", ["b"], "a: 1\n\n# not of b\n\n"),
        ("a: 1\nb: 2", ["b"], "a: 1"),
        ("{a: 1, b: 2, c: 3}", ["b"], "{a: 1, c: 3}"),
        ("{a: 1, b: 2}", ["b"], "{a: 1}"),
        ("a:\n  b: 1\n", ["a", "b"], "a: {}\n"),
        (
            "c: # of c\n  # of all\n  # b: 0\n  b: 1 # x\n  # d: 2\n\n  # e: 3\n# of f\nf: 1\n",
            ["c", "b"],
            "c: {} # of c\n# of all\n# b: 0\n# d: 2\n# e: 3\n# of f\nf: 1\n",
        ),
        ("a:\r\n  b: |\r\n    # text\r\n  # c\r\n", ["a", "b"], "a: {}\r\n# c\r\n"),
        ("a: 1\n", ["a"], ""),
        ("# head\n\na: 1\n", ["a"], "# head\n\n"),
        ("a: 1\n", ["x", "y"], "a: 1\n"),
    ],
)
def test_b13i_single_removals(before: str, path: list[str], after: str) -> None:
    assert unset_value(before, path) == after


def test_b13j_what_cannot_be_edited_in_place_is_dumped_under_its_leading_comment() -> None:
    text = "# head\n# more\n? key\n: a # inner\nb: 1\n"
    result = rewrite(text, {"key": "b", "b": 1})
    assert result.dumped
    assert result.text == "# head\n# more\nkey: b\nb: 1\n"


def test_b13k_text_that_is_no_yaml_is_an_error() -> None:
    with pytest.raises(YamlError):
        rewrite("a: [", {"a": 1})


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**6), 10**6),
    st.text(max_size=12),
    st.sampled_from(["no", "10", "a: b", "# c", "a\nb", "a\nb\n", "- x", "~", "{", "&a", "x #y", "'q'", '"']),
    st.builds(Expr, st.sampled_from(["a ? b : c", "x # y", "{a: 1}"])),
)
KEYS = st.sampled_from(["a", "b", "c", "long key", "1", "no", "x:y", "#k", "é"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=8,
)
DOCUMENTS = st.dictionaries(KEYS, VALUES, max_size=5)


@settings(max_examples=150, deadline=None)
@given(before=DOCUMENTS, after=DOCUMENTS, newline=st.sampled_from(["\n", "\r\n"]))
def test_b13l_any_document_becomes_any_other(before: Any, after: Any, newline: str) -> None:
    text = "# head\n\n" + dump_yaml(before).replace("\n", newline)
    result = rewrite(text, after)
    assert same_value(parse_yaml(result.text) or {}, after)
    assert result.text.startswith("# head\n")


@settings(max_examples=100, deadline=None)
@given(rest=DOCUMENTS, value=VALUES)
def test_b13m_a_change_in_one_place_leaves_the_other_lines_alone(rest: Any, value: Any) -> None:
    head = "# head\nfirst:\n  # about it\n  key: 1 # tail\n"
    tail = dump_yaml(rest) if rest else ""
    text = set_value(head + tail, ["first", "key"], value)
    assert text.startswith("# head\nfirst:\n  # about it\n  key:")
    assert text.endswith(tail)


AGENTS = """\
- id: loop
  name: agent-loop
  config:
    agents:
      # the first one
      - id: main
        # sessionId: mine
        model: m # for now
      - {id: other, stop: [a,  b]}
    names: [x,  y]
"""


def test_b13w_lists_are_edited_item_by_item() -> None:
    value = rows(AGENTS)
    agents = value[0]["config"]["agents"]
    agents[0]["model"] = "n"
    agents[1]["stop"].append("c")
    agents.append({"id": "third"})
    value[0]["config"]["names"][0] = "z: 1"
    text = AGENTS.replace("model: m", "model: n").replace("a,  b", "a,  b, c").replace("[x", "['z: 1'")
    assert written(AGENTS, value) == text.replace("    names", "      - id: third\n    names")
    del agents[0], value[0]["config"]["names"][0]
    agents[0]["stop"] = []
    end = "    agents:\n      - {id: other, stop: []}\n      - id: third\n    names: [y]\n"
    assert written(AGENTS, value) == AGENTS.partition("    agents")[0] + end


def test_an_item_whose_id_changes_is_edited_in_place() -> None:
    value = rows(AGENTS)
    agents = value[0]["config"]["agents"]
    agents[0]["id"], agents[1]["id"] = "renamed", "another"
    text = AGENTS.replace("id: main", "id: renamed").replace("id: other", "id: another")
    assert written(AGENTS, value) == text
    value = rows(AGENTS)
    value[0]["config"]["agents"][0] = {"id": "replaced"}  # another one, which the comments are not about
    assert "sessionId: mine" not in written(AGENTS, value)


SHARED = """\
- &a {id: one, name: x} # first
- id: two
  name: x
  config: &c
    k: 1 # kept
    l: [&v 1, 2]
    m: *v
- id: three
  name: x
  config: *c
"""


def test_b13x_what_shares_an_anchor_keeps_its_value_when_the_anchor_changes_or_goes() -> None:
    value = rows(SHARED)
    value[1]["config"]["l"][0] = 3
    text = written(SHARED, value)
    assert "l: [3, 2]" in text and "m: 1" in text and "k: 1 # kept" in text
    assert written(SHARED, [value[0], value[2]]).endswith("config: {k: 1, l: [1, 2], m: 1}\n")
    merged = "a: &a\n  k: 1\nb:\n  # of b\n  <<: *a\n  l: 2 # l\n"
    assert set_value(merged, ["b", "l"], 3) == merged.replace("l: 2", "l: 3")
    assert set_value(merged, ["b", "k"], 3) == merged + "  k: 3\n"
