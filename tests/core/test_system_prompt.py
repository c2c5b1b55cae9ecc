"""The system prompt: which pieces are gathered for whom, in which order, and how they become text."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from dsh.cordis import AbortController, AbortError, ConfigError, Context
from dsh.core.system_prompt import (
    AssembleContext,
    Assembly,
    PromptError,
    PromptText,
    SystemPrompt,
    SystemPromptAssemble,
    SystemPromptChange,
    ToolSet,
    render_contexts,
    render_prompt,
)
from dsh.core.tools import Tools

from .tool_helpers import Agent, Stage, make, stage

IDENTITY = "You are an AI agent powered by DeepSeek Harness."
Next = Callable[[], Awaitable[Any]]


def for_agent(agent: object) -> AssembleContext:
    return AssembleContext(scope=agent, agent=agent)


async def prompt_of(s: Stage, agent: object = None) -> str:
    return render_prompt(await s.prompt.assemble(for_agent(agent)))


async def tools_of(s: Stage, agent: object = None) -> list[str]:
    return [tool["name"] for tool in (await s.prompt.assemble(for_agent(agent))).tools]


# -- sections ---------------------------------------------------------------------------------------------------------


async def test_b42a_identity_persona_and_guidance_come_in_order() -> None:
    async with stage(persona="You are a careful one.") as s:
        s.prompt.section("guidance", 100, "Read before you write.")
        assert await prompt_of(s) == f"{IDENTITY}\n\nYou are a careful one.\n\nRead before you write."


async def test_b42b_an_empty_persona_leaves_no_gap_and_identity_can_be_off() -> None:
    async with stage() as s:
        s.prompt.section("guidance", 100, "Guidance.")
        s.prompt.section("silent", 50, "")
        assert await prompt_of(s) == f"{IDENTITY}\n\nGuidance."
    async with stage(includeHarnessIdentity=False) as s:
        s.prompt.section("guidance", 100, "Guidance.")
        assembly = await s.prompt.assemble()
        assert [section.name for section in assembly.sections] == ["guidance"]
        assert render_prompt(assembly) == "Guidance."


async def test_b42c_every_config_key_changes_in_place() -> None:
    async with Context() as root:
        fiber = await root.plugin(SystemPrompt, {"persona": "First."})
        service = root[SystemPrompt]
        service.context("time", 0, "noon")
        changes: list[str] = []
        root.on(SystemPromptChange, lambda e: changes.append("changed"))
        await fiber.update(
            {"persona": "Second.", "includeHarnessIdentity": False, "includeRuntimeContext": False, "toolOrder": None}
        )
        assembly = await service.assemble()
        assert render_prompt(assembly) == "Second." and assembly.contexts == []
        assert changes == ["changed"]
        await fiber.update({"toolOrder": ["<unlisted-tools>", "ghost"]})
        assert root[SystemPrompt] is service
        with pytest.raises(PromptError, match="ghost"):
            await service.assemble()


async def test_b43a_equal_orders_keep_their_registration_order() -> None:
    async with stage(includeHarnessIdentity=False) as s:
        for name in ("one", "two", "three"):
            s.prompt.section(name, 5, name)
        s.prompt.section("first", 1.5, "first")
        assert await prompt_of(s) == "first\n\none\n\ntwo\n\nthree"


async def test_b43b_a_scoped_persona_is_for_its_scope_and_shadowed_texts_are_not_asked() -> None:
    async with stage(includeHarnessIdentity=False) as s:
        agent, preset = Agent(), Agent("preset")
        asked: list[str] = []

        def text(label: str) -> Callable[[AssembleContext], str]:
            def give(context: AssembleContext) -> str:
                asked.append(label)
                return f"{label} for {context.agent}"

            return give

        s.prompt.section("style", 1, text("shared"))
        s.root.scope(preset).ctx[SystemPrompt].section("style", 1, text("preset"))
        scope = s.root.scope(agent, parent=preset)
        scope.ctx[SystemPrompt].section("style", 1, text("own"))
        scope.ctx[SystemPrompt].section("deployment:persona", 0, "I am special.")
        assert await prompt_of(s, agent) == "I am special.\n\nown for agent"
        assert asked == ["own"]
        assert await prompt_of(s, preset) == "preset for preset"
        assert await prompt_of(s) == "shared for None"
        await scope.dispose()
        assert await prompt_of(s, agent) == "preset for agent"


async def test_b44a_duplicates_and_bad_numbers_are_refused_per_layer() -> None:
    async with stage() as s:
        scoped = s.root.scope(Agent()).ctx[SystemPrompt]
        for prompt in (s.prompt, scoped):
            prompt.section("n", 0, "x")
            prompt.context("n", 0, "x")
            prompt.variable("n", lambda c: None)

        def refused(register: Callable[[], object]) -> str:
            with pytest.raises(PromptError) as caught:
                register()
            return str(caught.value)

        for kind, word in (("section", "override"), ("context", "override"), ("variable", "value")):

            def again(prompt: SystemPrompt, kind: str = kind) -> Callable[[], object]:
                if kind == "variable":
                    return lambda: prompt.variable("n", lambda c: None)
                return lambda: getattr(prompt, kind)("n", 0, "y")

            assert refused(again(s.prompt)) == (
                f'prompt {kind} "n" is already registered (for a per-agent {word}, register through that agent\'s '
                "`agent.ctx` instead)"
            )
            assert refused(again(scoped)) == f'prompt {kind} "n" is already registered in this scope'
        for bad in (float("nan"), float("inf"), "1", True):
            assert refused(lambda bad=bad: s.prompt.section("m", bad, "x")) == (  # type: ignore[misc]
                'prompt section "m" order must be a finite number'
            )
            assert refused(lambda bad=bad: s.prompt.context("m", bad, "x")) == (  # type: ignore[misc]
                'prompt context "m" order must be a finite number'
            )
        for name in ("", "Cwd", "1a", "a-b", "a b", "a\n"):
            assert refused(lambda name=name: s.prompt.variable(name, lambda c: "x")) == (  # type: ignore[misc]
                f'invalid prompt variable name "{name}" (must match /^[a-z][a-z0-9_]*$/)'
            )
        assert [section.name for section in (await s.prompt.assemble()).sections] == ["harness:identity", "n"]


async def test_b44b_a_refusing_change_listener_undoes_the_registration() -> None:
    async with stage(includeHarnessIdentity=False) as s:

        def refuse(event: SystemPromptChange) -> None:
            raise RuntimeError("frozen")

        undo = s.root.on(SystemPromptChange, refuse)
        agent = Agent()
        scope = s.root.scope(agent)
        for register in (
            lambda: s.prompt.section("a", 0, "x"),
            lambda: scope.ctx[SystemPrompt].section("a", 0, "x"),
            lambda: s.prompt.variable("a", lambda c: "x"),
            lambda: s.prompt.tools(lambda c: ToolSet([])),
            lambda: s.prompt.suppress_runtime_context(),
        ):
            with pytest.raises(RuntimeError, match="frozen"):
                register()
        undo()
        assembly = await s.prompt.assemble(for_agent(agent))
        assert assembly == Assembly() and s.prompt._layers.peek(agent) is None


# -- variables --------------------------------------------------------------------------------------------------------


async def test_b45e_variables_are_replaced_wherever_they_stand() -> None:
    async with stage(includeHarnessIdentity=False, persona="You work in {{cwd}}.") as s:

        async def cwd(context: AssembleContext) -> str:
            return f"/home/{context.agent}"

        s.prompt.variable("cwd", cwd)
        s.prompt.variable("odd", lambda c: "{{cwd}}")
        s.prompt.context("where", 0, "Here: {{odd}}")
        agent = Agent("anna")
        s.root.scope(agent).ctx[SystemPrompt].variable("odd", lambda c: "mine")
        assembly = await s.prompt.assemble(for_agent(agent))
        assert render_prompt(assembly) == "You work in /home/anna."
        assert render_contexts(assembly) == [{"name": "where", "text": "Here: mine"}]
        assert render_contexts(await s.prompt.assemble()) == [{"name": "where", "text": "Here: {{cwd}}"}]


async def test_b46_a_missing_value_names_section_and_variable() -> None:
    async with stage(persona="In {{cwd}}.") as s:
        s.prompt.variable("cwd", lambda c: None)
        assembly = await s.prompt.assemble()
        with pytest.raises(PromptError) as caught:
            render_prompt(assembly)
        assert str(caught.value) == (
            'prompt variable "{{cwd}}" has no value for this assembly (section "deployment:persona")'
        )
        s.prompt.context("c", 0, "{{nope}}")
        with pytest.raises(PromptError, match='in context "c"; registered variables: cwd$'):
            render_contexts(await s.prompt.assemble())


async def test_b46b_answers_of_the_wrong_type_are_refused() -> None:
    async with stage() as s:
        undo = s.prompt.variable("n", lambda c: 5)  # type: ignore[arg-type, return-value]
        with pytest.raises(PromptError, match='^prompt variable "n" must be text or None, not int$'):
            await s.prompt.assemble()
        undo()
        s.prompt.section("s", 0, lambda c: 5)  # type: ignore[arg-type, return-value]
        with pytest.raises(PromptError, match='^prompt section "s" must be text or None, not int$'):
            await s.prompt.assemble()


# -- the assemble event -----------------------------------------------------------------------------------------------


async def test_b47_a_listener_may_edit_or_replace_an_assembly_of_one_step() -> None:
    async with stage(includeHarnessIdentity=False) as s:
        s.tools.register(make("a"))
        s.prompt.section("base", 0, "base {{extra}}")
        mode = ["edit"]

        async def listen(event: SystemPromptAssemble, next: Next) -> Assembly:
            if mode[0] == "replace":
                return Assembly([PromptText("only", 0, "only this")])
            answer: Assembly = await next()
            if mode[0] == "edit":
                answer.variables["extra"] = "added"
                answer.sections.append(PromptText("more", 1, f"for {event.context.agent}"))
                answer.tools.clear()
            return answer

        undo = s.root.on(SystemPromptAssemble, listen)
        assembly = await s.prompt.assemble(for_agent(Agent("anna")))
        assert render_prompt(assembly) == "base added\n\nfor anna" and assembly.tools == []
        mode[0] = "replace"
        assembly = await s.prompt.assemble()
        assert render_prompt(assembly) == "only this" and assembly.tools == []
        undo()
        assembly = await s.prompt.assemble()
        assert [tool["name"] for tool in assembly.tools] == ["a"] and assembly.variables == {}
        assert [section.name for section in assembly.sections] == ["base"]


async def test_b47b_a_scoped_listener_hears_its_own_scope_only() -> None:
    async with stage() as s:
        agent = Agent()
        heard: list[Any] = []

        async def listen(event: SystemPromptAssemble, next: Next) -> Assembly:
            heard.append(event.context.scope)
            answer: Assembly = await next()
            return answer

        s.root.scope(agent).ctx.on(SystemPromptAssemble, listen)
        await s.prompt.assemble()
        await s.prompt.assemble(for_agent(Agent("other")))
        assert heard == []
        await s.prompt.assemble(for_agent(agent))
        assert heard == [agent]


async def test_b48_a_complete_section_is_the_whole_prompt() -> None:
    async with stage(persona="Someone.") as s:
        s.prompt.section("whole", 10, "Everything.", complete=True)

        async def add(event: SystemPromptAssemble, next: Next) -> Assembly:
            answer: Assembly = await next()
            answer.sections.append(PromptText("late", 99, "late"))
            return answer

        s.root.on(SystemPromptAssemble, add)
        assert await prompt_of(s) == "Everything."
        s.prompt.section("whole too", 5, "Also everything.", complete=True)
        with pytest.raises(PromptError, match='^multiple complete prompt sections are active: "whole too", "whole"$'):
            await s.prompt.assemble()


async def test_b49_suppressed_contexts_are_neither_asked_nor_added() -> None:
    async with stage() as s:
        asked: list[str] = []

        def time(context: AssembleContext) -> str:
            asked.append("time")
            return "noon"

        async def add(event: SystemPromptAssemble, next: Next) -> Assembly:
            answer: Assembly = await next()
            answer.contexts.append(PromptText("late", 99, "late"))
            return answer

        s.prompt.context("time", 0, time)
        s.root.on(SystemPromptAssemble, add)
        agent = Agent()
        scope = s.root.scope(agent)
        scope.ctx[SystemPrompt].suppress_runtime_context()
        assert render_contexts(await s.prompt.assemble(for_agent(agent))) == [] and asked == []
        both = [{"name": "time", "text": "noon"}, {"name": "late", "text": "late"}]
        assert render_contexts(await s.prompt.assemble()) == both
        await scope.dispose()
        assert render_contexts(await s.prompt.assemble(for_agent(agent))) == both
        undo = s.prompt.suppress_runtime_context()
        assert render_contexts(await s.prompt.assemble()) == []
        undo()
        assert render_contexts(await s.prompt.assemble()) == both
    async with stage(includeRuntimeContext=False) as s:
        s.prompt.context("time", 0, time)
        assert (await s.prompt.assemble()).contexts == []


# -- tools ------------------------------------------------------------------------------------------------------------


async def test_b50a_tools_are_shown_by_name_or_as_ordered() -> None:
    async with stage() as s:
        for name in ("write", "Bash", "read", "apply"):
            s.tools.register(make(name))
        assert await tools_of(s) == ["Bash", "apply", "read", "write"]
    async with stage(toolOrder=["read", "<unlisted-tools>", "apply"]) as s:
        for name in ("write", "Bash", "read", "apply"):
            s.tools.register(make(name))
        assert await tools_of(s) == ["read", "Bash", "write", "apply"]


async def test_b50b_a_typo_in_the_order_fails_the_assembly_and_a_masked_tool_does_not() -> None:
    async with stage(toolOrder=["read", "<unlisted-tools>"]) as s:
        with pytest.raises(PromptError) as caught:
            await s.prompt.assemble()
        assert str(caught.value) == 'toolOrder lists unregistered tool "read"; known tools: (none)'
        s.tools.register(make("read"))
        s.tools.register(make("write"))
        agent = Agent()
        s.root.scope(agent).ctx[Tools].restrict(deny=["read"])
        assert await tools_of(s, agent) == ["write"]
    async with stage(toolOrder=["rea", "<unlisted-tools>", "wrte"]) as s:
        s.tools.register(make("write"))
        s.tools.register(make("read"))
        with pytest.raises(PromptError) as caught:
            await s.prompt.assemble()
        assert str(caught.value) == ('toolOrder lists unregistered tools "rea", "wrte"; known tools: read, write')


async def test_b50c_the_marker_stands_in_the_order_once_and_in_no_tool_set() -> None:
    for order, message in (
        (["read"], 'toolOrder must contain the "<unlisted-tools>" rest entry (where unlisted tools are inserted)'),
        (["<unlisted-tools>", "<unlisted-tools>"], 'toolOrder lists "<unlisted-tools>" more than once'),
        (["a", "a", "<unlisted-tools>"], 'toolOrder lists "a" more than once'),
    ):
        async with Context() as root:
            with pytest.raises(ConfigError, match=message.replace("(", r"\(").replace(")", r"\)")):
                await root.plugin(SystemPrompt, {"toolOrder": order})
    async with stage() as s:
        s.prompt.tools(lambda c: ToolSet([{"name": "<unlisted-tools>", "description": "", "parameters": {}}]))
        with pytest.raises(PromptError) as caught:
            await s.prompt.assemble()
        assert str(caught.value) == (
            'tool provider returned reserved tool name "<unlisted-tools>" (reserved for toolOrder\'s rest entry)'
        )


async def test_b50d_providers_are_layered_and_the_nearest_wins_a_name() -> None:
    async with stage() as s:
        agent = Agent()
        s.tools.register(make("shared"))

        async def own(context: AssembleContext) -> ToolSet:
            return ToolSet([{"name": "shared", "description": "mine", "parameters": {}}])

        s.root.scope(agent).ctx[SystemPrompt].tools(own)
        assembly = await s.prompt.assemble(for_agent(agent))
        assert [tool["description"] for tool in assembly.tools] == ["mine"]
        assembly = await s.prompt.assemble()
        assert [tool["description"] for tool in assembly.tools] == ["The shared tool"]
        # Frozen once at registration, shared by every assembly since.
        assert assembly.tools[0] is s.tools.schemas()[0]


async def test_b51_what_is_registered_during_an_assembly() -> None:
    async with stage() as s:

        def provide(context: AssembleContext) -> ToolSet:
            if not late:
                late.append(s.prompt.tools(lambda c: ToolSet([{"name": "late", "description": "", "parameters": {}}])))
            return ToolSet([{"name": "early", "description": "", "parameters": {}}])

        late: list[Any] = []
        s.prompt.tools(provide)
        assert await tools_of(s) == ["early"]
        assert await tools_of(s) == ["early", "late"]

        def first(context: AssembleContext) -> str:
            s.prompt.variable("second", lambda c: "seen")
            gone()
            return "1"

        undo_first = s.prompt.variable("first", first)
        gone = s.prompt.variable("gone", lambda c: "never")
        assert (await s.prompt.assemble()).variables == {"first": "1", "second": "seen"}
        undo_first()


# -- lifetime ---------------------------------------------------------------------------------------------------------


async def test_b52_everything_a_plugin_contributed_leaves_with_it() -> None:
    async with stage() as s:
        before = await s.prompt.assemble()
        changes: list[str] = []
        s.root.on(SystemPromptChange, lambda e: changes.append("changed"))

        def plugin(ctx: Context, config: Any, prompt: SystemPrompt) -> None:
            prompt.section("s", 0, "x")
            prompt.context("c", 0, "x")
            prompt.variable("v", lambda c: "x")
            prompt.tools(lambda c: ToolSet([{"name": "t", "description": "", "parameters": {}}]))
            prompt.suppress_runtime_context()

        fiber = await s.root.plugin(plugin)
        assert len(changes) == 5
        assembly = await s.prompt.assemble()
        assert (len(assembly.sections), len(assembly.variables), len(assembly.tools)) == (2, 1, 1)
        await fiber.dispose()
        assert len(changes) == 10
        assert await s.prompt.assemble() == before


async def test_b53_sections_without_text_make_no_prompt() -> None:
    async with stage(includeHarnessIdentity=False) as s:
        s.prompt.section("a", 0, "")
        s.prompt.section("b", 0, lambda c: None)
        s.prompt.variable("nothing", lambda c: "")
        s.prompt.section("c", 0, "{{nothing}}")
        assert await prompt_of(s) == ""


async def test_an_abort_while_a_provider_is_awaited_ends_the_assembly() -> None:
    async with stage() as s:
        controller = AbortController()

        async def slow(context: AssembleContext) -> str:
            controller.abort()
            return "x"

        s.prompt.section("s", 0, slow)
        with pytest.raises(AbortError):
            await s.prompt.assemble(AssembleContext(signal=controller.signal))


@pytest.mark.parametrize("first", [Tools, SystemPrompt])
async def test_tools_feed_the_prompt_whichever_row_comes_first(first: Any) -> None:
    async with Context() as root:
        second = SystemPrompt if first is Tools else Tools
        root.plugin(first)
        await root.settle()
        fiber = root.plugin(second)
        await fiber
        root[Tools].register(make("a"))
        assert [tool["name"] for tool in (await root[SystemPrompt].assemble()).tools] == ["a"]


async def test_tools_outlive_a_restart_of_the_prompt() -> None:
    async with Context() as root:
        tools = await root.plugin(Tools)
        prompt = await root.plugin(SystemPrompt)
        await root.settle()
        root[Tools].register(make("a"))
        generation = tools.generation
        await prompt.restart()
        await root.settle()
        assert [tool["name"] for tool in (await root[SystemPrompt].assemble()).tools] == ["a"]
        assert tools.generation == generation
