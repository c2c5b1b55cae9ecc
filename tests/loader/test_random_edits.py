"""A thousand random edits of realistic files: what was meant is there, and every line that was not meant is as it was.

The seed of a failing run is in its message; `DSH_EDIT_SEED=<seed>` repeats it, and another number tries other edits.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dsh.loader.rendering import render_flow
from dsh.loader.textedit import rewrite
from dsh.loader.yamlio import Expr, YamlError, YamlList, YamlMap, detach, parse_yaml, same_value

SEED = int(os.environ.get("DSH_EDIT_SEED") or 20261130)
ROUNDS, EDITS = 20, 50

TEXTS = [
    *("a", "b c", "no", "on", "010", "1e3", "~", "null", "true", "it's", 'say "hi"', "- x", "a: b", "x #y", "#", ""),
    *("{a}", "[", "&x", "*x", "!t", "%", "@x", "`", "2024-01-01", "12:30", "http://h/p?q=1&r#s", "\ttab", " lead"),
    *("=", "<<", "?", "? a", ":", "a:", "---", "...", "one\ntwo", "one\n\n  two\n", "\n", "# c\nx", "end ", "é😀"),
    *("x\u2028y", "\x85", "yes"),
]
KEYS = ["alpha", "beta", "maxTokens", "a b", "x:y", "no", "1", "é", "#k", "apiKeyEnv", "deep", "list", "true", ""]
SCALARS: list[Any] = [None, True, False, 0, 7, -3, 1.5, 1e300, Expr("env.X ?? 'y'"), Expr("NAME:d", "!env"), *TEXTS]

STARTER = Path(__file__).parents[2] / "cordis.yml"

ANCHORS = """\
# Shared parts.
- id: base
  name: ./a.py
  config: &shared # c1
    # c2
    k: 1 # c3
    words: &words [a,  "b"] # c4
- id: user
  name: ./a.py
  config: *shared # c5
- id: merged
  name: ./a.py
  config:
    <<: *shared # c6
    own: 2 # c7
    more:
      - *words
      # c8
      - &item {x: 1} # c9
      - *item # c10
"""


def make_text(random: Random) -> str:
    """A file as a person may have written it: every style, comments everywhere."""
    lines = ["# My composition.", ""] if random.random() < 0.7 else []
    lines += Writer(random).rows(0, 2)
    text = "\n".join(lines) + "\n"
    if random.random() < 0.2:
        text += "# the end\n"
    return text


class Writer:
    """Writes random rows in random styles."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._count = 0
        self._ids = 0

    def _comment(self, chance: float = 0.3) -> str:
        if self._random.random() > chance:
            return ""
        self._count += 1
        return f"{' ' * self._random.choice([1, 1, 2, 6])}# c{self._count}"

    def _between(self, indent: int) -> list[str]:
        lines = [] if self._random.random() < 0.85 else [""]
        comment = self._comment(0.2).strip()
        return [*lines, " " * indent + comment] if comment else lines

    def rows(self, indent: int, depth: int) -> list[str]:
        lines: list[str] = []
        for _ in range(self._random.randint(1, 4)):
            lines += self._between(indent)
            lines += self._row(indent, depth)
        return lines

    def _row(self, indent: int, depth: int) -> list[str]:
        random = self._random
        self._ids += 1
        row: list[tuple[str, Any]] = [("name", random.choice(["./plugins/a.py", "dsh-tools", "'quoted'"]))]
        if random.random() < 0.8:
            row.insert(0, ("id", f"row{self._ids}"))
        if depth and random.random() < 0.3:
            row[-1] = ("name", "cordis:group")
            head = self._mapping(indent + 2, row)
            config = [
                f"{' ' * (indent + 2)}config:{self._comment()}",
                *self.rows(indent + random.choice([2, 4]), depth - 1),
            ]
            lines = [*head, *config]
        elif random.random() < 0.15:
            inside = ", ".join(f"{key}: {value}" for key, value in row)
            return [f"{' ' * indent}- {{{inside}, config: {self._flow(2)}}}{self._comment()}"]
        else:
            lines = self._mapping(indent + 2, [*row, *([("config", ...)] if random.random() < 0.8 else [])])
        first = next(at for at, line in enumerate(lines) if line.strip() and not line.strip().startswith("#"))
        above = [line[2:] if line.startswith("  ") else line for line in lines[:first]]
        return [*above, f"{' ' * indent}- {lines[first][indent + 2 :]}", *lines[first + 1 :]]

    def _mapping(self, indent: int, pairs: list[tuple[str, Any]], depth: int = 3) -> list[str]:
        lines: list[str] = []
        for key, value in pairs:
            lines += self._between(indent)
            if value is ...:
                lines += self._entry(f"{' ' * indent}{key}:", indent, depth)
            else:
                lines.append(f"{' ' * indent}{key}: {value}{self._comment()}")
        return lines

    def _entry(self, head: str, indent: int, depth: int) -> list[str]:
        random = self._random
        kind = random.random()
        if depth and kind < 0.4:
            keys = random.sample([key for key in KEYS if key], random.randint(1, 4))
            inner = indent + random.choice([1, 2, 2, 4])
            pairs = [(render_flow(key), ...) for key in keys]
            return [head + self._comment(), *self._mapping(inner, pairs, depth - 1)]
        if depth and kind < 0.55:
            inner = indent + random.choice([0, 2, 2]) if head.strip() != "-" else indent + 2
            lines = [head + self._comment()]
            for _ in range(random.randint(1, 4)):
                lines += self._between(inner)
                lines += self._entry(f"{' ' * inner}-", inner, depth - 1)
            return lines
        if kind < 0.65:
            pad = " " * (indent + random.choice([1, 2, 4]))
            body = [
                pad + random.choice(["text", "# no comment", "more: text", "x"]) for _ in range(random.randint(1, 3))
            ]
            body.append(pad + "last")
            return [f"{head} {random.choice(['|', '>', '|-', '>-'])}{self._comment()}", *body]
        if kind < 0.7:
            return [f"{head}{self._comment()}"]
        if kind < 0.75:
            pad = " " * (indent + 4)
            return [f"{head} {{", f"{pad}p: 1, # in", f"{pad}q: [x,", f"{pad}  y]}}{self._comment()}"]
        return [f"{head} {self._flow(depth)}{self._comment()}"]

    def _flow(self, depth: int) -> str:
        random = self._random
        kind = random.random()
        if depth and kind < 0.2:
            return (
                "["
                + random.choice([", ", ",  "]).join(self._flow(depth - 1) for _ in range(random.randint(0, 3)))
                + "]"
            )
        if depth and kind < 0.4:
            keys = random.sample([key for key in KEYS if key], random.randint(0, 3))
            return "{" + ", ".join(f"{render_flow(key)}: {self._flow(depth - 1)}" for key in keys) + "}"
        value = random.choice(SCALARS)
        if isinstance(value, str) and random.random() < 0.5 and not re.search(r"[\n\x85\u2028\t]", value):
            return random.choice(["'" + value.replace("'", "''") + "'", '"' + value.replace('"', '\\"') + '"'])
        if random.random() < 0.03:
            return random.choice(["[1,\t2]", "{u: http://x?y}"])  # libyaml alone reads these
        return random.choice([render_flow(value, inside=True), "plain words", "0x1f", "don't", "!!js process.env.HOME"])


# --- edits ------------------------------------------------------------------------------------------------------------


@dataclass
class Edit:
    """What was done to the value at `path`: `set`, `add` (to the collection there) or `delete`."""

    kind: str
    path: tuple[Any, ...]


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values, in the order of the text."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from paths(item, (*path, key))


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def random_value(random: Random, depth: int = 2) -> Any:
    kind = random.random()
    if depth and kind < 0.15:
        return [random_value(random, depth - 1) for _ in range(random.randint(0, 3))]
    if depth and kind < 0.3:
        return {random.choice(KEYS): random_value(random, depth - 1) for _ in range(random.randint(0, 3))}
    return random.choice(SCALARS)


def is_rows(path: tuple[Any, ...], value: Any) -> bool:
    """Whether a list holds rows, which are told apart by their ids."""
    return isinstance(value, list) and all(isinstance(each, dict) and "name" in each for each in value)


def edit(random: Random, value: Any) -> Edit:
    """Change one thing in `value`."""
    while True:
        path = random.choice(list(paths(value)))
        found = at(value, path)
        kind = random.choice(["set", "set", "add", "delete"])
        if kind == "add" and isinstance(found, dict):
            fresh = [key for key in KEYS if key not in found]
            if fresh:
                found[random.choice(fresh)] = random_value(random)
                return Edit("add", path)
        elif kind == "add" and isinstance(found, list):
            row = {"id": f"new{random.randint(0, 10**9)}", "name": "x", "config": random_value(random)}
            new = row if is_rows(path, found) and len(path) != 1 else random_value(random)
            where = len(found) if not is_rows(path, found) else random.randint(0, len(found))
            found.insert(where, row if not path else new)
            return Edit("add", path)
        elif path and kind in ("set", "delete"):
            parent = at(value, path[:-1])
            row_like = len(path) == 1 or path[-1] in ("id", "name") or is_rows(path[:-1], parent)
            if kind == "delete":
                if path[-1] in ("id", "name") or (isinstance(parent, list) and parent.count(found) > 1):
                    continue  # of two equal items either may go
                alone = len(parent) == 1
                del parent[path[-1]]
                return Edit("set", path[:-1]) if alone else Edit("delete", path)
            if path[-1] in ("id", "name") and isinstance(found, str):
                parent[path[-1]] = f"renamed{random.randint(0, 10**9)}"
                return Edit("set", path)
            if row_like:
                continue
            parent[path[-1]] = random_value(random)
            return Edit("set", path)


# --- what may change --------------------------------------------------------------------------------------------------


def line_of(value: Any, path: tuple[Any, ...], lines: list[str]) -> int:
    """The line (from 0) that the key at `path` stands in, or the dash of the item."""
    if not path:
        return 0
    parent = at(value, path[:-1])
    mark = parent.marks[path[-1]]
    assert mark is not None
    line = int(mark.line) - 1
    if isinstance(parent, YamlList) and not in_flow(parent, lines):
        column = parent.mark.column - 1 if parent.mark is not None else 0
        while lines[line][column : column + 1] != "-" or lines[line][:column].strip(" -"):
            line -= 1
    return line


def in_flow(value: Any, lines: list[str]) -> bool:
    """Whether a collection is written in flow style."""
    if not isinstance(value, YamlMap | YamlList) or value.mark is None:
        return False
    return lines[value.mark.line - 1][value.mark.column - 1] in "[{"


def touched(value: Any, lines: list[str], what: Edit) -> tuple[int, int]:
    """The lines that the edit of `value` may change, as a range."""
    order = list(paths(value))
    path, kind = what.path, what.kind
    for length in range(len(path)):  # a collection in flow style is looked at as one
        if in_flow(at(value, path[:length]), lines):
            path, kind = path[:length], "set"
            break
    start = line_of(value, path, lines)
    after = [each for each in order[order.index(path) + 1 :] if each[: len(path)] != path]
    end = line_of(value, after[0], lines) if after else len(lines)
    while end - 1 > start and re.match(r"[ \t]*(#.*)?\r?$", lines[end - 1]):
        end -= 1
    end = max(end, start + 1)
    if kind == "delete" and after and re.match(r"[ -]*- ", lines[start]) and path[-1] in (0, *KEYS, "config"):
        end = line_of(value, after[0], lines) + 1  # what follows may take its place behind the dash
    place = at(value, path) if kind == "add" else at(value, path[:-1]) if path else None
    if place is not None and place.mark is not None:  # comments further in belong to what is above them
        while end < len(lines) and re.match(rf" {{{place.mark.column},}}#", lines[end]):
            end += 1
    if kind == "delete":
        while start and lines[start - 1].lstrip().startswith("#"):
            start -= 1
    return start, end


def is_pure(text: str) -> bool:
    """Whether the parser without libyaml reads the text too."""
    try:
        parse_yaml(text, pure=True)
    except YamlError:
        return False
    return True


def check(before: str, value: Any, wanted: Any, what: Edit, *, shared: bool) -> str:
    """Rewrite and judge; the new text."""
    result = rewrite(before, wanted, rows=True)
    assert not result.dumped, "it was dumped anew"
    text = result.text
    assert same_value(parse_yaml(text), wanted), "libyaml reads something else"
    if is_pure(before):
        assert same_value(parse_yaml(text, pure=True), wanted), "the pure parser reads something else"
    assert text.startswith("\ufeff") == before.startswith("\ufeff")
    assert "\r\n" not in before or not re.search(r"(?<!\r)\n", text), "line ends are mixed"
    old, new = ([line.rstrip("\r") for line in each.removeprefix("\ufeff").split("\n")] for each in (before, text))
    if not shared:
        start, end = touched(value, old, what)
        assert new[:start] == old[:start], f"a line above line {start + 1} changed"
        rest = old[end:]
        if rest == [""] and not new[-1].endswith("\n"):
            rest = rest if new[-1] == "" else []
        assert new[len(new) - len(rest) :] == rest or not rest, f"a line below line {end} changed"
    if what.kind == "add" and before.endswith("\n"):  # without it, a block of text at the end has to be written anew
        was, now = (set(re.findall(r"# c\d+|(?<=\n) *#[^\r\n]*", each)) for each in (before, text))
        gone = {each.strip() for each in was} - {each.strip() for each in now}
        assert not gone, f"comments are gone: {gone}"
    return text


@pytest.mark.parametrize("turn", range(ROUNDS))
def test_b13y_random_edits_leave_all_other_bytes_alone(turn: int) -> None:
    random = Random(SEED * 1000 + turn)
    first = {0: ANCHORS, 1: STARTER.read_text("utf-8") if turn < 7 else ""}.get(turn % 3)
    done = 0
    while done < EDITS:
        text = (first if done == 0 else None) or make_text(random)
        shared = "&shared" in text
        if random.random() < 0.25:
            text = text.replace("\n", "\r\n")
        if random.random() < 0.25:
            text = text.rstrip("\r\n")
        if random.random() < 0.25:
            text = "\ufeff" + text
        for _ in range(min(5, EDITS - done)):
            value = parse_yaml(text)
            wanted = detach(value)
            what = edit(random, wanted)
            try:
                text = check(text, value, wanted, what, shared=shared)
            except (AssertionError, YamlError) as error:
                after = rewrite(text, wanted, rows=True).text
                where = f"DSH_EDIT_SEED={SEED}, turn {turn}, edit {done}: {what}"
                raise AssertionError(f"{where}: {error}\n--- before\n{text}\n--- after\n{after}") from error
            done += 1
