"""Corners of config models found in review: secrets below validated lists."""

from __future__ import annotations

from typing import Annotated

from schema import And

from dsh.cordis import ConfigModel, field


class Account(ConfigModel):
    name: str
    token: str = field("", secret=True)


class Accounts(ConfigModel):
    accounts: list[Annotated[Account, And(lambda account: account.name != "")]]


def test_secrets_below_fields_with_validators_are_redacted() -> None:
    config = Accounts.validate({"accounts": [{"name": "a", "token": "hush"}]})
    assert config.to_wire() == {"accounts": [{"name": "a", "token": "hush"}]}
    assert config.to_wire(redact=True) == {"accounts": [{"name": "a", "token": "***"}]}
    assert config.simplify() == {"accounts": [{"name": "a", "token": "hush"}]}
    assert "hush" not in repr(config)
