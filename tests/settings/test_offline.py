"""What `dsh settings` shows of a section that its schema refuses."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from dsh.cordis import ConfigModel, field
from dsh.loader.home import resolve_home
from dsh.settings import offline


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
