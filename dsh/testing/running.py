"""A plugin at work in a test: mounted with what it needs, tried, edited, unloaded, and looked after."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar, overload

from dsh.cordis import AbortSignal, Context, Fiber, FiberState, ServiceKey, StatusChanged
from dsh.cordis.events import Event
from dsh.cordis.testing import record
from dsh.core.agent import Agent, AgentOptions
from dsh.core.agent_loop import AgentLoop
from dsh.core.tools import ToolInput, ToolResult, Tools
from dsh.llm.message import create_user_message
from dsh.loader.environment import EnvLayer, LaunchEnvironment
from dsh.loader.resolve import load, resolve

from .fake_clock import FakeClock
from .footprint import Footprint, assert_nothing_left
from .parts import mount_companions, needed_parts, part
from .recorded import RecordedModel
from .scripted import ScriptedModel, ScriptEntry
from .turn import Turn

T = TypeVar("T")
E = TypeVar("E", bound=Event)

NEEDS_AGENT = "this run has no agent: give run_plugin(..., model=[...]) what the model shall say"
NEEDS_TOOLS = "this run has no tools, because the plugin needs none: run_plugin(..., parts=[Tools]) mounts them"


@asynccontextmanager
async def run_plugin(
    plugin: Any,
    config: Mapping[str, Any] | None = None,
    *,
    parts: Iterable[Any] = (),
    plugins: Sequence[Any] = (),
    services: Mapping[str, Any] | None = None,
    model: ScriptedModel | RecordedModel | Sequence[ScriptEntry] | None = None,
    route: tuple[str, str] | None = None,
    clock: FakeClock | None = None,
    folder: Path | str | None = None,
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[PluginRun]:
    """Run `plugin` inside the block with the services it declares to need, and check that it leaves nothing behind.

        async with run_plugin(Path("plugins/clock.py"), {"timezone": "UTC"}) as run:
            result = await run.call("now")

    `plugin` is a module, function, class or object with `apply`, the path of a plugin file, or a row name such as
    ``"dsh-tool-bash"``. `config` is what a row has under that word.

    What the plugin declares to need is mounted if it is a part (`dsh.testing.PARTS`); `parts` names more of them, by
    service class or name. `plugins` are mounted before it, each a plugin or a pair of one and its config; `services`
    are published as they are, by name. With `model`, what a model shall say, there is an agent as well, and the rules
    of the spine are checked while it runs; `route` is the provider and model of the agent if the plugin itself serves
    one. `clock` stops the time of the loop. `folder` is where relative paths start and agents work; `environment` what
    the plugin finds in its launch environment.

    Raises what a failing start raises, `ConfigError` for a bad config, and AssertionError: for a need that nothing
    meets, and after the block for what the plugin leaves behind or for an error it logged that no `take_errors` took.
    """
    base = Path(folder) if folder is not None else Path.cwd()
    found = find_plugin(plugin, base)
    others = [each if isinstance(each, tuple) else (each, None) for each in plugins]
    others = [(find_plugin(each, base), its) for each, its in others]
    if model is not None and not isinstance(model, (ScriptedModel, RecordedModel)):
        model = ScriptedModel(model)
    wanted = [*parts, *(["agentLoop"] if model is not None or route is not None else [])]
    given = {"launchEnvironment": LaunchEnvironment([EnvLayer("process", environment or {})]), **(services or {})}
    async with AsyncExitStack() as stack:
        outside = Footprint()
        root = await stack.enter_async_context(Context(base_dir=base))
        for name, service in given.items():
            root.provide(name, service)
        names = needed_parts(wanted, [found, *(each for each, _ in others)], given)
        for name in names:
            await root.plugin(part(name))
        if "agentLoop" in names:
            await mount_companions(root)
        if model is not None:
            await stack.enter_async_context(model.serve(root))
        for other, its_config in others:
            await root.plugin(other, its_config)
        bench = await root.plugin(_bench)
        if clock is not None:
            stack.enter_context(clock)  # last in, so that it is first out and everything else ends in real time
        # What a part started for the plugin stands as long as the part does: the process is looked at in the end.
        before = Footprint(root, process=False)
        fiber = root.plugin(found, config)
        await fiber
        run = PluginRun(root, fiber, bench, model, route, base)
        if missing := fiber.missing():
            raise AssertionError(
                f"the plugin {fiber.display_name} waits for {', '.join(missing)}: give each by "
                "run_plugin(..., services={name: object}) or plugins=[one that provides it]"
            )
        yield run
        if clock is not None:
            clock.release()  # what is on its way out takes the time that it takes
        await run.unload()
        await assert_nothing_left(before)
        run.check_errors()
    await assert_nothing_left(outside)


class PluginRun:
    """A running plugin and everything around it. `run[Tools]` is a service, as `ctx[Tools]` is.

    `ctx` is the test's own context: plugins it mounts there and whatever else it registers leave before the plugin.
    """

    def __init__(
        self,
        root: Context,
        fiber: Fiber,
        bench: Fiber,
        model: ScriptedModel | RecordedModel | None,
        route: tuple[str, str] | None,
        folder: Path,
    ) -> None:
        self.root = root
        self.fiber = fiber
        self.model: Any = model
        self.ctx = bench.ctx
        self._bench = bench
        self._watch = root.group("what a test records")
        self._route = route
        self._folder = folder
        self._agents: dict[str, Agent] = {}
        self._taken = 0
        self._calls = 0

    @overload
    def __getitem__(self, key: str) -> Any: ...
    @overload
    def __getitem__(self, key: ServiceKey[T]) -> T: ...
    @overload
    def __getitem__(self, key: type[T]) -> T: ...
    def __getitem__(self, key: Any) -> Any:
        """A service by class or name, called on behalf of `run.ctx`. Raises as reading it from a context does."""
        service = self.ctx.get(key)
        return service if service is not None else self.root[key]

    # -- tools --------------------------------------------------------------------------------------------------------

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        agent: Agent | None = None,
        signal: AbortSignal | None = None,
    ) -> ToolResult:
        """Call a tool as a model does, through every stage: `result.value`, `result.is_error`, `result_text(result)`.

        `agent` is who calls; `signal` may cancel it.
        """
        tools = self.ctx.get(Tools)
        if tools is None:
            raise AssertionError(NEEDS_TOOLS)
        self._calls += 1
        given = ToolInput(f"call-{self._calls}", tool, dict(arguments or {}), agent=agent, signal=signal)
        return await tools.execute(given)

    # -- agents -------------------------------------------------------------------------------------------------------

    @property
    def agent(self) -> Agent:
        """The agent that `prompt` talks to, made when it is asked for."""
        return self._agents.get("agent") or self.new_agent("agent")

    def new_agent(self, agent_id: str, **options: Any) -> Agent:
        """One more agent on the scripted model; `options` are those of `AgentOptions`."""
        route = self._route
        if route is None and self.model is not None:
            route = self.model.provider, self.model.model
        loop = self.ctx.get(AgentLoop)
        if loop is None or route is None:
            raise AssertionError(NEEDS_AGENT)
        provider, model = route
        given = AgentOptions(**{"provider": provider, "model": model, **options})
        agent = loop.create(agent_id, given, {"cwd": str(self._folder)})
        self._agents[agent_id] = agent
        return agent

    async def prompt(self, text: str, *, agent: Agent | None = None) -> Turn:
        """Say something to the agent and wait until it has nothing left to do."""
        agent = agent or self.agent
        first = len(agent.session.events)
        agent.followup(create_user_message(text))
        await agent.when_idle()
        return Turn(list(agent.session.events)[first:])

    # -- the plugin's life --------------------------------------------------------------------------------------------

    async def edit(self, config: Mapping[str, Any]) -> bool:
        """Change the plugin's config as a saved edit of its row does: the whole of it.

        True if it applied in place, False if the plugin restarted. Raises `ConfigError` for a bad one, and what makes
        a restart fail; the plugin then runs on as it was, or has failed.
        """
        states: list[FiberState] = []
        fiber = self.fiber
        listening = self.root.on(
            StatusChanged, lambda event: states.append(event.fiber.state) if event.fiber is fiber else None
        )
        try:
            await fiber.update(dict(config))
            await self.root.settle()
        finally:
            await listening()
        return not states

    async def reload(self) -> None:
        """Unload and load the plugin again with the same config."""
        await self.fiber.restart()

    async def unload(self) -> None:
        """End the agents and what the test mounted, then the plugin, and wait until all are gone.

        The end of the block does it otherwise.
        """
        self._agents.clear()
        await self._bench.dispose()
        await self.fiber.dispose()
        await self.root.settle()
        await self._watch()

    async def settle(self) -> None:
        """Wait until no plugin is in transition and no async listener has events left to hear."""
        await self.root.settle()

    async def until(self, holds: Callable[[], object], *, seconds: float = 10.0) -> None:
        """Let everything run until `holds()` is true. Raises AssertionError after so many seconds of real time."""
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, f"still not true after {seconds:g} seconds: {holds}"
            await asyncio.sleep(0)

    # -- what happened ------------------------------------------------------------------------------------------------

    def record(self, event: type[E]) -> list[E]:
        """A list that gets every event of this class from now on."""
        return record(self._watch, event)

    def logged(self, level: int = logging.INFO) -> list[str]:
        """The log messages from this level on, of all plugins, oldest first."""
        return [each.getMessage() for each in self.root.runtime.logs.records if each.levelno >= level]

    def take_errors(self) -> list[str]:
        """The errors logged since the last look, such as what a listener raised; taken, they fail no test."""
        errors = self._errors()
        taken, self._taken = self._taken, len(errors)
        return errors[taken:]

    def check_errors(self) -> None:
        """Fail if errors were logged that nobody took."""
        errors = self.take_errors()
        assert not errors, "errors were logged (look at them with run.take_errors() if they are meant): " + "; ".join(
            errors
        )

    def _errors(self) -> list[str]:
        found = []
        for each in self.root.runtime.logs.records:
            if each.levelno >= logging.ERROR:
                cause = each.exc_info[1] if each.exc_info else None
                found.append(each.getMessage() + (f": {type(cause).__name__}: {cause}" if cause is not None else ""))
        return found


def _bench(ctx: Context) -> None:
    """Owns the agents of a run and what its test mounts, so that they end before the plugin does."""


def find_plugin(plugin: Any, base: Path) -> Any:
    """The plugin behind a path or a row name; anything else as it is. Raises as a row does that cannot be loaded."""
    if isinstance(plugin, Path):
        plugin = str((base / plugin).absolute())
    return load(resolve(plugin, base)) if isinstance(plugin, str) else plugin
