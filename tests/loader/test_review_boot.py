"""Corners of starting found in review."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsh.cordis import Context
from dsh.loader.boot import BootError
from tests.cordis.helpers import errors
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


async def test_a_row_that_fails_at_the_start_is_told_once_in_the_report_which_masks_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_plugins(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "leaky.py").write_text(LEAKY)
    config = "{accounts: [{token: list-secret}], keys: {main: mapping-secret}}"
    (tmp_path / "inner.yml").write_text(f"- {{id: leaky, name: ./leaky.py, config: {config}}}\n")
    roots: list[Context] = []
    with pytest.raises(BootError, match='row "more:leaky"'):
        text = "- {id: more, name: cordis:include, config: {path: inner.yml}}\n"
        async with running(tmp_path, text, prepare=roots.append):
            raise AssertionError
    assert errors(roots[0]) == []


LEAVING = """
def apply(ctx, config):
    ctx.get("appExit")(3)
"""


async def test_a_row_that_fails_while_another_ends_the_run_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_plugins(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "leaving.py").write_text(LEAVING)
    text = "- {id: leaving, name: ./leaving.py}\n- {id: bad, name: ./note.py, config: {fail: true}}\n"
    async with running(tmp_path, text) as it:
        assert it.app.exit.code == 3
        assert errors(it.root) == ['cordis.yml:2: row "bad", apply of ./note.py: RuntimeError: bad cannot start']


SLOW = """
import asyncio

async def apply(ctx, config):
    while not any("still starting" in record.getMessage() for record in ctx.runtime.logs.records):
        await asyncio.sleep(0.01)
"""


async def test_a_start_that_takes_long_says_what_it_waits_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_plugins(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "slow.py").write_text(SLOW)
    text = "- {id: quick, name: ./note.py}\n- {id: slow, name: ./slow.py}\n"
    async with running(tmp_path, text, settle_limit=0.05) as it:
        said = [record.getMessage() for record in it.root.runtime.logs.records]
        assert said == ["still starting after 0.05 s: slow"]
        assert it.states() == {"quick": "active", "slow": "active"}


INNER = """
import asyncio

def apply(ctx, config):
    async def inner(child):
        while not any("still starting" in record.getMessage() for record in ctx.runtime.logs.records):
            await asyncio.sleep(0.01)

    ctx.plugin(inner)
"""


async def test_a_start_that_waits_for_what_a_row_mounted_names_the_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_plugins(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inner.py").write_text(INNER)
    async with running(tmp_path, "- {id: outer, name: ./inner.py}\n", settle_limit=0.05) as it:
        said = [record.getMessage() for record in it.root.runtime.logs.records]
        assert said == ["still starting after 0.05 s: outer (its plugin inner)"]
