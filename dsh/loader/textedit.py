"""Change values inside YAML text without touching the rest of it.

The text is edited, not dumped: comments, key order, quoting and blank lines of everything that keeps its value stay
byte for byte. `rewrite` goes from difference to difference: it parses the text, finds the first place that does not
say what it should, changes the few characters there and looks again, so what it returns has been read back and
compared. Only where that does not lead anywhere is the document dumped anew, with its leading comment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import SequenceMatcher
from typing import Any

import yaml

from dsh.cordis.records import record
from dsh.loader.list_items import match_items
from dsh.loader.rendering import STEP, is_block, is_literal, render_block, render_entry, render_flow
from dsh.loader.yaml_text import CannotEditError, Item, KeyValue, YamlText
from dsh.loader.yamlio import build_value, dump_yaml, parse_yaml, same_value

_MOST_EDITS = 500
_ANCHOR = re.compile(r"&([^\s,\[\]{}]+)")


@record
class Rewritten:
    """The new text, and whether it had to be dumped anew (its inner comments are then gone)."""

    text: str
    dumped: bool = False


def rewrite(text: str, intended: Any, *, rows: bool = False) -> Rewritten:
    """`text` changed so that it parses to `intended`.

    `rows` says that the document is a list of rows: lists are then edited item by item, mappings matched by `id`.
    Without it a list that differs is replaced whole. An empty mapping at the top may become a document without
    content. Raises the parser's error when `text` is no YAML.
    """
    bom = "\ufeff" if text.startswith("\ufeff") else ""
    body = text[len(bom) :]
    newline = "\r\n" if "\r\n" in body else "\n"
    parse_yaml(text)
    with suppress(CannotEditError, yaml.YAMLError):
        for _ in range(_MOST_EDITS):
            edit = _Document(body, newline, rows).first_edit(intended)
            if edit is None:
                return Rewritten(bom + body)
            body = body[: edit.start] + edit.text + body[edit.end :]
    lead = re.match(r"(?:[ \t]*(?:#[^\n]*)?\r?\n)*", body)  # the comment lines that it begins with
    return Rewritten(bom + (lead[0] if lead else "") + dump_yaml(intended).replace("\n", newline), dumped=True)


@record
class _Edit:
    start: int
    end: int
    text: str


class _Document(YamlText):
    """Produces the first edit that brings it closer to what is intended."""

    def __init__(self, text: str, newline: str, rows: bool) -> None:
        super().__init__(text)
        self._newline = newline
        self._rows = rows

    def first_edit(self, intended: Any) -> _Edit | None:
        root = self.root
        if root is None:
            if intended is None or same_value(intended, {}):
                return None
            return self._append_document(intended)
        if same_value(build_value(root), intended):
            return None
        if isinstance(intended, Mapping) and not intended and isinstance(root, yaml.MappingNode):
            return self._clear_root(root)
        inner = self._difference(root, intended, flow=False, rows=self._rows)
        edit = inner or self._replace_root(root, intended)
        return self._rescue(root, edit) or edit

    def _rescue(self, root: yaml.Node, edit: _Edit) -> _Edit | None:
        """Before an anchor goes, what refers to it gets the value itself."""
        lost = set(_ANCHOR.findall(self.text, edit.start, edit.end)) - set(_ANCHOR.findall(edit.text))
        for item in self._aliases(root) if lost else ():
            marker = self.text[item.start : item.end].strip()
            if marker.removeprefix("*") in lost and not edit.start <= item.start < edit.end:
                lead = " " if isinstance(item, KeyValue) else ""
                return _Edit(item.start, item.end, lead + render_flow(build_value(item.node), inside=True))
        return None

    def _aliases(self, node: yaml.Node) -> Iterator[Item]:
        parts: Sequence[Item] = ()
        if isinstance(node, yaml.MappingNode):
            parts = self.entries(node) or ()
        elif isinstance(node, yaml.SequenceNode):
            parts = self.items(node)
        for part in parts:
            if part.alias:
                yield part
            else:
                yield from self._aliases(part.node)

    def _difference(self, node: yaml.Node, want: Any, *, flow: bool, rows: bool) -> _Edit | None:
        """The first edit below `node`; None when its value has to be replaced whole by the caller."""
        if isinstance(node, yaml.MappingNode) and isinstance(want, Mapping) and want and node.value:
            return self._mapping_difference(node, want, flow=flow or bool(node.flow_style), rows=rows)
        if (
            self._rows
            and isinstance(node, yaml.SequenceNode)
            and isinstance(want, (list, tuple))
            and want
            and node.value
        ):
            return self._list_difference(node, want, flow=flow or bool(node.flow_style), rows=rows)
        return None

    def _mapping_difference(
        self, node: yaml.MappingNode, want: Mapping[str, Any], *, flow: bool, rows: bool
    ) -> _Edit | None:
        entries = self.entries(node)
        if entries is None or (node.flow_style and self.text[node.end_mark.index - 1] != "}"):
            return None
        known = {entry.name for entry in entries if not entry.merge}
        have = build_value(node) if len(known) < len(entries) else {}
        for entry in entries:
            if entry.merge or entry.name not in want or same_value(build_value(entry.node), want[entry.name]):
                continue
            new = want[entry.name]
            inner = None
            if not entry.alias:
                inner = self._difference(entry.node, new, flow=flow, rows=rows and entry.name == "config")
            return inner or self._replace(node, entry, new, flow=flow)
        for name, value in want.items():
            if name not in known and not (name in have and same_value(have[name], value)):
                return self._insert(node, entries, name, value, flow=flow, rows=rows)
        for at, entry in enumerate(entries):
            if not entry.merge and entry.name not in want:
                return self._delete([each.key.start_mark.index for each in entries], entries, at, flow=flow)
        for entry in entries:
            if entry.merge and isinstance(merged := build_value(entry.node), Mapping):
                kept = {name: value for name, value in merged.items() if name in want or name in known}
                if len(kept) < len(merged):
                    return _Edit(entry.colon + 1, entry.end, " " + render_flow(kept, inside=True))
        return None

    def _list_difference(self, node: yaml.SequenceNode, want: Sequence[Any], *, flow: bool, rows: bool) -> _Edit | None:
        items = self.items(node)
        have = build_value(node)
        old, new = match_items(have, want)
        operations = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
        # Additions before removals, so that a list is never emptied in between; from the end, so that the
        # positions in front of an edit stay what the matcher saw.
        for tag, _i1, i2, _j1, j2 in reversed(operations):
            if tag in ("insert", "replace"):
                key = new[j2 - 1]
                moves = key in old and old.count(key) == new.count(key)
                return self._insert_item(node, items, i2, want[j2 - 1], old.index(key) if moves else None, flow=flow)
        for tag, _i1, i2, _j1, _j2 in reversed(operations):
            if tag == "delete":
                starts = [item.start if flow else self.dash_of(node, item) for item in items]
                return self._delete(starts, items, i2 - 1, flow=flow)
        for at, (item, value, now) in enumerate(zip(items, want, have, strict=True)):
            if not same_value(now, value):
                inner = None
                if not item.alias:
                    inner = self._difference(item.node, value, flow=flow, rows=rows)
                return inner or self._replace_item(node, items, at, value, flow=flow)
        return None

    def _block(self, value: Any, indent: int) -> str:
        return self._newline.join(render_block(value, indent))

    def _replace(self, parent: yaml.MappingNode, entry: KeyValue, value: Any, *, flow: bool) -> _Edit:
        text = self.text
        after_colon = entry.colon + 1
        inline_old = "\n" not in text[after_colon : entry.start]
        literal_old = isinstance(entry.node, yaml.ScalarNode) and entry.node.style in ("|", ">") and not entry.alias
        if flow or (inline_old and not literal_old and not is_block(value) and not is_literal(value)):
            gap = text[after_colon : entry.start]
            lead = gap if gap and not gap.strip(" \t\r\n") else " "
            return _Edit(after_colon, entry.end, lead + render_flow(value, inside=flow))
        # The comment behind the key, or behind a value that ends on the key's line, stays on the key's line.
        comment = ""
        if not inline_old:
            comment = text[after_colon : self.line_end(after_colon)].rstrip()
        elif not literal_old:
            comment = text[entry.end : self.line_end(entry.end)].rstrip()
        indent = self.column_of(parent)
        if not inline_old and value == {} and isinstance(entry.node, yaml.MappingNode) and len(entry.node.value) == 1:
            return self._emptied(entry, indent)
        if not is_block(value):
            head, *tail = render_entry("", value, indent)
            return _Edit(after_colon, self.line_end(entry.end), self._newline.join([head + comment, *tail]))
        if inline_old:
            block = self._block(value, indent + STEP)
            return _Edit(after_colon, self.line_end(entry.end), comment + self._newline + block)
        column = indent + STEP
        if isinstance(entry.node, yaml.MappingNode) and isinstance(value, Mapping):
            column = self.column_of(entry.node)
        elif isinstance(entry.node, yaml.SequenceNode) and not isinstance(value, Mapping):
            column = int(entry.node.start_mark.column)
        return _Edit(self.line_start(entry.start), self.line_end(entry.end), self._block(value, column))

    def _emptied(self, entry: KeyValue, column: int) -> _Edit:
        """Take the last key out of a mapping; comments that stood around it stay, below and no deeper than its name."""
        text, after_colon = self.text, entry.colon + 1
        first = self.line_end(after_colon)
        stop = end = self.line_end(entry.end)
        while (start := self.next_line(stop)) < len(text):
            stop = self.line_end(start)
            line = text[start:stop]
            if line.strip() and (not line.strip().startswith("#") or len(line) - len(line.lstrip(" ")) <= column):
                break
            end = stop if line.strip() else end
        lines = [*text[first : entry.start].splitlines()[:-1], *text[self.line_end(entry.end) : end].splitlines()]
        kept = [" " * column + line.strip() for line in lines if line.strip()]
        return _Edit(after_colon, end, self._newline.join([" {}" + text[after_colon:first].rstrip(), *kept]))

    def _insert(
        self, node: yaml.MappingNode, entries: list[KeyValue], name: str, value: Any, *, flow: bool, rows: bool
    ) -> _Edit:
        if flow:
            at = entries[-1].end
            return _Edit(at, at, f", {render_flow(name, inside=True)}: {render_flow(value, inside=True)}")
        after = entries[-1]
        if rows:
            after = next((entry for entry in entries if entry.name == "name"), after)
        at = self.own_end(after.end, self.column_of(node))
        lines = render_block({name: value}, self.column_of(node))
        return _Edit(at, at, self._newline + self._newline.join(lines))

    def _delete(self, starts: Sequence[int], parts: Sequence[Item], at: int, *, flow: bool) -> _Edit:
        """Take out one key or item of several; `starts` is where each begins, with its key or its dash."""
        start, end = starts[at], parts[at].end
        if flow and at + 1 == len(parts):
            return _Edit(parts[at - 1].end, end, "")
        if flow or self.is_inside_line(start):  # the first one may stand behind the dash of a list item
            return _Edit(start, starts[at + 1], "")
        line = self.line_start(start)
        return self._drop_lines(line, self.own_end(end, start - line))

    def _drop_lines(self, line: int, end: int) -> _Edit:
        start, stop = self.with_comments_above(line), self.next_line(end)
        unended = stop == len(self.text) and not self.text.endswith("\n")
        if unended and start > 0 and not self.is_literal_before(start):  # the line before it must end the same way
            start -= 2 if self.text[:start].endswith("\r\n") else 1
        return _Edit(start, stop, "")

    def _replace_item(self, node: yaml.SequenceNode, items: list[Item], at: int, value: Any, *, flow: bool) -> _Edit:
        item = items[at]
        single = "\n" not in self.text[item.start : item.end]
        if flow or (single and not is_block(value) and not is_literal(value)):
            gap = "" if item.end > item.start or flow else " "  # an empty item ends at its dash
            return _Edit(item.start, item.end, gap + render_flow(value, inside=flow))
        start, pad = self.dash_of(node, item), " " * node.start_mark.column
        comment = self.text[item.end : self.line_end(item.end)].strip() if single else ""
        block = self._block([value], node.start_mark.column).removeprefix(pad)
        if comment.startswith("#") and not self.is_inside_line(start):
            block = f"{comment}{self._newline}{pad}{block}"
        return _Edit(start, self.line_end(item.end), block)

    def _insert_item(
        self, node: yaml.SequenceNode, items: list[Item], at: int, value: Any, moved: int | None, *, flow: bool
    ) -> _Edit:
        """Insert `value` as item `at`; one that stands elsewhere in the list is copied with its comments."""
        if flow:
            text = render_flow(value, inside=True)
            if at == 0:
                return _Edit(items[0].start, items[0].start, f"{text}, ")
            return _Edit(items[at - 1].end, items[at - 1].end, f", {text}")
        pad = " " * node.start_mark.column
        dashes = [self.dash_of(node, item) for item in items]
        if moved is None or self.is_inside_line(dashes[moved]):
            block = self._block([value], node.start_mark.column)
        else:
            start = self.with_comments_above(self.line_start(dashes[moved]))
            block = self.text[start : self.own_end(items[moved].end, node.start_mark.column)]
        if at == 0 and self.is_inside_line(dashes[0]):
            return _Edit(dashes[0], dashes[0], block.lstrip(" ") + self._newline + pad)
        if at == 0:
            line = self.line_start(dashes[0])
            start = self.with_comments_above(line)
            start = start or line  # a comment that opens the file is about the file
            return _Edit(start, start, block + self._newline)
        place = self.own_end(items[at - 1].end, node.start_mark.column)
        spaced = False
        if len(items) > 1:
            gap = self.text[items[0].end : self.line_start(dashes[1])]
            spaced = any(not line.strip() for line in gap.split("\n")[1:-1])
        return _Edit(place, place, self._newline * (2 if spaced else 1) + block)

    def _clear_root(self, root: yaml.MappingNode) -> _Edit:
        entries = self.entries(root)
        if root.flow_style or entries is None:
            return self._replace_root(root, {})
        return self._drop_lines(self.line_start(entries[0].key.start_mark.index), entries[-1].end)

    def _replace_root(self, root: yaml.Node, value: Any) -> _Edit:
        return _Edit(root.start_mark.index, self.end_of(root), self._document(value))

    def _document(self, value: Any) -> str:
        return self._block(value, 0) if is_block(value) else render_flow(value)

    def _append_document(self, value: Any) -> _Edit:
        end = len(self.text)
        lead = "" if not self.text or self.text.endswith("\n") else self._newline
        return _Edit(end, end, lead + self._document(value) + self._newline)
