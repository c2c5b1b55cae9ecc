"""What `dsh settings` shows of a section that its schema refuses."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from dsh.cordis import ConfigModel, field
from dsh.loader.fileio import lock_path
from dsh.loader.home import resolve_home
from dsh.settings import offline
from dsh.settings.document import DocumentError
from dsh.settings.sections import SettingsError


class Vault(ConfigModel):
    size: int = field(1, min=1, description="Size")
    key: str | None = field(None, secret=True, description="Key")


def test_a_refused_section_is_shown_without_its_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("vault_of_this_test")
    module.Vault = Vault  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vault_of_this_test", module)
    monkeypatch.setitem(offline.SECTIONS, "vault", "vault_of_this_test:Vault")
    for size in ("2", "-1"):  # what the schema takes, and what it refuses
        (tmp_path / "settings.yaml").write_text(f"vault: {{size: {size}, key: sk-secret}}\n")
        values = offline.OfflineSettings(resolve_home(tmp_path)).values()
        assert f"vault.size={size}" in [f"{each.key}={each.value}" for each in values]
        assert "sk-secret" not in repr(values)


def test_a_misspelt_section_gets_the_nearest_one() -> None:
    assert offline.validate_offline("agent-lop", {}) == [
        'section agent-lop is not a built-in one and is stored unchecked; did you mean "agent-loop"?'
    ]
    assert "(built-in: agent-default-model, " in offline.validate_offline("ui-theme", {})[0]


def test_a_key_that_the_section_does_not_have_is_refused_and_one_of_an_unknown_section_is_kept(tmp_path: Path) -> None:
    settings = offline.OfflineSettings(resolve_home(tmp_path))
    for key, value in (("agent-loop.maxParallelToolCall", 3), ("agent-loop", {"maxParallelToolCall": 3})):
        with pytest.raises(SettingsError) as refused:
            settings.set(key, value)
        assert str(refused.value) == (
            'agent-loop.maxParallelToolCall: unknown key; did you mean "maxParallelToolCalls"?'
        )
    assert not settings.path.exists()
    assert 'did you mean "agent-loop"' in settings.set("agent-lop.maxParallelToolCalls", 3)[0]
    settings.path.write_text("agent-loop: {old: 1}\n")
    assert settings.set("agent-loop.maxParallelToolCalls", 3) == ["agent-loop.old: unknown key" + KNOWN]
    assert settings.unset("agent-loop.old") == []
    assert settings.path.read_text() == "agent-loop: {maxParallelToolCalls: 3}\n"


KNOWN = " (known keys: maxParallelToolCalls)"


def test_every_section_that_a_built_in_plugin_installs_is_known(tmp_path: Path) -> None:
    calls = re.compile(r'install_settings_section\(\s*ctx,\s*(?:"([a-z-]+)"|(\w+))')
    sources = "\n".join(path.read_text("utf-8") for path in Path(offline.__file__).parents[1].rglob("*.py"))
    installed = {literal for literal, _ in calls.findall(sources) if literal}
    assert installed >= {"agent-loop", "console", "shell"} and installed <= offline.SECTIONS.keys()
    settings = offline.OfflineSettings(resolve_home(tmp_path))
    with pytest.raises(SettingsError, match='console.reasonin: unknown key; did you mean "reasoning"'):
        settings.set("console.reasonin", "whole")


def test_values_are_looked_at_before_the_lock_and_again_if_the_document_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = offline.OfflineSettings(resolve_home(tmp_path))
    looked: list[tuple[object, bool]] = []
    validate = offline.validate_offline

    def slow(ns: str, section: dict[str, object], *rest: object, **more: object) -> list[str]:
        looked.append((dict(section), lock_path(settings.path).exists()))
        if len(looked) == 1:
            settings.path.write_text("agent-loop: {a: 1}\n")  # somebody else, while this one takes its time
        return validate(ns, section, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(offline, "validate_offline", slow)
    settings.set("agent-loop.maxParallelToolCalls", 3)
    assert looked == [({"maxParallelToolCalls": 3}, False), ({"a": 1, "maxParallelToolCalls": 3}, True)]
    assert settings.path.read_text() == "agent-loop: {a: 1, maxParallelToolCalls: 3}\n"


def test_nothing_is_lost_between_writers_in_several_processes(tmp_path: Path) -> None:
    code = (
        "import sys; from dsh.loader.home import resolve_home; from dsh.settings.offline import OfflineSettings\n"
        "sys.stdin.readline(); settings = OfflineSettings(resolve_home(sys.argv[1]))\n"
        "for n in range(4): settings.set(f'mine.{sys.argv[2]}{n}', n)"
    )
    writers = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path), name], stdin=subprocess.PIPE) for name in "abc"
    ]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.close()
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    written = offline.OfflineSettings(resolve_home(tmp_path)).get("mine")
    assert written == {f"{name}{n}": n for name in "abc" for n in range(4)}


def test_a_document_that_its_owner_made_read_only_is_not_replaced(tmp_path: Path) -> None:
    settings = offline.OfflineSettings(resolve_home(tmp_path))
    settings.set("agent-loop.maxParallelToolCalls", 3)
    settings.path.chmod(0o444)
    with pytest.raises(DocumentError) as refused:
        settings.set("agent-loop.maxParallelToolCalls", 4)
    assert str(refused.value) == (
        "$DSH_HOME/settings.yaml: the file is read-only; `chmod u+w $DSH_HOME/settings.yaml` ends that"
    )
    assert settings.get("agent-loop.maxParallelToolCalls") == 3 and not lock_path(settings.path).exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mine: {a: 'MARK\n", "1:11: not valid YAML (the ' here is not closed: ' is missing)"),
        ("mine:\n  a: MARK\n b: 1\n", "3:2: not valid YAML (this line is indented by 1, the key above it by 2; "),
        ("mine: {a: MARK: b}\n", "1:15: not valid YAML ("),
        ("mine: *MARK\n", "1:7: not valid YAML (found undefined alias)"),
        ('mine: "\\MARK"\n', "1:8: not valid YAML (found unknown escape character)"),
        ("mine: {MARK: 1, MARK: 2}\n", "1:17: not valid YAML (a key stands twice)"),
    ],
)
def test_broken_text_is_explained_without_a_word_of_it(tmp_path: Path, text: str, said: str) -> None:
    settings = offline.OfflineSettings(resolve_home(tmp_path))
    settings.path.write_text(text)
    with pytest.raises(DocumentError) as refused:
        settings.sections()
    assert str(refused.value).startswith(f"$DSH_HOME/settings.yaml:{said}") and "MARK" not in str(refused.value)
