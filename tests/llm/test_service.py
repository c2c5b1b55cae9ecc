"""The model service: registration, prepared calls, the waterfall, the terminal boundary."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from dsh.cordis import AbortController, AbortError, Context, HarnessError
from dsh.cordis.jsonio import FrozenDict
from dsh.llm.call_config import CallConfig
from dsh.llm.failure import LlmError
from dsh.llm.message import create_assistant_message, create_user_message
from dsh.llm.retry_policy import RetryPolicy
from dsh.llm.service import AdaptersUpdated, Llm, LlmStream
from dsh.llm.types import LlmRequest, is_agent_loop_request, mark_agent_loop_request
from tests.llm.helpers import HELLO, FakeAdapter, collect, failure_code, request


@asynccontextmanager
async def service() -> AsyncIterator[tuple[Context, Llm]]:
    async with Context() as root:
        await root.plugin(Llm)
        yield root, root[Llm]


def ids(llm: Llm) -> list[str]:
    return [provider["id"] for provider in llm.list_providers()]


# Registration


async def test_b07a_registration_is_all_or_nothing() -> None:
    async with service() as (_, llm):
        llm.register_adapter(["a"], FakeAdapter())
        for names, code in ([[], "INVALID_ADAPTER"], [[""], "INVALID_ADAPTER"], [["b", "b"], "DUPLICATE_ADAPTER"]):
            with pytest.raises(LlmError) as refused:
                llm.register_adapter(names, FakeAdapter())
            assert refused.value.code == code
        with pytest.raises(LlmError) as refused:
            llm.register_adapter(["b", "a"], FakeAdapter())
        assert refused.value.code == "DUPLICATE_ADAPTER"
        assert ids(llm) == ["a"]


async def test_b07b_replace_swaps_in_one_step_and_refuses_whole() -> None:
    async with service() as (root, llm):
        seen: list[list[str]] = []
        llm.register_adapter(["other"], FakeAdapter())
        handle = llm.register_adapter(["a", "b"], FakeAdapter())
        root.on(AdaptersUpdated, lambda event: seen.append(ids(llm)))
        handle.replace(["b", "c"])
        with pytest.raises(LlmError, match="other"):
            handle.replace(["d", "other"])
        assert ids(llm) == ["other", "b", "c"]
        handle.replace([])
        handle.replace(["z"])
        # No listener ever saw the state between the old and the new routes.
        assert seen == [["other", "b", "c"], ["other"], ["other", "z"]]


async def test_b07c_a_disposed_registration_cannot_be_replaced_and_leaves_with_its_plugin() -> None:
    async with service() as (root, llm):
        handles: list[Any] = []

        def plugin(ctx: Context, config: Any, llm: Llm) -> None:
            handles.append(llm.register_adapter(["a"], FakeAdapter()))

        fiber = await root.plugin(plugin)
        assert ids(llm) == ["a"]
        await fiber.dispose()
        assert ids(llm) == []
        with pytest.raises(LlmError) as refused:
            handles[0].replace(["a"])
        assert refused.value.code == "REGISTRATION_DISPOSED"
        handle = llm.register_adapter(["a"], FakeAdapter())
        handle.dispose()
        handle.dispose()
        assert ids(llm) == []


async def test_b07d_a_changed_retry_policy_arrives_with_replace() -> None:
    async with service() as (_, llm):
        adapter = FakeAdapter()
        adapter.policy = RetryPolicy(max_retries=1)
        handle = llm.register_adapter(["a"], adapter)
        adapter.policy = RetryPolicy(max_retries=2)
        assert llm.provider_retry_policy("a") == RetryPolicy(max_retries=1)
        handle.replace(["a"])
        assert llm.provider_retry_policy("a") == RetryPolicy(max_retries=2)


async def test_b08_a_throwing_listener_starves_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async with service() as (root, llm):
        heard: list[str] = []

        def boom(event: AdaptersUpdated) -> None:
            raise RuntimeError("listener broke")

        async def boom_later(event: AdaptersUpdated) -> None:
            raise RuntimeError("async listener broke")

        root.on(AdaptersUpdated, boom)
        root.on(AdaptersUpdated, boom_later)
        root.on(AdaptersUpdated, lambda event: heard.append("third"))
        with caplog.at_level(logging.ERROR):
            llm.register_adapter(["a"], FakeAdapter())
            await root.settle()
        assert heard == ["third"]
        assert "listener broke" in caplog.text and "async listener broke" in caplog.text


# Terminal boundary


async def raising(error: Exception) -> AsyncIterator[Any]:
    yield HELLO[0]
    raise error


async def test_b09a_every_failure_of_the_adapter_is_one_finish() -> None:
    class Dispatch(FakeAdapter):
        def stream(self, request: LlmRequest) -> Any:
            raise LlmError.of("RATE_LIMIT", "slow down", status=429)

    class NoIterator(FakeAdapter):
        def stream(self, request: LlmRequest) -> Any:
            return object()

    async with service() as (_, llm):
        llm.register_adapter(["dispatch"], Dispatch())
        llm.register_adapter(["iterator"], NoIterator())
        llm.register_adapter(["iteration"], FakeAdapter(lambda _: raising(RuntimeError(""))))
        assert await collect(llm.stream(request("dispatch"))) == [
            {
                "type": "finish",
                "reason": {"kind": "error", "failure": {"message": "slow down", "code": "RATE_LIMIT", "status": 429}},
            }
        ]
        assert await failure_code(llm, request("iterator")) == ("error", "UNKNOWN")
        chunks = await collect(llm.stream(request("iteration")))
        assert [chunk["type"] for chunk in chunks] == ["block-start", "finish"]
        # A blank text becomes the class name.
        assert chunks[-1]["reason"]["failure"] == {"message": "RuntimeError", "code": "UNKNOWN"}
        assert await failure_code(llm, request("nobody")) == ("error", "NO_ADAPTER")


async def test_b09b_errors_of_middleware_cleanup_and_consumer_stay_raised() -> None:
    class BadCleanup(FakeAdapter):
        async def stream(self, request: LlmRequest) -> AsyncIterator[Any]:
            try:
                for chunk in HELLO:
                    yield chunk
            finally:
                raise OSError("cleanup broke")

    async with service() as (root, llm):
        llm.register_adapter(["p"], adapter := FakeAdapter())
        llm.register_adapter(["bad"], BadCleanup())
        with pytest.raises(OSError, match="cleanup broke"):
            async with aclosing(llm.stream(request("bad"))) as chunks:  # type: ignore[type-var]
                async for _ in chunks:
                    break
        with pytest.raises(ZeroDivisionError):
            async with aclosing(llm.stream(request())) as chunks:  # type: ignore[type-var]
                async for _ in chunks:
                    raise ZeroDivisionError
        assert adapter.closed == 1

        def broken(event: LlmStream, next: Any) -> Any:
            raise KeyError("middleware")

        root.on(LlmStream, broken)
        with pytest.raises(KeyError):
            llm.stream(request())


async def test_b09c_a_failure_while_the_signal_is_aborted_is_an_aborted_finish() -> None:
    controller = AbortController()

    async def until_abort(sent: LlmRequest) -> AsyncIterator[Any]:
        yield HELLO[0]
        assert sent.signal is not None
        await sent.signal.wait()
        raise ConnectionError("torn down")

    async with service() as (_, llm):
        llm.register_adapter(["p"], FakeAdapter(until_abort))
        chunks: list[Any] = []
        async for chunk in llm.stream(request(signal=controller.signal)):
            chunks.append(chunk)
            controller.abort("user")
        assert [chunk["type"] for chunk in chunks] == ["block-start", "finish"]
        assert chunks[-1]["reason"]["kind"] == "aborted"


async def test_b10_abort_during_resolution_ends_at_once_even_with_a_deaf_adapter() -> None:
    resolving = asyncio.Event()
    ended: list[str] = []

    class Deaf(FakeAdapter):
        async def resolve_model(self, provider: str, model: str, signal: Any = None) -> Any:
            resolving.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("resolution")

    async with service() as (_, llm):
        llm.register_adapter(["p"], adapter := Deaf())
        for call in (
            lambda signal: llm.prepare_call(CallConfig("p", "m"), signal),
            lambda signal: llm.resolve_model_info("p", "m", signal),
        ):
            controller = AbortController()
            resolving.clear()
            task = asyncio.create_task(call(controller.signal))
            await resolving.wait()
            controller.abort("enough")
            with pytest.raises(AbortError):
                await task
        controller = AbortController()
        resolving.clear()
        stream = asyncio.create_task(collect(llm.stream(request(signal=controller.signal))))
        await resolving.wait()
        controller.abort("enough")
        assert (await stream)[-1]["reason"]["kind"] == "aborted"
        assert ended == ["resolution"] * 3
        assert adapter.requests == []


# Prepared calls


async def test_b11a_a_prepared_call_survives_the_replacement_of_its_route() -> None:
    async with service() as (_, llm):
        old, new = FakeAdapter(), FakeAdapter()
        handle = llm.register_adapter(["p"], old)
        prepared = await llm.prepare_call(CallConfig("p", "m"))
        handle.dispose()
        llm.register_adapter(["p"], new)
        assert await collect(prepared.stream(request(config=prepared.config))) == HELLO
        assert (len(old.requests), len(new.requests)) == (1, 0)


async def test_b11b_reuse_and_drift_of_a_prepared_call_are_refused() -> None:
    async with service() as (_, llm):
        llm.register_adapter(["p"], adapter := FakeAdapter())
        prepared = await llm.prepare_call(CallConfig("p", "m", stop=()))
        for config in (CallConfig("p", "m"), CallConfig("p", "m", stop=("x",)), CallConfig("p", "other", stop=())):
            with pytest.raises(LlmError) as refused:
                prepared.stream(request(config=config))
            assert refused.value.code == "INVALID_PREPARED_CALL"
        await collect(prepared.stream(request(config=prepared.config)))
        with pytest.raises(LlmError) as refused:
            prepared.stream(request(config=prepared.config))
        assert refused.value.code == "INVALID_PREPARED_CALL"
        assert len(adapter.requests) == 1


async def test_b12_efforts_are_checked_before_io_and_defaults_are_marked() -> None:
    reasoning = {"efforts": [{"id": "low", "name": "Low"}, {"id": "high", "name": "High"}], "defaultEffort": "high"}
    async with service() as (_, llm):
        thinker = FakeAdapter(reasoning=reasoning, defaultMaxTokens=500, context={"contextWindow": 9000})
        llm.register_adapter(["p"], thinker)
        llm.register_adapter(["plain"], plain := FakeAdapter())
        for provider, effort in (("p", "max"), ("plain", "low")):
            with pytest.raises(LlmError) as refused:
                await llm.prepare_call(CallConfig(provider, "m", reasoning_effort=effort))
            assert refused.value.code == "UNSUPPORTED_REASONING_EFFORT"
            sent = request(config=CallConfig(provider, "m", reasoning_effort=effort))
            assert await failure_code(llm, sent) == ("error", "UNSUPPORTED_REASONING_EFFORT")
        assert thinker.requests == plain.requests == []
        prepared = await llm.prepare_call(CallConfig("p", "m"))
        assert prepared.config == CallConfig("p", "m", reasoning_effort="high", max_tokens=500)
        assert prepared.adapter_defaults == {"reasoningEffort", "maxTokens"}
        assert prepared.context == {"contextWindow": 9000}
        explicit = await llm.prepare_call(CallConfig("p", "m", reasoning_effort="low", max_tokens=7))
        assert explicit.config.max_tokens == 7 and explicit.adapter_defaults == frozenset()
        assert await llm.resolve_call_config(CallConfig("p", "m")) == prepared.config
        # A one-shot call gets the same defaults.
        await collect(llm.stream(request()))
        assert thinker.requests[-1].config == prepared.config


@pytest.mark.parametrize(
    ("info", "code"),
    [
        ({"provider": "other"}, "INVALID_MODEL_INFO"),
        ({"name": ""}, "INVALID_MODEL_INFO"),
        ({"inputModalities": "text"}, "INVALID_MODEL_INFO"),
        ({"context": {"contextWindow": True}}, "INVALID_MODEL_CONTEXT"),
        ({"defaultMaxTokens": 0}, "INVALID_MODEL_MAX_TOKENS"),
        ({"reasoning": {"efforts": []}}, "INVALID_MODEL_REASONING"),
        ({"reasoning": {"efforts": [{"id": "a", "name": "A"}], "defaultEffort": "b"}}, "INVALID_MODEL_REASONING"),
    ],
)
async def test_b12b_malformed_model_facts_are_named(info: dict[str, Any], code: str) -> None:
    async with service() as (_, llm):
        llm.register_adapter(["p"], FakeAdapter(**info))
        with pytest.raises(LlmError) as refused:
            await llm.resolve_model_info("p", "m")
        assert refused.value.code == code


async def test_b12c_a_malformed_catalog_is_named() -> None:
    class Catalog(FakeAdapter):
        models: list[Any] = []

        async def list_models(self, provider: str) -> Any:
            return self.models

    async with service() as (_, llm):
        llm.register_adapter(["p"], adapter := Catalog())
        good = {"provider": "p", "id": "m", "name": "M"}
        for models in ([{**good, "provider": "q"}], [{**good, "name": ""}], [good, good], [None]):
            adapter.models = models
            with pytest.raises(LlmError) as refused:
                await llm.list_models("p")
            assert refused.value.code == "INVALID_CATALOG"
        adapter.models = [good]
        listed = await llm.list_models("p")
        assert listed == [good] and listed[0] is not good


# Waterfall


async def test_b13_a_listener_reroutes_or_answers_before_any_lookup() -> None:
    async with service() as (root, llm):
        llm.register_adapter(["real"], adapter := FakeAdapter())

        def reroute(event: LlmStream, next: Any) -> Any:
            if event.request.provider == "alias":
                event.request = replace(event.request, config=CallConfig("real", "m"))
            return next()

        async def canned() -> AsyncIterator[Any]:
            yield {"type": "finish", "reason": {"kind": "stop"}}

        def answer(event: LlmStream, next: Any) -> Any:
            return canned() if event.request.provider == "canned" else next()

        root.on(LlmStream, reroute)
        root.on(LlmStream, answer)
        assert await collect(llm.stream(request("alias"))) == HELLO
        assert adapter.requests[0].provider == "real"
        assert await collect(llm.stream(request("canned"))) == [{"type": "finish", "reason": {"kind": "stop"}}]


async def test_b13b_loop_requests_are_marked_by_identity() -> None:
    marked = mark_agent_loop_request(request())
    assert is_agent_loop_request(marked)
    assert not is_agent_loop_request(replace(marked, system="s"))
    assert not is_agent_loop_request(request())


async def test_b14_replay_notes_reach_only_the_adapter_that_wrote_them() -> None:
    async with service() as (_, llm):
        llm.register_adapter(["a", "a2"], one := FakeAdapter())
        llm.register_adapter(["b"], two := FakeAdapter())
        note = {"response": {"sig": 1}}
        history = [
            create_user_message("q"),
            create_assistant_message([], "a", "m", note),
            create_assistant_message([], "b", "m", note),
            create_assistant_message([], "gone", "m", note),
        ]
        await collect(llm.stream(request("a2", messages=history)))
        kept, foreign, orphan = one.requests[0].messages[1:]
        assert kept is history[1]
        assert foreign["source"] == {"kind": "model", "provider": "b", "model": "m"}
        assert orphan["source"] == {"kind": "model", "provider": "gone", "model": "m"}
        assert isinstance(foreign, FrozenDict) and isinstance(foreign["source"], FrozenDict)
        assert foreign["id"] == history[2]["id"] and one.requests[0].messages[0] is history[0]
        thawed = {**history[1], "source": dict(history[1]["source"])}
        await collect(llm.stream(request("b", messages=[thawed])))
        assert "replayState" not in two.requests[0].messages[0]["source"]
        assert not isinstance(two.requests[0].messages[0], FrozenDict) and "replayState" in thawed["source"]


async def test_b15_images_are_projected_below_what_the_waterfall_sees() -> None:
    image = {"type": "image", "attachment": {"attachmentId": "sha256:0123456789"}}
    async with service() as (root, llm):
        llm.register_adapter(["text"], text_only := FakeAdapter(inputModalities=["text"]))
        llm.register_adapter(["vision"], vision := FakeAdapter(inputModalities=["text", "image"]))
        llm.register_adapter(["unknown"], unknown := FakeAdapter())
        seen: list[Any] = []

        def watch(event: LlmStream, next: Any) -> Any:
            seen.append(event.request.messages[0]["content"][0]["type"])
            return next()

        root.on(LlmStream, watch)
        for provider in ("text", "vision", "unknown"):
            await collect(llm.stream(request(provider, messages=[create_user_message([image])])))
        assert seen == ["image"] * 3
        types = [a.requests[0].messages[0]["content"][0]["type"] for a in (text_only, vision, unknown)]
        assert types == ["text", "image", "image"]


# Unloading and usability


async def test_an_adapter_that_unloads_while_streaming_ends_as_a_retryable_transport_failure() -> None:
    streaming = asyncio.Event()

    async def hang(sent: LlmRequest) -> AsyncIterator[Any]:
        yield HELLO[0]
        streaming.set()
        assert sent.signal is not None
        await sent.signal.wait()
        sent.signal.raise_if_aborted()

    async with service() as (root, llm):

        def plugin(ctx: Context, config: Any, llm: Llm) -> None:
            llm.register_adapter(["p"], FakeAdapter(hang))

        fiber = await root.plugin(plugin)
        task = asyncio.create_task(collect(llm.stream(request())))
        await streaming.wait()
        await fiber.dispose()
        reason = (await task)[-1]["reason"]
        assert reason["kind"] == "error" and reason["failure"]["code"] == "TRANSPORT"


async def test_usable_says_why_not() -> None:
    class Keyless(FakeAdapter):
        def usable(self, provider: str) -> str | None:
            return "no key"

    async with service() as (_, llm):
        llm.register_adapter(["p"], FakeAdapter())
        llm.register_adapter(["k"], Keyless())
        assert llm.usable("p") is None
        assert llm.usable("k") == "no key"
        assert llm.usable("x") == 'no adapter registered for provider "x"'


async def test_other_harness_errors_keep_their_code() -> None:
    async with service() as (_, llm):
        llm.register_adapter(["p"], FakeAdapter(lambda _: raising(HarnessError("odd", "MY_CODE"))))
        assert await failure_code(llm, request()) == ("error", "MY_CODE")
