"""Plugin configuration: validation before the body, live fields, taking updates over, restarts."""

import asyncio

import pytest
import schema

from dsh.cordis import (
    ConfigError,
    ConfigModel,
    ConfigResolve,
    ConfigUpdate,
    Context,
    CordisError,
    FiberState,
    Service,
    field,
    plugin,
)
from dsh.cordis.testing import harness
from tests.cordis.helpers import errors

ACTIVE, FAILED, PENDING = FiberState.ACTIVE, FiberState.FAILED, FiberState.PENDING


class Config(ConfigModel):
    greeting: str = field("Hello", live=True)
    max_count: int = field(3, min=1)
    token: str = field("", secret=True)


def greeter(log):
    @plugin(name="greeter", Config=Config)
    def body(ctx: Context, config: Config):
        log.append(("run", config.greeting, config.max_count))
        config.watch(lambda: log.append(("watch", config.greeting)))
        ctx.defer(lambda: log.append("undo"))

    return body


async def test_b24a_an_invalid_config_never_runs_the_body():
    log = []
    async with harness() as root:
        fiber = root.plugin(greeter(log), {"maxCount": 0})
        with pytest.raises(ConfigError) as caught:
            await fiber
        assert [path for path, _ in caught.value.issues] == ["maxCount"]
        assert log == []
        await fiber.update({"maxCount": 1})
        assert fiber.state is ACTIVE
        assert log == [("run", "Hello", 1)]


async def test_b24b_a_live_change_keeps_the_fiber_running():
    log = []
    async with harness() as root:
        fiber = await root.plugin(greeter(log))
        config = fiber.config
        await fiber.update({"greeting": "Hi"})
        assert fiber.config is config
        assert config.greeting == "Hi"
        assert log == [("run", "Hello", 3), ("watch", "Hi")]
        assert fiber.raw_config == {"greeting": "Hi"}


async def test_b24c_a_mixed_change_restarts():
    log = []
    async with harness() as root:
        fiber = await root.plugin(greeter(log))
        await fiber.update({"greeting": "Hi", "maxCount": 4})
        assert log == [("run", "Hello", 3), "undo", ("run", "Hi", 4)]


async def test_b24d_an_invalid_update_keeps_the_old_instance():
    log = []
    async with harness() as root:
        fiber = await root.plugin(greeter(log), {"maxCount": 2})
        with pytest.raises(ConfigError):
            await fiber.update({"maxCount": "many"})
        assert fiber.state is ACTIVE
        assert fiber.raw_config == {"maxCount": 2}
        assert log == [("run", "Hello", 2)]


async def test_b24e_a_secret_value_is_in_no_message():
    async with harness() as root:
        fiber = root.plugin(greeter([]), {"token": ["hunter2"], "maxCount": 0})
        await root.settle()
        assert fiber.state is FAILED
        assert "hunter2" not in str(fiber.error)
        assert "hunter2" not in "".join(errors(root))


async def test_b24f_an_equal_config_changes_nothing():
    log = []
    async with harness() as root:
        fiber = await root.plugin(greeter(log))
        await fiber.update({"greeting": "Hello"})
        assert log == [("run", "Hello", 3)]


async def test_b24g_a_failing_activation_is_reported_to_the_updater():
    async with harness() as root:

        def body(ctx, config):
            if config == "bad":
                raise ValueError("bad config")

        fiber = await root.plugin(body, "good")
        with pytest.raises(ValueError, match="bad config"):
            await fiber.update("bad")
        assert fiber.state is FAILED
        await fiber.update("fine")
        assert fiber.state is ACTIVE


async def test_b24h_an_unawaited_failing_update_is_logged():
    async with harness() as root:
        fiber = await root.plugin(greeter([]))
        fiber.update({"maxCount": 0})
        await root.settle()
        assert errors(root) == ["config update failed"]


async def test_updates_of_one_fiber_run_one_after_another():
    log = []
    async with harness() as root:
        fiber = await root.plugin(greeter(log))
        await asyncio.gather(fiber.update({"maxCount": 5}), fiber.update({"maxCount": 6}))
        assert log == [("run", "Hello", 3), "undo", ("run", "Hello", 5), "undo", ("run", "Hello", 6)]


async def test_update_of_a_waiting_fiber_is_stored_for_its_start():
    log = []
    async with harness() as root:
        fiber = await root.plugin(greeter(log), {"maxCount": 2}, inject=["tools"])
        await fiber.update({"maxCount": 7})
        assert fiber.state is PENDING
        root.provide("tools", 1)
        await root.settle()
        assert log == [("run", "Hello", 7)]


async def test_update_during_loading_loads_again_with_the_new_config():
    seen = []
    async with harness() as root:

        async def body(ctx, config):
            seen.append(config)
            if config == 1:
                await asyncio.sleep(30)

        fiber = root.plugin(body, 1)
        await asyncio.sleep(0.01)
        await fiber.update(2)
        assert seen == [1, 2]


@pytest.mark.parametrize("takes", [True, False])
async def test_on_update_may_take_a_change_over(takes):
    log = []

    class Counter(Service, name="counter"):
        def __init__(self, ctx, config):
            log.append("new")

        async def on_update(self, new, old, changed):
            log.append((new.max_count, old.max_count, sorted(changed)))
            return takes

    Counter.Config = Config
    async with harness() as root:
        fiber = await root.plugin(Counter)
        await fiber.update({"maxCount": 9})
        assert fiber.config.max_count == 9
        assert log == ["new", (9, 3, ["max_count"])] + ([] if takes else ["new"])


async def test_on_update_of_a_function_plugin_may_ask_for_the_context():
    log = []

    def hook(ctx, new, old, changed):
        log.append((ctx.fiber.name, new, old, changed))
        return True

    @plugin(name="fn", on_update=hook)
    def body(ctx, config):
        log.append("run")

    async with harness() as root:
        fiber = await root.plugin(body, {"a": 1, "b": 1})
        await fiber.update({"a": 1, "b": True})
        assert log == ["run", ("fn", {"a": 1, "b": True}, {"a": 1, "b": 1}, frozenset({"b"}))]


async def test_internal_update_listeners_of_the_fiber_and_global_ones_may_take_over():
    log = []
    async with harness() as root:

        def group(ctx, config):
            log.append("run")

            async def take(event, next):
                log.append(("taken", event.config, event.no_save))

            ctx.on(ConfigUpdate, take)

        other = await root.plugin(lambda ctx: ctx.on(ConfigUpdate, lambda e, next: log.append("foreign")) and None)

        async def saves(event, next):
            await next()
            log.append("saved")

        root.on(ConfigUpdate, saves, global_=True)
        fiber = await root.plugin(group, [1])
        await fiber.update([2], no_save=True)
        assert fiber.raw_config == fiber.config == [2]
        assert log == ["run", ("taken", [2], True), "saved"]
        assert other.is_active


async def test_a_failed_restart_reaches_the_update_listener():
    async with harness() as root:
        log = []

        async def saves(event, next):
            try:
                await next()
            except ValueError:
                log.append("not saved")
                raise

        root.on(ConfigUpdate, saves, global_=True)

        def body(ctx, config):
            if config:
                raise ValueError

        fiber = await root.plugin(body, 0)
        with pytest.raises(ValueError):
            await fiber.update(1)
        assert log == ["not saved"]


async def test_raw_config_is_resolved_at_each_activation_with_services_committed():
    seen = []
    async with harness() as root:
        take_back = root.provide("source", "one")

        def resolve(event, next):
            raw = next()
            return {**raw, "value": event.fiber.ctx["source"]} if isinstance(raw, dict) else raw

        root.on(ConfigResolve, resolve)
        fiber = root.plugin(lambda ctx, config: seen.append(config["value"]), {}, inject=["source"], entry_id="row")
        await fiber
        take_back()
        root.provide("source", "two")
        await root.settle()
        assert seen == ["one", "two"]
        assert fiber.entry_id == "row"
        assert fiber.raw_config == {}


async def test_a_schema_of_the_schema_package_and_a_ready_config_object():
    async with harness() as root:
        seen = []

        @plugin(Config=schema.Schema({"n": int}))
        def body(ctx, config):
            seen.append(config)

        await root.plugin(body, {"n": 1})
        bad = root.plugin(body, {"n": "x"})
        await root.settle()
        assert isinstance(bad.error, ConfigError)
        ready = Config(greeting="Yo")
        fiber = await root.plugin(greeter([]), ready)
        assert fiber.config is ready
        assert seen == [{"n": 1}]


async def test_a_config_without_validate_is_refused_at_mount():
    @plugin(Config=42)
    def body(ctx, config):
        pass

    async with harness() as root:
        with pytest.raises(CordisError) as caught:
            root.plugin(body)
        assert caught.value.code == "INVALID_CONFIG"


async def test_updating_a_disposed_fiber_is_refused():
    async with harness() as root:
        fiber = await root.plugin(greeter([]))
        await fiber.dispose()
        with pytest.raises(CordisError) as caught:
            await fiber.update({})
        assert caught.value.code == "INACTIVE_EFFECT"
