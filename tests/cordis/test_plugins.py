"""Plugin shapes, metadata, module resolution and parameters that name services."""

import functools
import sys
import textwrap
import types
from typing import Annotated, Protocol

import pytest

from dsh.cordis import Context, CordisError, Service, ServiceKey, plugin, resolve_plugin
from dsh.cordis.testing import harness
from tests.cordis.helpers import Shell, Tools


def module(source: str, name: str = "made_up") -> types.ModuleType:
    made = types.ModuleType(name)
    sys.modules[name] = made
    try:
        exec(textwrap.dedent(source), made.__dict__)
    finally:
        del sys.modules[name]
    return made


def refused(value, match):
    with pytest.raises(CordisError, match=match) as caught:
        resolve_plugin(value)
    assert caught.value.code == "INVALID_PLUGIN"


async def test_every_accepted_shape_runs():
    ran = []

    class Plain:
        def __init__(self, ctx, config):
            ran.append(("class", config))

    class Object:
        def apply(self, ctx, config):
            ran.append(("object", config))

    def function(ctx, config):
        ran.append(("function", config))

    made = module("def apply(ctx, config): config.append('module')")
    async with harness() as root:
        for shape in (Plain, Object(), function, functools.partial(function), lambda ctx: ran.append("lambda")):
            await root.plugin(shape, 1)
        await root.plugin(made, ran)
    assert ran == [("class", 1), ("object", 1), ("function", 1), ("function", 1), "lambda", "module"]


@pytest.mark.parametrize("value", [None, 5, "text", object(), {}])
async def test_other_things_are_refused_synchronously(value):
    async with harness() as root:
        with pytest.raises(CordisError) as caught:
            root.plugin(value)
        assert caught.value.code == "INVALID_PLUGIN"


async def test_a_body_may_only_return_an_undo():
    async with harness() as root:
        fiber = root.plugin(lambda ctx: 5)
        await root.settle()
        assert fiber.error.code == "INVALID_EFFECT"
        done = []
        fiber = await root.plugin(lambda ctx: lambda: done.append(1))
        await fiber.dispose()
        assert done == [1]


async def test_sync_and_async_generators_are_lifespans():
    order = []

    def sync_body(ctx):
        ctx.defer(lambda: order.append("first half undone"))
        yield
        order.append("sync teardown")

    async def async_body(ctx):
        yield
        order.append("async teardown")

    async def bad(ctx):
        yield 5

    async with harness() as root:
        first, second = await root.plugin(sync_body), await root.plugin(async_body)
        await second.dispose()
        await first.dispose()
        assert order == ["async teardown", "sync teardown", "first half undone"]
        broken = root.plugin(bad)
        await root.settle()
        assert broken.error.code == "INVALID_EFFECT"


def test_names():
    class Named:
        name = "given"

        def __init__(self, ctx, config): ...

    def function(ctx): ...

    @plugin(name="marked")
    def marked(ctx): ...

    assert resolve_plugin(Named).name == "given"
    assert resolve_plugin(function).name == "function"
    assert resolve_plugin(marked).name == "marked"
    assert resolve_plugin(lambda ctx: None).name is None
    assert resolve_plugin(Tools).name == "Tools"
    assert resolve_plugin(module("def apply(ctx): ...", "pkg.my_mod")).name == "my_mod"
    assert resolve_plugin(module("name = 'x'\ndef apply(ctx): ...")).name == "x"


def test_module_with_apply_takes_its_siblings():
    made = module(
        """
        from dsh.cordis import ConfigModel, plugin, Context
        inject = ["shell"]
        provides = ["thing"]
        class Config(ConfigModel):
            n: int = 1
        def on_update(new, old, changed): return True
        def apply(ctx: Context, config: Config): ...
        """
    )
    spec = resolve_plugin(made)
    assert spec.needs == {"shell": None}
    assert spec.Config is made.Config
    assert spec.provides == ("thing",)
    assert spec.on_update is made.on_update


def test_module_with_a_plugin_object_keeps_the_siblings_too():
    made = module(
        """
        inject = ["shell"]
        def body(ctx): ...
        body.inject = ["tools"]
        plugin = body
        """
    )
    assert set(resolve_plugin(made).needs) == {"shell", "tools"}


def test_module_with_one_service_of_its_own():
    made = module(
        """
        from abc import abstractmethod
        from dsh.cordis import ConfigModel, Service
        from tests.cordis.helpers import Tools          # imported: does not count
        class Config(ConfigModel):
            n: int = 1
        class Abstract(Service, name="thing"):
            @abstractmethod
            def run(self): ...
        class Concrete(Abstract):
            def run(self): ...
        """
    )
    spec = resolve_plugin(made)
    assert spec.body is made.Concrete
    assert spec.Config is made.Config
    assert spec.provides == ("thing",)


def test_ambiguous_modules_are_refused_by_name():
    refused(module("def apply(ctx): ...\ndef plugin(ctx): ..."), "both `plugin` and `apply`")
    two = "from dsh.cordis import Service\nclass A(Service, name='a'): ...\nclass B(Service, name='b'): ..."
    refused(module(two), "A, B")
    refused(module("x = 1"), "define apply")


async def test_parameters_annotated_with_services_are_required_and_passed_by_keyword():
    seen = []

    @plugin(inject=["extra"])
    def body(ctx: Context, config, tools: Tools, *, shell: Shell):
        seen.append((tools, shell, ctx["extra"]))

    async with harness() as root:
        fiber = await root.plugin(body)
        assert sorted(fiber.missing()) == ["extra", "shell", "tools"]
        root.plugin(Tools)
        root.plugin(Shell)
        root.provide("extra", 1)
        await root.settle()
        assert seen == [(root[Tools], root[Shell], 1)]


async def test_constructor_parameters_and_config_less_bodies_work_too():
    seen = []

    class User(Service, name="user"):
        def __init__(self, ctx, config, tools: Tools):
            seen.append(tools)

    def body(ctx, tools: Tools, index=7):
        seen.append(index)

    async with harness() as root:
        root.plugin(Tools)
        root.plugin(User)
        root.plugin(body, {"ignored": True})
        await root.settle()
        assert sorted(map(str, seen)) == sorted([str(root[Tools]), "7"])


class Greets(Protocol):
    def greet(self) -> str: ...


GREETS = ServiceKey("greets", Greets)


def test_annotated_service_keys():
    def body(ctx, config, greets: Annotated[Greets, GREETS]): ...

    assert resolve_plugin(body).parameters == {"greets": "greets"}


def test_annotations_that_cannot_be_evaluated_or_mean_nothing_are_refused_by_parameter_name():
    refused(module("def apply(ctx, config, tools: 'Missing'): ..."), '"tools".*cannot be evaluated.*inject=')
    refused(module("def apply(ctx, config, thing: int): ..."), '"thing"')
    refused(module("def apply(): ..."), "context as first argument")
    assert resolve_plugin(module("def apply(ctx, config: 'Missing'): ...")).passes_config


def test_a_service_without_a_name_is_refused():
    class Nameless(Service):
        pass

    refused(Nameless, "no service name")


def test_inject_spellings():
    from dsh.cordis.plugins import read_needs

    assert read_needs(["a", Tools]) == {"a": None, "tools": None}
    assert read_needs({"a": True, "b": {"x": 1}, Tools: None}) == {"a": None, "b": {"x": 1}, "tools": None}
    assert read_needs(Tools) == {"tools": None}
    with pytest.raises(CordisError):
        read_needs([5])
