"""The table of events, from the sources: what each is called, how it is dispatched, who sends it, who listens."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

MODES = ("Emit", "Parallel", "Serial", "Bail", "Waterfall")

MEANING = """\
`emit`: every listener hears it, what they return is dropped. `parallel`: awaited together. `serial`: awaited one after
another. `bail`: the first answer that is not `None` counts. `waterfall`: each listener is given the next one and may
change its answer, replace it or leave it out; `sync` without awaiting. *veto*: a listener that raises stops what was
about to happen. *of*: listeners registered through that object's context hear its events alone."""


@dataclass
class Declared:
    """One event class."""

    name: str
    mode: str
    marks: list[str]
    about: str
    payload: list[str]
    module: str
    class_name: str
    senders: set[str] = field(default_factory=set)
    listeners: set[str] = field(default_factory=set)


def render(package: Path) -> str:
    """The page."""
    events = _read(package)
    lines = ["# Events", "", "Written by `scripts/docs` from the sources.", "", MEANING, ""]
    by_space = defaultdict(list)
    for event in events:
        by_space[event.module.rpartition(".")[0]].append(event)
    for space in sorted(by_space):
        lines += [
            f"## {space}",
            "",
            "| event | mode | meaning | payload | sent by | heard by |",
            "|---|---|---|---|---|---|",
        ]
        for event in sorted(by_space[space], key=lambda each: each.name):
            cells = [
                f"`{event.name}`<br>`{event.module}.{event.class_name}`",
                ", ".join([event.mode, *event.marks]),
                event.about,
                ", ".join(event.payload) or "-",
                _short(event.senders),
                _short(event.listeners) or "plugins",
            ]
            lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
        lines.append("")
    return "\n".join(lines)


def _short(modules: set[str]) -> str:
    return ", ".join(f"`{module.removeprefix('dsh.')}`" for module in sorted(modules))


def _read(package: Path) -> list[Declared]:
    trees = dict(_modules(package))
    classes: dict[str, Declared] = {}
    for module, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and (event := _declared(node, module)) is not None:
                classes[node.name] = event
    by_name = {event.name: event for event in classes.values()}
    for module, tree in trees.items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            if isinstance(node.func, ast.Name) and node.func.id in classes:
                classes[node.func.id].senders.add(module)
            elif isinstance(node.func, ast.Attribute) and node.func.attr == "on" and node.args:
                heard = node.args[0]
                if isinstance(heard, ast.Name) and heard.id in classes:
                    classes[heard.id].listeners.add(module)
                elif isinstance(heard, ast.Constant) and heard.value in by_name:
                    by_name[heard.value].listeners.add(module)
    return list(classes.values())


def _modules(package: Path) -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        if "plugin_templates" not in parts:
            yield ".".join(part for part in parts if part != "__init__"), ast.parse(path.read_text("utf-8"))


def _declared(node: ast.ClassDef, module: str) -> Declared | None:
    options = {keyword.arg: keyword.value for keyword in node.keywords}
    base = next((ast.unparse(base).partition("[")[0] for base in node.bases), "")
    name = options.get("name")
    if base not in MODES or not isinstance(name, ast.Constant):
        return None
    mode = base.lower() + (" sync" if "sync" in options else "")
    marks = ["veto"] if "veto" in options else []
    if "scoped_by" in options:
        marks.append(f"of `{ast.unparse(options['scoped_by']).strip(chr(39))}`")
    about = " ".join((ast.get_docstring(node) or "").partition("\n\n")[0].split())
    payload = [
        f"`{each.target.id}: {ast.unparse(each.annotation)}`"
        for each in node.body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    ]
    return Declared(name.value, mode, marks, about, payload, module, node.name)
