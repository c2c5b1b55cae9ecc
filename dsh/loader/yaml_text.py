"""A YAML text with the place of each key, value, item, line and comment in it."""

from __future__ import annotations

import re
from typing import Any

import yaml

from dsh.cordis.records import record

from .yamlio import compose_yaml

_COLON = re.compile(r"[ \t]*:(?=[\s,\]}]|$)")
_NAME = r"[^\s,\[\]{}]+"
_ALIAS = re.compile(rf"\s*\*{_NAME}")
_ALIAS_ITEM = re.compile(rf"(?:[\s,-]|#[^\n]*)*(\*{_NAME})")


class CannotEditError(Exception):
    """The text holds something this editor does not change in place (explicit `?` keys, merges, …)."""


@record
class Item:
    """One item of a list node, with its span in the text."""

    node: yaml.Node
    start: int
    end: int
    alias: bool


@record
class KeyValue(Item):
    """One key of a mapping node, with the span of its value in the text."""

    key: Any
    name: str
    colon: int
    merge: bool


class YamlText:
    """One parse of a text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.root = compose_yaml(text)

    def entries(self, node: yaml.MappingNode) -> list[KeyValue] | None:
        """The keys of a mapping; `None` if one of them is no word or text."""
        entries = []
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                return None
            found = _COLON.match(self.text, key.end_mark.index)
            if found is None:
                return None
            colon = found.end() - 1
            start, end, alias = value.start_mark.index, self.end_of(value), False
            if start <= colon:  # an alias shares the node of its anchor, which stands earlier
                marker = _ALIAS.match(self.text, colon + 1)
                if marker is None:
                    return None
                start, end, alias = colon + 1, marker.end(), True
            merge = key.tag == "tag:yaml.org,2002:merge"
            entries.append(KeyValue(value, start, max(end, colon + 1), alias, key, key.value, colon, merge))
        return entries

    def items(self, node: yaml.SequenceNode) -> list[Item]:
        """The items of a list."""
        items: list[Item] = []
        at = node.start_mark.index + bool(node.flow_style)
        for item in node.value:
            start, alias = item.start_mark.index, item.start_mark.index < at
            if alias:
                marker = _ALIAS_ITEM.match(self.text, at)
                if marker is None:
                    raise CannotEditError("an alias that is not found")
                start, at = marker.span(1)
            else:
                at = self.end_of(item)
            items.append(Item(item, start, at, alias))
        return items

    def end_of(self, node: yaml.Node) -> int:
        """Where the content of `node` ends. The marks of block collections run on into trailing comments."""
        if isinstance(node, yaml.ScalarNode):
            if node.style in ("|", ">"):
                raw = self.text[node.start_mark.index : node.end_mark.index]
                header = raw.split("\n", 1)[0].split("#", 1)[0]
                kept = raw.removesuffix("\n").removesuffix("\r") if "+" in header else raw.rstrip()
                return int(node.start_mark.index + len(kept))
            return int(node.end_mark.index)
        assert isinstance(node, yaml.CollectionNode)
        if node.flow_style or not node.value:
            return int(node.end_mark.index)
        if isinstance(node, yaml.MappingNode):
            entries = self.entries(node)
            if entries is None:
                raise CannotEditError("a mapping with merges or explicit keys")
            return entries[-1].end
        assert isinstance(node, yaml.SequenceNode)
        return self.items(node)[-1].end

    def line_start(self, at: int) -> int:
        return self.text.rfind("\n", 0, at) + 1

    def line_end(self, at: int) -> int:
        """The end of the line holding `at`, in front of its line break."""
        end = self.text.find("\n", at)
        if end < 0:
            return len(self.text)
        return end - 1 if end > at and self.text[end - 1] == "\r" else end

    def next_line(self, at: int) -> int:
        end = self.text.find("\n", at)
        return len(self.text) if end < 0 else end + 1

    def own_end(self, at: int, column: int) -> int:
        """The end of the last line of a block in a collection at `column` whose content ends at `at`.

        Comments below it that are indented further than the collection are about what is inside the block.
        """
        end = self.line_end(at)
        while (start := self.next_line(end)) < len(self.text):
            line = self.text[start : self.line_end(start)]
            if not line.lstrip(" ").startswith("#") or len(line) - len(line.lstrip(" ")) <= column:
                break
            end = self.line_end(start)
        return end

    def with_comments_above(self, line_start: int) -> int:
        """The start of the comment lines that stand directly above a line, else the line itself."""
        start = line_start
        while start > 0:
            above = self.line_start(start - 1)
            if not self.text[above:start].lstrip(" \t").startswith("#"):
                break
            start = above
        return start

    @staticmethod
    def column_of(node: yaml.MappingNode) -> int:
        return int(node.value[0][0].start_mark.column) if node.value else int(node.start_mark.column)

    def dash_of(self, node: yaml.SequenceNode, item: Item) -> int:
        """Where the dash stands that opens `item`."""
        column = node.start_mark.column
        line = self.line_start(item.start)
        while self.text[line + column : line + column + 1] != "-" or self.text[line : line + column].strip(" -"):
            if line == 0:
                raise CannotEditError("a list item without a dash of its own")
            line = self.line_start(line - 1)
        return line + column

    def is_inside_line(self, at: int) -> bool:
        """Whether something stands before a position in its line: a list may open behind the dash of another."""
        return bool(self.text[self.line_start(at) : at].strip())

    def is_literal_before(self, at: int) -> bool:
        """Whether the value in front of a position is a block of text, which its last line break belongs to."""
        last: yaml.ScalarNode | None = None
        nodes = [self.root] if self.root is not None else []
        while nodes:
            node = nodes.pop()
            if isinstance(node, yaml.ScalarNode):
                starts = node.start_mark.index
                if starts < at and (last is None or starts > last.start_mark.index):
                    last = node
            else:
                nodes += [each for part in node.value for each in (part if isinstance(part, tuple) else [part])]
        return last is not None and last.style in ("|", ">")
