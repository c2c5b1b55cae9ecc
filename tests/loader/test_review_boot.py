"""Corners of starting found in review."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsh.loader.boot import BootError
from tests.loader.kit import running, write_plugins

LEAKY = """
from dsh.cordis import ConfigModel, field

class Account(ConfigModel):
    token: str = field("", secret=True)

class Config(ConfigModel):
    accounts: list[Account]
    keys: dict[str, str] = field(default_factory=dict, secret=True)

def apply(ctx, config):
    raise RuntimeError(f"refused: {config.accounts[0].token} {config.keys['main']}")
"""


async def test_secrets_in_lists_and_mappings_are_masked_in_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_plugins(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "leaky.py").write_text(LEAKY)
    config = "{accounts: [{token: list-secret}], keys: {main: mapping-secret}}"
    with pytest.raises(BootError, match=r"refused: \*\*\* \*\*\*") as caught:
        async with running(tmp_path, f"- {{id: leaky, name: ./leaky.py, config: {config}}}\n"):
            raise AssertionError
    assert "list-secret" not in str(caught.value) and "mapping-secret" not in str(caught.value)
