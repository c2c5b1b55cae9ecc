"""Rows are found wherever a composition keeps them: in groups, in included files, not where they are turned off."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsh.cli.mounted import mounts
from dsh.cli.session_place import sessions_of

LOGS = "{id: logs, name: '@deepseek-ai/dsh-session-persistence-jsonl', config: {root: logs}}"
"""Keeps sessions in a folder beside its file."""


@pytest.mark.parametrize(
    ("text", "folder"),
    [
        (f"- {LOGS}", "logs"),
        (f"- {{id: g, name: cordis:group, config: [{LOGS}]}}", "logs"),
        ("- {id: i, name: cordis:include, config: {path: part/inner.yml}}", "part/logs"),
        (
            "- id: i\n  name: cordis:include\n"
            "  config: {path: part/inner.yml, patches: [{id: logs, config: {root: other}}]}",
            "part/other",
        ),
        (f"- {{id: g, name: cordis:group, disabled: true, config: [{LOGS}]}}", None),
        ("- {id: self, name: cordis:include, config: {path: cordis.yml}}", None),
    ],
    ids=["plain", "group", "include", "patched include", "turned off", "includes itself"],
)
def test_the_folder_of_sessions_is_that_of_the_row_that_runs(tmp_path: Path, text: str, folder: str | None) -> None:
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "inner.yml").write_text(f"- {LOGS}\n", "utf-8")
    file = tmp_path / "cordis.yml"
    file.write_text(text + "\n", "utf-8")
    assert sessions_of(file) == (None if folder is None else str(tmp_path / folder))
    assert mounts(file, "session-persistence-jsonl") == (folder is not None)


def test_the_folder_of_sessions_may_come_from_the_environment_files_that_a_run_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LOGS_FOLDER", raising=False)
    (tmp_path / ".env").write_text("LOGS_FOLDER=elsewhere\n", "utf-8")
    file = tmp_path / "cordis.yml"
    file.write_text(f"- {LOGS.replace('root: logs', 'root: !!js process.env.LOGS_FOLDER')}\n", "utf-8")
    assert sessions_of(file) == str(tmp_path / "elsewhere")
