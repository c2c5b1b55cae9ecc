"""The YAML dialect of config files: the JSON schema of YAML 1.2, plus expression tags, with a place for every key.

PyYAML's own loaders speak YAML 1.1, where `no` is false, `010` is eight and `12:30:00` a number. Here only null,
true/false, ints and floats are typed; everything else that is not quoted is a string. Mappings and lists come back
as `YamlMap` and `YamlList`, which remember the file, line and column of each key and item, so that an error about a
value can always say where it stands.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml
from yaml.reader import Reader
from yaml.representer import SafeRepresenter
from yaml.resolver import BaseResolver

from dsh.cordis.errors import HarnessError, describe_error
from dsh.cordis.jsonio import JsonDecodeError, decode, json_equal
from dsh.cordis.records import identity_struct, record

from .syntax_errors import explain_syntax

_CORE: Final = "tag:yaml.org,2002:"
_TAG_NAMES: Final = {_CORE + "js": "!!js", "!expr": "!expr", "!env": "!env"}
_LONG_TAGS: Final = {name: tag for tag, name in _TAG_NAMES.items()}
JSON_EXPR_KEY: Final = "__jsExpr"
"""How JSON writes an expression: `{"__jsExpr": "source"}`."""

MAX_DEPTH: Final = 100
MAX_NODES: Final = 200_000


class Mark(NamedTuple):
    """A place in a file; line and column count from 1. `file` is what messages show."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@record
class Expr:
    """An expression that stands for a value: its source and the tag it was written with (`!!js`, `!expr`, `!env`)."""

    source: str
    tag: str = "!!js"

    def __str__(self) -> str:
        return f"{self.tag} {self.source}"


class YamlMap(dict[str, Any]):
    """A mapping that knows where it (`mark`) and each of its keys (`marks`) stand."""

    __slots__ = ("mark", "marks")

    def __init__(
        self, items: Mapping[str, Any] = {}, mark: Mark | None = None, marks: Mapping[str, Mark] | None = None
    ) -> None:
        super().__init__(items)
        self.mark = mark
        self.marks: dict[str, Mark] = dict(marks) if marks is not None else {}


class YamlList(list[Any]):
    """A list that knows where it (`mark`) and each of its items (`marks`) stand."""

    __slots__ = ("mark", "marks")

    def __init__(
        self, items: Sequence[Any] = (), mark: Mark | None = None, marks: Sequence[Mark | None] | None = None
    ) -> None:
        super().__init__(items)
        self.mark = mark
        self.marks: list[Mark | None] = list(marks) if marks is not None else []


class YamlError(HarnessError, yaml.YAMLError):
    """Text that this dialect does not accept, with the place."""

    code = "BAD_YAML"

    def __init__(self, reason: str, file: str = "", line: int = 0, column: int = 0) -> None:
        place = ":".join(str(part) for part in (file, line or "", column or "") if part)
        super().__init__(f"{place}: {reason}" if place else reason)
        self.reason = reason
        self.file = file
        self.line = line
        self.column = column


class _Dialect(BaseResolver):
    """Which plain scalars are not strings."""


_NULL = re.compile(r"(?:~|null|Null|NULL|)$")
_BOOL = re.compile(r"(?:true|True|TRUE|false|False|FALSE)$")
_INT = re.compile(
    r"[-+]?(?:0b[01_]*[01]|0o[0-7_]*[0-7]|0x[0-9a-fA-F_]*[0-9a-fA-F]|[0-9](?:[0-9_]*[0-9])?)$",
)
_FLOAT = re.compile(
    r"(?:[-+]?[0-9](?:[0-9_]*[0-9])?(?:\.[0-9_]*)?(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$",
)
_Dialect.add_implicit_resolver(_CORE + "null", _NULL, ["~", "n", "N", ""])
_Dialect.add_implicit_resolver(_CORE + "bool", _BOOL, list("tTfF"))
_Dialect.add_implicit_resolver(_CORE + "int", _INT, list("-+0123456789"))
_Dialect.add_implicit_resolver(_CORE + "float", _FLOAT, list("-+.0123456789"))
_Dialect.add_implicit_resolver(_CORE + "merge", re.compile(r"<<$"), ["<"])


def _int(text: str) -> int:
    digits = text.replace("_", "")
    sign = -1 if digits.startswith("-") else 1
    digits = digits.lstrip("+-")
    base = {"0b": 2, "0o": 8, "0x": 16}.get(digits[:2], 10)
    return sign * int(digits[2:] if base != 10 else digits, base)


def _float(text: str) -> float:
    plain = text.replace("_", "").lower()
    return float(plain.replace(".inf", "inf").replace(".nan", "nan"))


@identity_struct
class _Builder:
    """Turns a composed node tree into plain values with marks."""

    _file: str
    _left: int = MAX_NODES

    def build(self, node: yaml.Node, depth: int = 0) -> Any:
        self._left -= 1
        if depth > MAX_DEPTH:
            raise self._error(node, f"nested more than {MAX_DEPTH} levels deep, or an alias that contains itself")
        if self._left < 0:
            raise self._error(node, f"more than {MAX_NODES} values; aliases may repeat too much")
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        if isinstance(node, yaml.SequenceNode):
            self._expect(node, _CORE + "seq")
            items = [self.build(item, depth + 1) for item in node.value]
            return YamlList(items, self._mark(node), [self._mark(item) for item in node.value])
        self._expect(node, _CORE + "map")
        assert isinstance(node, yaml.MappingNode)
        return self._mapping(node, depth)

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        tag, text = node.tag, node.value
        if tag == _CORE + "str" or tag == _CORE + "merge":
            return text
        name = _TAG_NAMES.get(tag)
        if name is not None:
            if not text.strip():
                raise self._error(node, f"{name} needs an expression after it")
            return Expr(text.strip(), name)
        try:
            if tag == _CORE + "null" and _NULL.match(text):
                return None
            if tag == _CORE + "bool" and _BOOL.match(text):
                return text.lower() == "true"
            if tag == _CORE + "int" and _INT.match(text):
                return _int(text)
            if tag == _CORE + "float" and _FLOAT.match(text):
                return _float(text)
        except ValueError:
            raise self._error(node, "the number has too many digits") from None
        raise self._bad_tag(node)

    def _mapping(self, node: yaml.MappingNode, depth: int) -> Any:
        result = YamlMap(mark=self._mark(node))
        merged: list[YamlMap] = []
        for key_node, value_node in node.value:
            if key_node.tag == _CORE + "merge":
                merged.extend(self._merged(value_node, depth))
                continue
            key = self._key(key_node)
            mark = self._mark(key_node)
            if key in result:
                raise self._error(key_node, f'the key "{key}" stands twice (first in line {result.marks[key].line})')
            result[key] = self.build(value_node, depth + 1)
            result.marks[key] = mark
        for source in merged:
            for key, value in source.items():
                if key not in result:
                    result[key] = value
                    result.marks[key] = source.marks[key]
        if len(result) == 1 and JSON_EXPR_KEY in result:
            source_text = result[JSON_EXPR_KEY]
            if not isinstance(source_text, str) or not source_text.strip():
                raise self._error(node, f"{JSON_EXPR_KEY} needs an expression as text")
            return Expr(source_text.strip())
        return result

    def _merged(self, node: yaml.Node, depth: int) -> Iterator[YamlMap]:
        nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
        for item in nodes:
            value = self.build(item, depth + 1)
            if not isinstance(value, YamlMap):
                raise self._error(item, "<< merges mappings only")
            yield value

    def _key(self, node: yaml.Node) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise self._error(node, "a key must be a single word or text, not a list or mapping; {{ }} needs quotes")
        if node.tag in _TAG_NAMES or not node.tag.startswith(_CORE):
            raise self._error(node, "a key cannot carry a tag")
        return str(node.value)

    def _expect(self, node: yaml.Node, tag: str) -> None:
        if node.tag in _TAG_NAMES:
            raise self._error(node, f"{_TAG_NAMES[node.tag]} stands before a single value, not a list or mapping")
        if node.tag != tag:
            raise self._bad_tag(node)

    def _bad_tag(self, node: yaml.Node) -> YamlError:
        name = node.tag.replace(_CORE, "!!")
        value = f" on {node.value!r}" if isinstance(node, yaml.ScalarNode) and node.tag.startswith(_CORE) else ""
        return self._error(node, f"the tag {name}{value} is not known here (allowed: !!js, !expr, !env)")

    def _mark(self, node: yaml.Node) -> Mark:
        mark = node.start_mark
        return Mark(self._file, mark.line + 1, mark.column + 1)

    def _error(self, node: yaml.Node, reason: str) -> YamlError:
        mark = self._mark(node)
        return YamlError(reason, self._file, mark.line, mark.column)


class _DialectLoader(yaml.SafeLoader):
    yaml_implicit_resolvers = _Dialect.yaml_implicit_resolvers


if yaml.__with_libyaml__:

    class _CDialectLoader(yaml.CSafeLoader):
        yaml_implicit_resolvers = _Dialect.yaml_implicit_resolvers


def compose_yaml(text: str, *, pure: bool = False) -> yaml.Node | None:
    """The nodes of a document without a byte order mark; their marks hold positions in characters.

    Raises `yaml.YAMLError`. The two parsers differ in what they accept (libyaml takes tabs between tokens, and `?`
    inside plain text in flow style), so who edits a text must look at it with the one that reads it.
    """
    kind: Any = _DialectLoader if pure or not yaml.__with_libyaml__ else _CDialectLoader
    loader = kind(text)
    try:
        node: yaml.Node | None = loader.get_single_node()
    finally:
        loader.dispose()
    return node


def build_value(node: yaml.Node, file: str = "") -> Any:
    """The value of a composed node. Raises `YamlError`."""
    return _Builder(file).build(node)


def parse_yaml(text: str, *, file: str = "", pure: bool = False) -> Any:
    """The value of a YAML document; `None` if it is empty. `file` is what messages show.

    `pure` forces the parser written in Python. Raises `YamlError`.
    """
    text = text.removeprefix("\ufeff")
    bad = Reader.NON_PRINTABLE.search(text)
    if bad is not None:
        line = text.count("\n", 0, bad.start()) + 1
        column = bad.start() - text.rfind("\n", 0, bad.start())
        raise YamlError(f"the control character {bad[0]!r} is not allowed", file, line, column)
    try:
        node = compose_yaml(text, pure=pure)
        return None if node is None else build_value(node, file)
    except RecursionError:
        raise YamlError("nested too deeply", file) from None
    except YamlError:
        raise
    except yaml.MarkedYAMLError as error:
        reason, mark = explain_syntax(error, text)
        place = (mark.line + 1, mark.column + 1) if mark is not None else ()
        raise YamlError(reason, file, *place) from None
    except yaml.YAMLError as error:
        raise YamlError(describe_error(error).replace("\n", " "), file) from None


def parse_json(text: str, *, file: str = "") -> Any:
    """The value of a JSON document, with marks like YAML. Raises `YamlError`."""
    text = text.removeprefix("\ufeff")
    try:
        value = decode(text)
    except JsonDecodeError as error:
        line = text.count("\n", 0, error.position) + 1
        column = error.position - text.rfind("\n", 0, error.position)
        raise YamlError(str(error).split(" at character")[0], file, line, column) from None
    # Valid JSON is YAML, but for tabs between tokens and for characters that YAML takes for line breaks: reading it
    # again as such gives the places. Where the two differ (escaped surrogates) the places are missing.
    plain = _from_json(value, file)
    try:
        placed = parse_yaml(text.replace("\t", " ").translate(_JSON_BREAKS), file=file)
    except YamlError as error:
        if "stands twice" in error.reason or JSON_EXPR_KEY in error.reason:
            raise
        return plain
    return placed if same_value(placed, plain) else plain


_JSON_BREAKS: Final = str.maketrans({"\x85": "\\N", "\u2028": "\\L", "\u2029": "\\P"})


def _from_json(value: Any, file: str) -> Any:
    """A decoded JSON value as this module gives values, without places. Raises `YamlError`."""
    if isinstance(value, list):
        return YamlList([_from_json(item, file) for item in value])
    if not isinstance(value, dict):
        return value
    if value.keys() == {JSON_EXPR_KEY}:
        source = value[JSON_EXPR_KEY]
        if not isinstance(source, str) or not source.strip():
            raise YamlError(f"{JSON_EXPR_KEY} needs an expression as text", file)
        return Expr(source.strip())
    return YamlMap({key: _from_json(item, file) for key, item in value.items()})


def read_text(path: str | os.PathLike[str], file: str) -> str:
    """The text of a config file. Raises `OSError` if it cannot be read and `YamlError` if it is not UTF-8."""
    raw = Path(path).read_bytes()
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise YamlError(f"not UTF-8 text (it has the byte 0x{raw[error.start]:02x})", file, line) from None


def parse_value(text: str, file: str = "value") -> Any:
    """A value typed on a command line, as `parse_yaml` reads it; a text without quotes stands as it is, also where YAML
    would see a comment or join lines. Raises YamlError."""
    value, text = parse_yaml(text, file=file), text.strip()
    return text if isinstance(value, str) and text[:1] not in tuple("'\"|>!&") else value


def parse_text(text: str, path: str | os.PathLike[str], *, file: str = "") -> Any:
    """The value of a config text, read by the rules for `path`'s suffix."""
    return (parse_json if os.fspath(path).endswith(".json") else parse_yaml)(text, file=file)


def detach(value: Any) -> Any:
    """A deep copy that keeps the marks."""
    if isinstance(value, YamlMap):
        return YamlMap({key: detach(item) for key, item in value.items()}, value.mark, value.marks)
    if isinstance(value, Mapping):
        return YamlMap({str(key): detach(item) for key, item in value.items()})
    if isinstance(value, YamlList):
        return YamlList([detach(item) for item in value], value.mark, value.marks)
    if isinstance(value, (list, tuple)):
        return YamlList([detach(item) for item in value])
    return value


def find_mark(value: Any, keys: Sequence[str | int]) -> Mark | None:
    """The place of the value under `keys`, or of the nearest container around it that has one."""
    mark: Mark | None = getattr(value, "mark", None)
    for key in keys:
        step: Mark | None = None
        if isinstance(value, YamlMap) and isinstance(key, str):
            step = value.marks.get(key)
        elif isinstance(value, YamlList) and isinstance(key, int) and 0 <= key < len(value.marks):
            step = value.marks[key]
        if step is not None:
            mark = step
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            break
    return mark


def expressions_in(value: Any, keys: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Expr]]:
    """Every expression inside a value, with the keys that lead to it (behind `keys`)."""
    if isinstance(value, Expr):
        yield keys, value
        return
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from expressions_in(item, (*keys, key))


same_value = json_equal
"""Deep equality as a config file means it: a flag is no number, and expressions count by tag and source."""


class DialectDumper(yaml.SafeDumper):
    """Writes values so that this dialect reads them back equal: strings that look like something else get quotes."""

    yaml_implicit_resolvers = _Dialect.yaml_implicit_resolvers

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def choose_scalar_style(self) -> str:
        event: Any = self.event
        if event.tag in _TAG_NAMES:
            analysis = self.analysis = self.analysis or self.analyze_scalar(event.value)
            plain = analysis.allow_flow_plain if self.flow_level else analysis.allow_block_plain
            if plain and not analysis.multiline and not self.simple_key_context:
                return ""
        return str(super().choose_scalar_style())


_FOREIGN_BREAKS: Final = "\x85\u2028\u2029"
"""Characters that YAML 1.1 parsers take for line breaks: only escapes carry them."""


def _represent_expr(dumper: DialectDumper, value: Expr) -> yaml.Node:
    style = '"' if any(mark in value.source for mark in _FOREIGN_BREAKS) else None
    return dumper.represent_scalar(_LONG_TAGS[value.tag], value.source, style=style)


def _represent_text(dumper: DialectDumper, value: str) -> yaml.Node:
    if any(mark in value for mark in _FOREIGN_BREAKS):
        style: str | None = '"'
    else:
        style = "|" if "\n" in value else None
    return dumper.represent_scalar(_CORE + "str", str(value), style=style)


DialectDumper.add_representer(Expr, _represent_expr)
DialectDumper.add_representer(str, _represent_text)
DialectDumper.add_multi_representer(str, _represent_text)
DialectDumper.add_multi_representer(dict, SafeRepresenter.represent_dict)
DialectDumper.add_multi_representer(list, SafeRepresenter.represent_list)
DialectDumper.add_multi_representer(tuple, SafeRepresenter.represent_list)


def dump_yaml(value: Any) -> str:
    """`value` as a YAML document in block style, in this dialect."""
    text = yaml.dump(
        value, Dumper=DialectDumper, default_flow_style=False, width=float("inf"), allow_unicode=True, sort_keys=False
    )
    # The mark of a document's end, which stands alone in a line; a line of a text may look like it, but is indented.
    return str(text)[:-4] if str(text).endswith("\n...\n") else str(text)
