"""The registry of package-owned checks."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from dsh.cordis import ConfigError, Context, HarnessError, InvariantError, Service
from dsh.core.invariants import Fail, Invariants, InvariantsConfig


class Needed(Service, name="needed"):
    pass


async def mounted(root: Context, **config: Any) -> Invariants:
    await root.plugin(Invariants, config)
    return root[Invariants]


async def test_an_installer_runs_in_a_child_and_goes_with_its_owner() -> None:
    async with Context() as root:
        await mounted(root)
        trail: list[str] = []

        def owner(ctx: Context, config: object, invariants: Invariants) -> None:
            def install(child: Context, fail: Fail) -> None:
                assert child is not ctx
                trail.append("installed")
                child.defer(lambda: trail.append("gone"))

            invariants.register("pkg", install)

        fiber = await root.plugin(owner)
        await root.settle()
        assert trail == ["installed"]
        await fiber.dispose()
        assert trail == ["installed", "gone"]
        root[Invariants].register("pkg", lambda ctx, fail: None)


async def test_fail_names_the_package() -> None:
    async with Context() as root:
        invariants = await mounted(root)
        kept: list[Fail] = []
        invariants.register("@x/y", lambda ctx, fail: kept.append(fail))
        await root.settle()
        with pytest.raises(InvariantError) as caught:
            kept[0]("a must be b")
        assert str(caught.value) == 'invariant violated by "@x/y": a must be b'
        assert caught.value.code == "INVARIANT"


async def test_a_package_registers_once_even_when_filtered_out() -> None:
    async with Context() as root:
        invariants = await mounted(root, packageBlocklist=["^quiet$"])
        installed: list[str] = []
        dispose = invariants.register("quiet", lambda ctx, fail: installed.append("quiet"))
        await root.settle()
        with pytest.raises(HarnessError, match='^invariants: package "quiet" is already registered$'):
            invariants.register("quiet", lambda ctx, fail: None)
        await dispose()
        invariants.register("quiet", lambda ctx, fail: None)
        assert installed == []


@pytest.mark.parametrize(
    ("config", "installed"),
    [
        ({}, ["@a/core", "@a/tools", "@b/core"]),
        ({"enabled": False}, []),
        ({"packageAllowlist": ["core"]}, ["@a/core", "@b/core"]),
        ({"packageAllowlist": ["CORE"]}, []),
        ({"packageBlocklist": ["^@a/"]}, ["@b/core"]),
        ({"packageAllowlist": ["^@a/"], "packageBlocklist": ["tools$"]}, ["@a/core"]),
    ],
    ids=repr,
)
async def test_patterns_choose_the_packages(config: dict[str, Any], installed: list[str]) -> None:
    async with Context() as root:
        invariants = await mounted(root, **config)
        ran: list[str] = []
        for name in ("@a/core", "@a/tools", "@b/core"):
            invariants.register(name, lambda ctx, fail, name=name: ran.append(name))
        await root.settle()
        assert sorted(ran) == installed


@pytest.mark.parametrize("patterns", [[""], ["  "], [" a"], ["a", "a"], ["("]], ids=repr)
async def test_unusable_patterns_refuse_the_load(patterns: list[str]) -> None:
    async with Context() as root:
        for key in ("packageAllowlist", "packageBlocklist"):
            fiber = root.plugin(Invariants, {key: patterns})
            with pytest.raises(ConfigError, match=key):
                await fiber
            await fiber.dispose()


async def test_a_failing_installer_gives_the_name_back(caplog: pytest.LogCaptureFixture) -> None:
    async with Context() as root:
        invariants = await mounted(root)
        trail: list[str] = []

        def broken(ctx: Context, fail: Fail) -> None:
            ctx.defer(lambda: trail.append("undone"))
            raise RuntimeError("cannot install")

        with caplog.at_level(logging.ERROR):
            invariants.register("pkg", broken)
            await root.settle()
        assert trail == ["undone"]
        assert any("cannot install" in (record.getMessage() + str(record.exc_info)) for record in caplog.records)
        invariants.register("pkg", lambda ctx, fail: trail.append("second"))
        await root.settle()
        assert trail == ["undone", "second"]


async def test_an_installer_waits_for_what_it_needs() -> None:
    async with Context() as root:
        invariants = await mounted(root)
        seen: list[bool] = []
        invariants.register("pkg", lambda ctx, fail: seen.append(ctx[Needed] is not None), inject=[Needed])
        await root.settle()
        assert seen == []
        await root.plugin(Needed)
        await root.settle()
        assert seen == [True]


def test_defaults() -> None:
    config = InvariantsConfig.validate({})
    assert (config.enabled, config.package_allowlist, config.package_blocklist) == (True, [], [])
