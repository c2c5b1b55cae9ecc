"""The mistakes that people make in a cordis.yml, each made in one small composition that is right without it."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Final

COMPOSITION: Final = """\
# Who the agent is, and what it may do.
- id: agent-loop
  name: dsh-agent-loop
  config:
    maxParallelToolCalls: 10
    agents:
      - id: main
        model: demo
        provider: demo
- id: llm-deepseek
  name: dsh-llm-deepseek
  config:
    apiKeyEnv: DEEPSEEK_API_KEY
    retryPolicy:
      maxRetries: 5
- id: llm-demo
  name: dsh-llm-demo
- id: clock
  name: ./plugins/clock.py
  config:
    timezone: local
- id: sessions
  name: dsh-session-persistence-jsonl
  config:
    root: !!js dshHomePath('sessions')
- id: credentials
  name: dsh-credentials-local
- id: llm
  name: dsh-llm
- id: session
  name: dsh-session
- id: system-prompt
  name: dsh-system-prompt
- id: tools
  name: dsh-tools
- id: agent
  name: dsh-agent
"""

PLUGINS: Final = {
    "hen": "from dsh.cordis import Service\n\n\nclass Hen(Service, name='hen'):\n    inject = ['egg']\n",
    "egg": "from dsh.cordis import Service\n\n\nclass Egg(Service, name='egg'):\n    inject = ['hen']\n",
}
"""Two that wait for each other."""

SECRET: Final = "sk-5ecret0123456789abcdef"
"""A key where it does not belong; it is never to be seen."""


@dataclass(frozen=True)
class BadInput:
    """One mistake: `right` becomes `wrong` in the composition, or another file or content stands in its place.

    `marked` is the line on which an editor that knows the schema marks it, `None` for what no schema can see.
    """

    name: str
    right: str = ""
    wrong: str = ""
    marked: int | None = None
    patch: str | None = None
    content: bytes | None = None
    folder: bool = False

    def text(self) -> str:
        """The composition with the mistake."""
        assert self.right in COMPOSITION
        return COMPOSITION.replace(self.right, self.wrong, 1) if self.right else COMPOSITION

    def make(self, work: Path) -> None:
        """Make the mistake in a folder, as an editor saves: by renaming."""
        file = work / "cordis.yml"
        if self.patch is not None:
            save(work / "cordis.patch.yml", self.patch.encode())
        elif self.folder:
            file.unlink()
            file.mkdir()
        else:
            save(file, self.text().encode() if self.content is None else self.content)

    def shown(self) -> str:
        """The mistake as a table shows it."""
        if self.patch is not None:
            return _listed("cordis.patch.yml", self.patch)
        if self.folder:
            return "cordis.yml is a folder\n"
        if self.content is not None:
            return f"cordis.yml has {len(self.content)} bytes: {self.content[:12]!r}\n"
        old, new = COMPOSITION.splitlines(), self.text().splitlines()
        shown = ["cordis.yml"]
        for kind, start, end, first, last in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
            if kind != "equal":
                shown += [f"    - {line}" for line in old[start:end]]
                shown += [f"{n:3} + {new[n - 1]}" for n in range(first + 1, last + 1)]
        return "\n".join([*shown, ""]).replace("\t", "→")


def _listed(name: str, text: str) -> str:
    return "\n".join([name, *(f"{n:3} | {line}" for n, line in enumerate(text.splitlines(), 1)), ""])


BAD_INPUTS: Final = (
    BadInput("misspelt row key", "dsh-agent-loop\n  config:", "dsh-agent-loop\n  confg:", 4),
    BadInput("misspelt config key", "maxParallelToolCalls", "maxParalelToolCalls", 5),
    BadInput("snake_case key", "maxParallelToolCalls", "max_parallel_tool_calls", 5),
    BadInput("wrong type", "Calls: 10", "Calls: many", 5),
    BadInput("number out of bounds", "Calls: 10", "Calls: 0", 5),
    BadInput(
        "wrong nesting",
        "  config:\n    maxParallelToolCalls: 10\n",
        "  maxParallelToolCalls: 10\n  config:\n",
        4,
    ),
    BadInput("tab", "    maxParallelToolCalls", "\tmaxParallelToolCalls", 5),
    BadInput("duplicate id", "- id: llm\n", "- id: session\n"),
    BadInput("missing name", "  name: dsh-llm-demo\n", "", 16),
    BadInput("unknown plugin", "dsh-llm-demo", "dsh-lm-demo", 17),
    BadInput("plugin file moved", "./plugins/clock.py", "./clock.py"),
    BadInput(
        "cycle", "- id: llm\n", "- id: hen\n  name: ./plugins/hen.py\n- id: egg\n  name: ./plugins/egg.py\n- id: llm\n"
    ),
    BadInput("missing provider", "- id: tools\n  name: dsh-tools\n", ""),
    BadInput("bad expression", "dshHomePath('sessions')", "dshHomePath('sessions'"),
    BadInput("unknown name in an expression", "dshHomePath('sessions')", "dshHomPath('sessions')"),
    BadInput("secret in place of its name", "apiKeyEnv: DEEPSEEK_API_KEY", f"apiKeyEnv: {SECRET}", 13),
    BadInput("secret under a key of its own", "apiKeyEnv: DEEPSEEK_API_KEY", f"apiKey: {SECRET}", 13),
    BadInput("number as string", "maxRetries: 5", "maxRetries: '5'", 15),
    BadInput("list for map", "    retryPolicy:\n      maxRetries", "    retryPolicy:\n      - maxRetries", 15),
    BadInput("map for list", "    agents:\n      - id: main\n", "    agents:\n        id: main\n", 7),
    BadInput("unknown agent key", "        model: demo", "        modle: demo", 8),
    BadInput("patch without match", patch="- id: agent-lop\n  config:\n    maxParallelToolCalls: 4\n"),
    BadInput("empty file", content=b""),
    BadInput("binary file", content=bytes(range(128, 256))),
    BadInput("directory", folder=True),
)


def save(file: Path, content: bytes) -> None:
    """Replace a file as editors do."""
    beside = file.with_name(f".{file.name}.new")
    beside.write_bytes(content)
    os.replace(beside, file)


def lay_out(work: Path, plugins: Path) -> None:
    """The composition and its plugins in an empty folder."""
    (work / "plugins").mkdir()
    shutil.copy(plugins / "clock.py", work / "plugins")
    for name, text in PLUGINS.items():
        (work / "plugins" / f"{name}.py").write_text(text)
    restore(work)


def restore(work: Path, comment: str = "") -> None:
    """Undo whichever mistake was made; a comment makes the file a new one."""
    file = work / "cordis.yml"
    if file.is_dir():
        file.rmdir()
    (work / "cordis.patch.yml").unlink(missing_ok=True)
    save(file, (COMPOSITION + comment).encode())
