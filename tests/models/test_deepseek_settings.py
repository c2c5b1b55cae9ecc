"""The settings section of the DeepSeek row, and credentials from the credentials service."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from dsh.core.seams import Settings
from dsh.settings.memory import MemorySettings
from dsh.settings.service import CredentialInfo, Credentials, ResolvedCredential, Secret
from tests.models.helpers import KEY, ROUTE, stack


class FakeCredentials(Credentials):
    """Values by reference."""

    values: dict[str, str] = {}

    async def resolve(self, ref: str) -> ResolvedCredential | None:
        value = self.values.get(ref)
        return None if value is None else ResolvedCredential(Secret(value), "file")

    def describe(self, ref: str) -> CredentialInfo:
        return CredentialInfo(ref in self.values, None, True)

    async def set(self, ref: str, value: Any) -> None:
        raise NotImplementedError

    async def unset(self, ref: str) -> None:
        raise NotImplementedError

    async def read_record(self, key: str) -> Any:
        raise NotImplementedError

    def describe_record(self, key: str) -> Any:
        raise NotImplementedError

    def list_records(self) -> Any:
        raise NotImplementedError

    async def modify_record(self, key: str, mutate: Any) -> Any:
        raise NotImplementedError

    async def delete_record(self, key: str) -> None:
        raise NotImplementedError


async def test_b32d_the_users_section_lies_over_the_row_and_reaches_the_next_request() -> None:
    async with stack(["success"] * 4, maxTokens=50) as s:
        await s.root.plugin(MemorySettings, {"sections": {"llm-deepseek": {"maxTokens": 7}}})
        await s.root.settle()
        settings = s.root[Settings]
        await s.reply()
        await settings.update("llm-deepseek", {"maxTokens": 8, "retryPolicy": {"maxRetries": 0}})
        await s.root.settle()
        await s.reply()
        policy = s.llm.provider_retry_policy(ROUTE)
        assert policy is not None and policy.max_retries == 0
        # An edit of the row reaches what the user's section leaves open.
        await s.row.update({**s.row.raw_config, "maxTokens": 60, "reasoningEffort": "low"})
        await s.reply()
        await settings.replace("llm-deepseek", {})
        await s.root.settle()
        await s.reply()
        sent = [(body["max_tokens"], body["reasoning_effort"]) for body in s.server.bodies]
        assert sent == [(7, "high"), (8, "high"), (8, "low"), (60, "low")]


async def test_b32e_a_section_that_fails_its_cross_checks_keeps_the_whole_old_generation(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with stack(["success"] * 2) as s:
        fiber = s.root.plugin(MemorySettings, {"sections": {"llm-deepseek": {"maxTokens": 7}}})
        await fiber
        await s.root.settle()
        settings = s.root[Settings]
        await s.reply()
        with caplog.at_level(logging.WARNING):
            broken = {"maxTokens": 9, "thinking": "disabled", "reasoningEffort": "high"}
            await settings.put({"llm-deepseek": broken})  # type: ignore[attr-defined]
            await s.root.settle()
            await s.reply()
        assert [body["max_tokens"] for body in s.server.bodies] == [7, 7]
        assert [body["thinking"]["type"] for body in s.server.bodies] == ["enabled"] * 2
        assert caplog.text.count("reasoningEffort") == 1


async def test_b32f_the_key_is_resolved_for_each_request() -> None:
    async with stack(["success"] * 2, key=None, server={"api_key": KEY}) as s:
        await s.root.plugin(FakeCredentials)
        credentials = s.root[Credentials]
        credentials.values = {"DEEPSEEK_API_KEY": "sk-wrong"}  # type: ignore[attr-defined]
        assert (await s.reply()).finish["failure"]["code"] == "AUTH"
        credentials.values = {"DEEPSEEK_API_KEY": KEY}  # type: ignore[attr-defined]
        assert (await s.reply()).finish == {"kind": "stop"}
        assert s.llm.usable(ROUTE) is None
