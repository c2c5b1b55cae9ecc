"""What every settings provider does: layers, writes, revisions, observation, redaction."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import anyio
import pytest

from dsh.cordis import ConfigModel, Context, InvariantError, field
from dsh.core.seams import Settings
from dsh.settings.base import SettingsUpdated
from dsh.settings.memory import MemorySettings
from dsh.settings.sections import SettingsConflictError, SettingsError
from tests.settings.helpers import Consumer, Loop, Route, settings_of, until


def in_memory(**sections: Any) -> Any:
    return settings_of(MemorySettings, {"sections": {ns.replace("_", "-"): value for ns, value in sections.items()}})


# --- 1: layers --------------------------------------------------------------------------------------------------------


async def test_b01a_defaults_then_row_then_user_and_lists_replace() -> None:
    async with in_memory(route={"model": "m2", "stop": ["u"], "headers": {"b": "user"}}) as (root, settings, consumer):
        base = {"model": "m1", "stop": ["r1", "r2"], "headers": {"a": "row", "b": "row"}, "reasoningEffort": "high"}
        scope = consumer.register(root, "route", Route, base)
        await root.settle()
        scope = consumer.scopes["route"]
        value = scope.get()
        assert value.provider == "deepseek-official"
        assert value.model == "m2"
        assert value.stop == ["u"]
        assert value.headers == {"a": "row", "b": "user"}
        assert value.reasoning_effort == "high"
        assert settings.get("route") is value
        assert settings.get("nobody") is None


async def test_b01b_none_in_a_patch_erases_nothing_and_the_base_is_never_baked_in() -> None:
    async with in_memory() as (root, settings, consumer):
        consumer.register(root, "route", Route, {"model": "row", "headers": {"a": "1"}})
        await root.settle()
        await settings.update("route", {"provider": "p", "headers": {"b": "2"}})
        await settings.update("route", {"provider": None, "headers": {"b": None}, "reasoningEffort": None})
        described = settings.describe()["route"]
        assert described["user"] == {"provider": "p", "headers": {"b": "2"}}
        assert described["base"] == {"model": "row", "headers": {"a": "1"}}
        assert described["value"]["headers"] == {"a": "1", "b": "2"}


async def test_b01c_an_empty_replace_and_the_end_of_the_provider_fall_back_to_the_row() -> None:
    from dsh.core.seams import install_settings_section

    class Row(ConfigModel):
        max_parallel_tool_calls: int = 10

    async with Context() as root:
        provider = root.plugin(MemorySettings, {"sections": {"agent-loop": {"maxParallelToolCalls": 3}}})
        await provider
        seen: list[int] = []
        sections: list[Any] = []

        def apply(ctx: Context) -> None:
            sections.append(
                install_settings_section(
                    ctx, "agent-loop", Loop, Loop.validate({"maxParallelToolCalls": 7}),
                    on_change=lambda value: seen.append(value.max_parallel_tool_calls),
                )
            )  # fmt: skip

        root.plugin(apply)
        await root.settle()
        section = sections[0]
        assert section.get().max_parallel_tool_calls == 3
        await root[Settings].replace("agent-loop", {})
        assert section.get().max_parallel_tool_calls == 7
        await root[Settings].update("agent-loop", {"maxParallelToolCalls": 4})
        await provider.dispose()
        await root.settle()
        assert section.get().max_parallel_tool_calls == 7
        assert seen == [3, 7, 4, 7]


async def test_b01d_a_stored_null_means_the_default() -> None:
    async with in_memory(agent_loop={"maxParallelToolCalls": None}) as (root, _settings, consumer):
        consumer.register(root, "agent-loop", Loop, {"maxParallelToolCalls": 7})
        await root.settle()
        assert consumer.scopes["agent-loop"].get().max_parallel_tool_calls == 10


async def test_b01e_names_duplicates_and_bad_stored_sections_fail_the_registration() -> None:
    async with in_memory(agent_loop={"maxParallelToolCalls": 0}, route={"model": "x"}) as (root, settings, consumer):
        with pytest.raises(SettingsError, match="must match"):
            settings.register("Agent", Loop)  # type: ignore[call-arg, arg-type]
        with pytest.raises(SettingsError, match="must be ≥ 1"):
            settings.register("agent-loop", Loop)  # type: ignore[call-arg, arg-type]

        def refuse(_value: Route) -> None:
            raise ValueError("no such preset")

        with pytest.raises(SettingsError, match="no such preset"):
            settings.register("route", Route, validate=refuse)  # type: ignore[call-arg, arg-type]
        consumer.register(root, "route", Route)
        await root.settle()
        with pytest.raises(SettingsError, match="already registered"):
            settings.register("route", Route)  # type: ignore[call-arg, arg-type]
        await consumer.fibers["route"].dispose()
        assert settings.get("route") is None
        settings.register("route", Route)  # type: ignore[call-arg, arg-type]


# --- 2: refused writes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [0, -1, 1.5, "x", True, [1]])
async def test_b02a_a_bad_value_is_refused_with_the_reason_and_changes_nothing(bad: Any) -> None:
    async with in_memory(agent_loop={"maxParallelToolCalls": 4}) as (root, settings, consumer):
        consumer.register(root, "agent-loop")
        await root.settle()
        with pytest.raises(SettingsError, match=r"agent-loop\.maxParallelToolCalls: must be"):
            await settings.update("agent-loop", {"maxParallelToolCalls": bad})
        assert consumer.scopes["agent-loop"].get().max_parallel_tool_calls == 4
        assert settings.describe()["agent-loop"]["revision"] == 0
        assert consumer.events == []


async def test_b02b_foreign_bad_content_keeps_the_old_value_warns_once_and_recovers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with in_memory(agent_loop={"maxParallelToolCalls": 4}) as (root, settings, consumer):
        consumer.register(root, "agent-loop")
        consumer.register(root, "route", Route)
        await root.settle()
        memory: Any = settings
        await memory.put({"agent-loop": {"maxParallelToolCalls": 0}, "route": {"model": "m2"}})
        await memory.put({"agent-loop": {"maxParallelToolCalls": 0}, "route": {"model": "m3"}})
        assert consumer.scopes["agent-loop"].get().max_parallel_tool_calls == 4
        assert consumer.scopes["route"].get().model == "m3"
        warnings = [record for record in caplog.records if "must be ≥ 1" in record.getMessage()]
        assert len(warnings) == 1
        await settings.update("route", {"model": "m4"})
        await memory.put({"agent-loop": {"maxParallelToolCalls": 5}, "route": {"model": "m4"}})
        assert consumer.scopes["agent-loop"].get().max_parallel_tool_calls == 5
        assert consumer.scopes["route"].get().model == "m4"


async def test_b02c_an_unknown_key_is_kept_and_warned_about_with_the_nearest(caplog: pytest.LogCaptureFixture) -> None:
    async with in_memory(agent_loop={"maxParallelToolCall": 4}) as (root, settings, consumer):
        consumer.register(root, "agent-loop")
        await root.settle()
        assert any('did you mean "maxParallelToolCalls"' in record.getMessage() for record in caplog.records)
        await settings.update("agent-loop", {"maxParallelToolCalls": 3})
        assert settings.describe()["agent-loop"]["user"] == {"maxParallelToolCall": 4, "maxParallelToolCalls": 3}


# --- 3: concurrency and revisions -------------------------------------------------------------------------------------


async def test_b03a_concurrent_updates_both_land_and_data_is_taken_at_the_call() -> None:
    async with in_memory() as (root, settings, consumer):
        consumer.register(root, "route", Route)
        await root.settle()
        patch = {"headers": {"a": "1"}}
        first = asyncio.ensure_future(settings.update("route", patch))
        await asyncio.sleep(0)
        patch["headers"]["a"] = "changed later"
        await asyncio.gather(first, settings.update("route", {"headers": {"b": "2"}}))
        assert consumer.scopes["route"].get().headers == {"a": "1", "b": "2"}
        assert settings.describe()["route"]["revision"] == 2


async def test_b03b_a_stale_revision_changes_nothing_and_says_both_numbers() -> None:
    async with in_memory() as (root, settings, consumer):
        consumer.register(root, "route", Route)
        await root.settle()
        await settings.update("route", {"model": "a"}, expected_revision=0)
        with pytest.raises(SettingsConflictError, match=r'"route".*1.*0') as caught:
            await settings.update("route", {"model": "b"}, expected_revision=0)
        assert (caught.value.code, caught.value.ns, caught.value.expected, caught.value.actual) == (
            "SETTINGS_CONFLICT", "route", 0, 1,
        )  # fmt: skip
        assert consumer.scopes["route"].get().model == "a"
        await settings.update("route", {"model": "c"}, expected_revision=1)


async def test_b03c_a_change_of_the_raw_section_alone_is_a_document_event_alone() -> None:
    async with in_memory() as (root, settings, consumer):
        consumer.register(root, "route", Route, {"model": "row"})
        await root.settle()
        await settings.update("route", {"model": "row"})
        assert consumer.events == [("document", "route", "1")]
        await settings.update("route", {"model": "row"})
        assert consumer.events == [("document", "route", "1")]
        await settings.update("route", {"model": "other"})
        assert consumer.events[1:] == [("document", "route", "2"), ("updated", "route", "update")]
        memory: Any = settings
        await memory.put({"route": {"model": "third"}, "unregistered": {"x": 1}})
        assert consumer.events[3:] == [
            ("document", "route", "3"), ("updated", "route", "provider"), ("document", "unregistered", "1"),
        ]  # fmt: skip


async def test_b03d_mutate_edits_in_order_and_refuses_malformed_operations_at_once() -> None:
    async with in_memory(route={"headers": {"a": "1"}, "model": "m"}) as (root, settings, consumer):
        consumer.register(root, "route", Route)
        await root.settle()
        await settings.mutate(
            "route",
            [
                {"op": "set", "path": ["headers", "b"], "value": "2"},
                {"op": "unset", "path": ["headers", "a"]},
                {"op": "unset", "path": ["not", "there"]},
                {"op": "unset", "path": ["model"]},
            ],
        )
        assert settings.describe()["route"]["user"] == {"headers": {"b": "2"}}
        await settings.mutate("route", [{"op": "set", "path": [], "value": {"model": "z"}}])
        assert settings.describe()["route"]["user"] == {"model": "z"}
        for bad in (
            {"op": "drop", "path": []},
            {"op": "set", "path": ["a"]},
            {"op": "set", "path": [], "value": 1},
            {"op": "set", "path": "a", "value": 1},
            {"op": "unset", "path": [1]},
        ):
            with pytest.raises(SettingsError, match="operation 0"):
                await settings.mutate("route", [bad])
        await settings.mutate("route", [{"op": "unset", "path": []}])
        assert "user" not in settings.describe()["route"]


async def test_b03e_only_json_data_is_taken_and_the_path_is_named() -> None:
    async with in_memory() as (root, settings, consumer):
        consumer.register(root, "route", Route)
        await root.settle()
        loop: dict[str, Any] = {}
        loop["self"] = loop
        shared = {"x": "1"}
        for bad in (math.nan, b"x", len, loop, {1: 2}):
            with pytest.raises(SettingsError, match=r"\$\.extra\.deep"):
                await settings.update("route", {"extra": {"deep": bad}})
        await settings.update("route", {"headers": shared, "extra": [shared, shared]})


async def test_b03f_each_refusal_has_its_own_code() -> None:
    async with in_memory() as (root, settings, _consumer):
        with pytest.raises(SettingsError) as caught:
            await settings.update("route", {})
        assert caught.value.code == "SETTINGS_NOT_REGISTERED"
    with pytest.raises(SettingsError) as caught:
        await settings.update("route", {})
    assert caught.value.code == "SETTINGS_DISPOSED"
    async with settings_of(MemorySettings, {"writable": False}) as (root, settings, consumer):
        consumer.register(root, "route", Route)
        await root.settle()
        with pytest.raises(SettingsError) as caught:
            await consumer.scopes["route"].update({"model": "x"})
        assert caught.value.code == "SETTINGS_READ_ONLY"


# --- 4: observers -----------------------------------------------------------------------------------------------------


async def test_b04a_failing_listeners_and_watchers_are_contained() -> None:
    async with in_memory() as (root, settings, consumer):
        consumer.register(root, "route", Route)
        await root.settle()
        seen: list[str] = []

        def bad(*_: object) -> None:
            raise RuntimeError("listener")

        root.on(SettingsUpdated, bad)
        root.on(SettingsUpdated, lambda e: seen.append(e.next.model))  # type: ignore[attr-defined]
        scope = consumer.scopes["route"]
        scope.watch(bad)

        async def bad_later(*_: object) -> None:
            raise RuntimeError("watcher")

        scope.watch(bad_later)
        scope.watch(lambda value, prev: seen.append(f"{prev.model}>{value.model}"))
        await settings.update("route", {"model": "a"})
        await settings.update("route", {"model": "b"})
        assert seen == ["deepseek-flash>a", "a", "a>b", "b"]


async def test_b04b_a_broken_invariant_reaches_the_writer_after_everybody_was_told() -> None:
    async with in_memory() as (root, settings, consumer):
        consumer.register(root, "route", Route)
        await root.settle()
        seen: list[str] = []

        def broken(*_: object) -> None:
            raise InvariantError("test", "broken")

        consumer.scopes["route"].watch(broken)
        consumer.scopes["route"].watch(lambda value, _prev: seen.append(value.model))
        with pytest.raises(InvariantError):
            await settings.update("route", {"model": "a"})
        assert seen == ["a"]
        assert consumer.scopes["route"].get().model == "a"
        assert ("updated", "route", "update") in consumer.events


async def test_b04c_an_async_watcher_never_overlaps_itself_and_a_stopped_one_starts_nothing_new() -> None:
    async with in_memory() as (root, settings, consumer):
        consumer.register(root, "route", Route)
        await root.settle()
        release = asyncio.Event()
        log: list[str] = []

        async def slow(value: Route, prev: Route) -> None:
            log.append(f"start {value.model}")
            await release.wait()
            log.append(f"end {value.model}")

        stop_first = consumer.scopes["route"].watch(slow)
        for model in ("a", "b"):
            await settings.update("route", {"model": model})
        await until(lambda: log == ["start a"])
        release.set()
        await until(lambda: log == ["start a", "end a", "start b", "end b"])
        release.clear()
        log.clear()
        for model in ("c", "d"):
            await settings.update("route", {"model": model})
        await until(lambda: log == ["start c"])
        stop_first()
        release.set()
        await until(lambda: "end c" in log)
        await anyio.sleep(0.02)
        assert log == ["start c", "end c"]


async def test_b04d_disposal_waits_for_watchers_and_writes_that_have_begun() -> None:
    class Slow(MemorySettings):
        gate: asyncio.Event
        entered: asyncio.Event

        async def persist(self, ns: str, apply: Any) -> Any:
            section = apply(self._document.get(ns, {}))
            if ns == "slow":
                Slow.entered.set()
                await Slow.gate.wait()
            self._document[ns] = section
            return section

    Slow.gate, Slow.entered = asyncio.Event(), asyncio.Event()
    log: list[str] = []
    async with Context() as root:
        provider = root.plugin(Slow)
        await provider
        consumer = Consumer()
        consumer.register(root, "route", Route)
        consumer.register(root, "slow", Route)
        await root.settle()

        async def watcher(value: Route, _prev: Route) -> None:
            await anyio.sleep(0.02)
            log.append(f"watched {value.model}")

        consumer.scopes["route"].watch(watcher)
        settings: Any = root[Settings]
        await settings.update("route", {"model": "a"})
        settings.revision("slow")
        stored = settings._document
        in_flight = asyncio.ensure_future(settings.update("slow", {"model": "s"}))
        await Slow.entered.wait()
        queued = asyncio.ensure_future(settings.update("route", {"model": "late"}))
        await asyncio.sleep(0)
        consumer.listen(root)
        gone = provider.dispose()
        await asyncio.sleep(0)
        Slow.gate.set()
        await gone
        await in_flight
        with pytest.raises(SettingsError, match="unloaded before the write began"):
            await queued
        assert log == ["watched a"]
        assert stored == {"route": {"model": "a"}, "slow": {"model": "s"}}
        assert consumer.events == []


async def test_b04e_the_writer_may_lose_interest_without_stopping_the_write() -> None:
    async with in_memory() as (root, settings, consumer):
        consumer.register(root, "route", Route)
        await root.settle()
        write = asyncio.ensure_future(settings.update("route", {"model": "a"}))
        await asyncio.sleep(0)
        write.cancel()
        await until(lambda: consumer.scopes["route"].get().model == "a")


async def test_b04f_an_async_watcher_may_write_itself() -> None:
    async with in_memory() as (root, settings, consumer):
        consumer.register(root, "route", Route)
        await root.settle()
        scope = consumer.scopes["route"]

        async def follow(value: Route, _prev: Route) -> None:
            if value.model == "a":
                await scope.update({"model": "b"})

        scope.watch(follow)
        await settings.update("route", {"model": "a"})
        await until(lambda: scope.get().model == "b")


# --- 5: redaction -----------------------------------------------------------------------------------------------------


class Account(ConfigModel):
    name: str = ""
    api_key: str | None = field(None, role="secret")


class Accounts(ConfigModel):
    token: str | None = field(None, secret=True)
    main: Account = field(default_factory=Account)
    spare: Account | None = None
    by_name: dict[str, Account] = field(default_factory=dict)
    listed: list[Account] = field(default_factory=list)
    vault: dict[str, str] = field(default_factory=dict, secret=True)
    plain: dict[str, str] = field(default_factory=dict)


async def test_b05_secrets_are_cut_from_every_container_and_layer() -> None:
    user = {
        "token": "S1",
        "main": {"name": "m", "apiKey": "S2"},
        "byName": {"x": {"name": "x", "apiKey": "S3"}, "y": {"name": "y"}},
        "listed": [{"name": "l", "apiKey": "S4"}, {"name": "k"}],
        "vault": {"a": "S5"},
        "plain": {"apiKey": "shown"},
    }
    async with in_memory(accounts=user) as (root, settings, consumer):
        consumer.register(root, "accounts", Accounts, {"main": {"apiKey": "S6"}})
        await root.settle()
        shown = settings.describe(redact_secrets=True)["accounts"]
        text = repr(shown)
        assert not [secret for secret in ("S1", "S2", "S3", "S4", "S5", "S6") if secret in text]
        assert shown["user"] == {
            "main": {"name": "m"},
            "byName": {"x": {"name": "x"}, "y": {"name": "y"}},
            "listed": [{"name": "l"}, {"name": "k"}],
            "plain": {"apiKey": "shown"},
        }
        assert shown["base"] == {"main": {}}
        slots = {tuple(slot["path"]): slot["set"] for slot in shown["secrets"]}
        assert slots == {
            ("token",): True,
            ("main", "apiKey"): True,
            ("spare", "apiKey"): False,
            ("byName", "x", "apiKey"): True,
            ("byName", "y", "apiKey"): False,
            ("listed", 0, "apiKey"): True,
            ("listed", 1, "apiKey"): False,
            ("vault",): True,
        }
        whole = settings.describe()["accounts"]
        assert whole["user"] == user
        assert "secrets" not in whole
        whole["user"]["main"]["name"] = "changed"
        assert settings.describe()["accounts"]["user"] == user


async def test_b05b_one_field_is_edited_without_erasing_the_secret_beside_it() -> None:
    async with in_memory(accounts={"main": {"name": "m", "apiKey": "S"}}) as (root, settings, consumer):
        consumer.register(root, "accounts", Accounts)
        await root.settle()
        await settings.mutate("accounts", [{"op": "set", "path": ["main", "name"], "value": "n"}])
        assert settings.describe()["accounts"]["user"] == {"main": {"name": "n", "apiKey": "S"}}


async def test_b05c_a_refusal_never_shows_a_secret() -> None:
    class Strict(ConfigModel):
        token: str | None = field(None, secret=True, pattern="^sk-")

    async with in_memory() as (root, settings, consumer):
        consumer.register(root, "accounts", Strict)
        await root.settle()
        with pytest.raises(SettingsError) as caught:
            await settings.update("accounts", {"token": "MARKER"})
        assert "MARKER" not in str(caught.value)
