"""The tool registry: what is registered, who sees it, and how it leaves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from dsh.cordis import Context, CordisError, Emit, Service, bind_scope
from dsh.core.tools import (
    Deny,
    JsonSchemaError,
    Output,
    ToolDefinition,
    ToolInput,
    ToolRegistrationError,
    ToolRun,
    Tools,
    ToolsChange,
    ToolsPreExecute,
    text,
)

from .tool_helpers import Agent, make, stage, words


def names(tools: Tools, scope: object = None) -> list[str]:
    return [schema["name"] for schema in tools.schemas(scope)]


# -- registration -----------------------------------------------------------------------------------------------------


async def test_b01_a_model_sees_three_fields_and_cannot_touch_the_registry() -> None:
    async with stage() as s:
        parameters = {"type": "object", "properties": {"a": {"type": "string"}}}
        s.tools.register(
            make(parameters=parameters, timeout_ms=5, is_concurrency_safe=lambda a: True, present_call=lambda a: None)
        )
        schemas = s.tools.schemas()
        expected = {"name": "echo", "description": "The echo tool", "parameters": parameters}
        assert schemas == [expected]
        parameters["type"] = "changed"
        with pytest.raises(TypeError):
            cast(Any, schemas[0])["parameters"]["properties"].clear()
        schemas.clear()
        assert s.tools.schemas() == [{**expected, "parameters": {**parameters, "type": "object"}}]
        # Frozen once, shared from then on.
        assert s.tools.schemas()[0] is s.tools.schemas()[0]


async def test_b02a_a_name_is_taken_once_for_the_deployment() -> None:
    async with stage() as s:
        s.tools.register(make())
        with pytest.raises(ToolRegistrationError) as caught:
            s.tools.register(make())
        assert str(caught.value) == (
            'tool "echo" is already registered (for a per-agent variant, register through that agent\'s `agent.ctx` '
            "instead)"
        )


@pytest.mark.parametrize("scoped_first", [True, False])
async def test_b02b_a_scoped_tool_shadows_the_deployments(scoped_first: bool) -> None:
    async with stage() as s:
        agent = Agent()
        scope = s.root.scope(agent)
        steps = [
            lambda: scope.ctx[Tools].register(make(body=lambda a, e: "own")),
            lambda: s.tools.register(make(body=lambda a, e: "shared")),
        ]
        for step in steps if scoped_first else reversed(steps):
            step()
        assert words(await s.call(agent=agent)) == "<own>"
        assert words(await s.call()) == "<shared>"
        assert names(s.tools, agent) == ["echo"]
        with pytest.raises(ToolRegistrationError, match='^tool "echo" is already registered in this scope$'):
            scope.ctx[Tools].register(make())


async def test_b03_a_tool_leaves_with_its_plugin_or_its_disposer() -> None:
    async with stage() as s:

        def plugin(ctx: Context, config: Any, tools: Tools) -> None:
            tools.register(make("from_plugin"))

        fiber = await s.root.plugin(plugin)
        assert names(s.tools) == ["from_plugin"]
        await fiber.dispose()
        assert names(s.tools) == []

        stale = s.tools.register(make())
        stale()
        assert names(s.tools) == []
        s.tools.register(make())
        stale()
        assert names(s.tools) == ["echo"]


async def test_b04_a_refusing_change_listener_undoes_the_registration() -> None:
    async with stage() as s:
        changes: list[str] = []
        s.root.on(ToolsChange, lambda e: changes.append("changed"))
        s.tools.register(make("first"))()
        assert changes == ["changed", "changed"]

        def refuse(event: ToolsChange) -> None:
            raise RuntimeError("no more tools")

        undo = s.root.on(ToolsChange, refuse)
        with pytest.raises(RuntimeError, match="no more tools"):
            s.tools.register(make())
        assert names(s.tools) == []
        undo()
        s.tools.register(make())
        assert names(s.tools) == ["echo"]


async def test_b05b_what_cannot_be_registered_says_why() -> None:
    async with stage() as s:
        good = make()
        refused: list[tuple[ToolDefinition, str]] = [
            (
                replace(good, output=cast(Any, None)),
                'tool "echo" must declare output { schema, render, presentationMeta? }',
            ),
            (replace(good, timeout_ms=0), 'tool "echo" timeoutMs must be a positive finite number'),
            (replace(good, timeout_ms=float("inf")), 'tool "echo" timeoutMs must be a positive finite number'),
            (
                make("run_code"),
                'tool name "run_code" is reserved for the Code Mode presentation transport '
                "and cannot be registered or shadowed",
            ),
            (
                replace(good, parameters={"default": {1, 2}}),
                'tool "echo" parameters must be lossless JSON before schema projection',
            ),
        ]
        for definition, message in refused:
            with pytest.raises(ToolRegistrationError) as caught:
                s.tools.register(definition)
            assert str(caught.value) == message
        bad = replace(good, output=Output({"type": "array", "minItems": 1, "items": {"enum": [1]}}, good.output.render))
        with pytest.raises(JsonSchemaError) as unsupported:
            s.tools.register(bad)
        assert str(unsupported.value) == (
            "unsupported JSON schema: schema.minItems is not a supported keyword (subset: type/oneOf/properties/"
            "required/additionalProperties/items/enum/const + annotations); schema.items.enum requires type or oneOf"
        )
        assert unsupported.value.code == "UNSUPPORTED_SCHEMA"
        assert names(s.tools) == []


async def test_b60j_the_tool_decorator_registers_for_the_calling_plugin() -> None:
    async with stage() as s:

        def plugin(ctx: Context, config: Any, tools: Tools) -> None:
            @tools.tool
            async def greet(who: str) -> str:
                "Greet the named person."
                return f"Hello, {who}!"

            @tools.tool(name="add_up", is_concurrency_safe=True)
            def add(numbers: list[int]) -> int:
                return sum(numbers)

            assert add([1, 2]) == 3

        fiber = await s.root.plugin(plugin)
        assert words(await s.call("greet", {"who": "you"})) == "Hello, you!"
        assert words(await s.call("add_up", {"numbers": [1, 2]})) == "3"
        assert words(await s.call("greet", {})) == 'Error: invalid arguments: missing required property "who"'
        assert s.tools.execution_mode(ToolInput("c", "add_up", {"numbers": []})) == "parallel"
        await fiber.dispose()
        assert names(s.tools) == []


# -- scopes -----------------------------------------------------------------------------------------------------------


async def test_b06a_a_restriction_masks_inherited_tools_only() -> None:
    async with stage() as s:
        agent = Agent()
        ctx = s.root.scope(agent).ctx
        for name in ("a", "b", "c"):
            s.tools.register(make(name))
        ctx[Tools].register(make("own"))
        lift = ctx[Tools].restrict(allow=["a", "b"])
        assert names(s.tools, agent) == ["a", "b", "own"]
        assert names(s.tools) == ["a", "b", "c"]
        ctx[Tools].restrict(deny=["b"])
        assert names(s.tools, agent) == ["a", "own"]
        s.tools.register(make("later"))
        assert names(s.tools, agent) == ["a", "own"]
        assert s.tools.get("later", agent) is None
        assert words(await s.call("later", agent=agent)) == 'Error: unknown tool "later"'
        lift()
        assert names(s.tools, agent) == ["a", "c", "later", "own"]


async def test_b06b_a_restriction_reaches_nested_scopes_but_not_their_own_tools() -> None:
    async with stage() as s:
        preset, agent = Agent("preset"), Agent("agent")
        outer = s.root.scope(preset)
        inner = s.root.scope(agent, parent=preset)
        s.tools.register(make("a"))
        outer.ctx[Tools].register(make("preset_tool"))
        inner.ctx[Tools].register(make("own"))
        outer.ctx[Tools].restrict(deny=["a"])
        assert names(s.tools, agent) == ["preset_tool", "own"]
        inner.ctx[Tools].restrict(deny=["preset_tool"])
        assert names(s.tools, agent) == ["own"]
        assert names(s.tools, preset) == ["preset_tool"]


async def test_b06c_a_restriction_that_cannot_mean_anything_is_refused() -> None:
    async with stage() as s:
        tools = s.root.scope(Agent()).ctx[Tools]
        s.tools.register(make("b"))
        s.tools.register(make("a"))

        def refused(tools: Tools, **options: Any) -> str:
            with pytest.raises(ToolRegistrationError) as caught:
                tools.restrict(**options)
            return str(caught.value)

        assert refused(s.tools, deny=["a"]) == (
            "tools.restrict() requires a scoped context (agent.ctx): a context-global restriction would mask every "
            "agent — deny the tool for the intended agent instead"
        )
        no_op = (
            "tools.restrict({}) is a no-op: pass `allow` and/or `deny` "
            "(an empty filter is almost always a materialized-empty-config bug)"
        )
        assert refused(tools) == refused(tools, deny=[]) == no_op
        assert refused(tools, allow=["x"]) == 'tools.restrict() names unknown global tool "x"; known global tools: a, b'
        assert refused(tools, deny=["x", "y"]) == (
            'tools.restrict() names unknown global tools "x", "y"; known global tools: a, b'
        )
        assert refused(tools, deny=["run_code"]) == (
            'tools.restrict() cannot name reserved Code Mode presentation transport "run_code"; '
            "restrict end-capability tools instead"
        )


async def test_b06d_without_tools_the_refusal_says_none() -> None:
    async with stage() as s:
        with pytest.raises(ToolRegistrationError, match=r'tool "x"; known global tools: \(none\)$'):
            s.root.scope(Agent()).ctx[Tools].restrict(deny=["x"])


async def test_b07_tools_and_listeners_are_inherited_downwards_only() -> None:
    async with stage() as s:
        preset, one, two = Agent("preset"), Agent("one"), Agent("two")
        scopes = {
            "preset": s.root.scope(preset),
            "one": s.root.scope(one, parent=preset),
            "two": s.root.scope(two, parent=preset),
        }
        heard: list[str] = []
        for label, scope in scopes.items():
            scope.ctx[Tools].register(make(label))

            async def listen(event: ToolsPreExecute, next: Any, label: str = label) -> Any:
                heard.append(label)
                return await next()

            scope.ctx.on(ToolsPreExecute, listen)
        assert names(s.tools, one) == ["preset", "one"]
        assert names(s.tools, two) == ["preset", "two"]
        assert names(s.tools, preset) == ["preset"]
        assert names(s.tools) == []
        await s.call("preset", agent=one)
        assert heard == ["preset", "one"]
        heard.clear()
        await s.call("preset", agent=preset)
        assert heard == ["preset"]


async def test_b08_guards_have_the_last_word_deployment_first() -> None:
    async with stage() as s:
        agent, ran = Agent(), []
        scope = s.root.scope(agent)
        s.tools.register(make(body=lambda a, e: ran.append(e.call_id)))
        asked: list[str] = []

        def guard(label: str, verdict: str | None) -> Any:
            def judge(exec: ToolRun) -> str | None:
                asked.append(f"{label} {exec.name}")
                return verdict

            return judge

        scope.ctx[Tools].guard(guard("own", "not for you"))
        lift = s.tools.guard(guard("shared", None))
        result = await s.call(agent=agent)
        assert words(result) == "Error: not for you" and result.error is not None and result.error.info is None
        assert asked == ["shared echo", "own echo"] and ran == []

        asked.clear()
        lift()
        s.tools.guard(guard("shared", "not at all"))
        assert words(await s.call(agent=agent)) == "Error: not at all"
        assert asked == ["shared echo"]

        async def deny(event: ToolsPreExecute, next: Any) -> Any:
            return Deny("policy")

        asked.clear()
        s.root.on(ToolsPreExecute, deny)
        assert words(await s.call(agent=agent)) == "Error: policy"
        assert asked == []


async def test_b08b_a_guard_may_be_async_and_a_raising_one_refuses() -> None:
    async with stage() as s:
        ran: list[str] = []
        s.tools.register(make(body=lambda a, e: ran.append("ran")))

        async def slow(exec: ToolRun) -> str | None:
            return "slow no"

        lift = s.tools.guard(slow)
        assert words(await s.call()) == "Error: slow no"
        lift()

        def broken(exec: ToolRun) -> str | None:
            raise RuntimeError("guard is broken")

        s.tools.guard(broken)
        assert words(await s.call()) == "Error: guard is broken"
        assert ran == []


@pytest.mark.parametrize(
    ("classifier", "mode"),
    [
        (lambda a: 1, "exclusive"),
        (lambda a: "yes", "exclusive"),
        (lambda a: 1 / 0, "exclusive"),
        (None, "exclusive"),
        (lambda a: True, "parallel"),
    ],
)
async def test_b09a_only_exactly_true_lets_a_call_overlap(classifier: Any, mode: str) -> None:
    async with stage() as s:
        s.tools.register(make(is_concurrency_safe=classifier))
        assert s.tools.execution_mode(ToolInput("c", "echo", {})) == mode
        assert s.tools.execution_mode(ToolInput("c", "unknown", {})) == "exclusive"
        assert s.tools.execution_mode(ToolInput("c", "echo", {1: object()})) == "exclusive"


async def test_b09b_invalid_arguments_never_overlap() -> None:
    async with stage() as s:

        @s.tools.tool(is_concurrency_safe=lambda args: True)
        def read(path: str) -> str:
            return path

        assert s.tools.execution_mode(ToolInput("c", "read", {"path": "x"})) == "parallel"
        assert s.tools.execution_mode(ToolInput("c", "read", {})) == "exclusive"
        assert s.tools.execution_mode(ToolInput("c", "read", "not json")) == "exclusive"


# -- scopes, the runtime side -----------------------------------------------------------------------------------------


class Ping(Emit, name="test/ping"):
    """A scoped event whose payload does not name its scope."""


class Marker(Service, name="marker"):
    """Something whose realm listeners may share."""


async def test_b54_a_scoped_dispatch_reaches_the_key_its_ancestors_and_everybody() -> None:
    async with Context() as root:
        await root.plugin(Marker)
        preset, agent, sibling = Agent("preset"), Agent("agent"), Agent("sibling")
        heard: list[str] = []

        def listen(ctx: Context, label: str, **options: Any) -> None:
            ctx.on(Ping, lambda e: heard.append(label), **options)

        listen(root, "untagged")
        listen(root.scope(preset).ctx, "preset")
        own = root.scope(agent, parent=preset)
        listen(own.ctx, "agent")
        listen(own.ctx.isolate("marker"), "agent, other realm")
        other = root.scope(sibling, parent=preset)
        listen(other.ctx, "sibling")
        listen(other.ctx, "everything", global_=True)

        root.emit(Ping(), scope=agent)
        assert heard == ["untagged", "preset", "agent", "agent, other realm", "everything"]
        heard.clear()
        root.emit(Ping(), scope=preset)
        assert heard == ["untagged", "preset", "everything"]
        heard.clear()
        root.emit(Ping())
        assert heard == ["untagged", "everything"]
        heard.clear()
        root.emit(Ping(), scope=agent, origin=root[Marker])
        assert heard == ["untagged", "preset", "agent", "everything"]


async def test_b55_a_parent_is_bound_once_and_never_in_a_circle() -> None:
    top, middle, leaf = Agent(), Agent(), Agent()
    binding = bind_scope(leaf, middle)
    with pytest.raises(CordisError) as caught:
        bind_scope(leaf, top)
    assert str(caught.value) == (
        "scope key is already bound to a parent; re-linking requires the binding returned by the original bind"
    )
    with pytest.raises(CordisError, match="^scope parent link would form a cycle$"):
        bind_scope(middle, leaf)
    async with stage() as s:
        s.root.scope(top).ctx[Tools].register(make("of_top"))
        s.root.scope(middle).ctx[Tools].register(make("of_middle"))
        assert names(s.tools, leaf) == ["of_middle"]
        binding.rebind(top)
        assert names(s.tools, leaf) == ["of_top"]


async def test_b56a_everybody_who_disposes_a_scope_waits_for_the_same_end() -> None:
    async with stage() as s:
        scope = s.root.scope(Agent())
        steps: list[str] = []

        async def slow() -> None:
            steps.append("undone")

        scope.ctx.defer(slow)
        scope.ctx[Tools].register(make())
        first, second = scope.dispose(), scope.dispose()
        await second
        assert steps == ["undone"]
        await first
        assert names(s.tools, scope.key) == []


async def test_b56b_a_drained_table_starts_anew() -> None:
    async with stage() as s:
        first, second = s.tools.guard(lambda e: None), s.tools.guard(lambda e: None)
        iterator = iter(s.tools.guards(None))
        next(iterator)
        first()
        second()
        s.tools.guard(lambda e: "later")
        assert "later" not in [guard(cast(Any, None)) for guard in iterator]


async def test_b57a_a_refused_scoped_registration_leaves_no_layer() -> None:
    async with stage() as s:
        agent = Agent()
        scope = s.root.scope(agent)

        def refuse(event: ToolsChange) -> None:
            raise RuntimeError("no")

        undo = s.root.on(ToolsChange, refuse)
        with pytest.raises(RuntimeError):
            scope.ctx[Tools].register(make())
        assert s.tools._layers.peek(agent) is None
        undo()
        scope.ctx[Tools].register(make())()
        assert s.tools._layers.peek(agent) is None


async def test_b57b_a_scope_is_torn_down_in_reverse_order() -> None:
    async with stage() as s:
        scope = s.root.scope(Agent())
        steps: list[str] = []
        scope.ctx.defer(lambda: steps.append("first"))
        scope.ctx[Tools].register(make())
        scope.ctx.defer(lambda: steps.append(f"last, with {names(s.tools, scope.key)}"))
        await scope.dispose()
        assert steps == ["last, with ['echo']", "first"]


async def test_b61_a_raw_tool_validates_its_own_arguments() -> None:
    async with stage() as s:
        seen: list[Any] = []

        def body(args: Any, exec: ToolRun) -> str:
            seen.append(args)
            return "ran"

        parameters = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "minProperties": 1}
        s.tools.register(make(body=body, parameters=parameters, render=lambda a, v: [text(v)]))
        assert words(await s.call(arguments="{broken")) == "ran"
        assert seen == ["{broken"]
