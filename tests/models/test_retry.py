"""The retry row under a real loop and a real server."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import pytest

from dsh.cordis import AbortController, ConfigError, Context
from dsh.core.agent_events import AgentRequestError
from dsh.llm.failure import LlmFailure
from dsh.llm.message import create_user_message
from dsh.llm.retry_policy import DEFAULT_RETRYABLE_CODES, RetryPolicy
from dsh.models import retry
from dsh.models.mock_server import MockLlmServer
from tests.models.helpers import FAST, agent_stack

RETRY_TYPES = ("step/start", "llm/retry", "llm/retry-started", "assistant/message", "step/end")


async def test_b44_order_and_contents_of_the_events() -> None:
    async with agent_stack(["server_error", "success"]) as s:
        assert await s.prompt("hi") == {"kind": "completed"}
        order = [event.type for event in s.session.events if event.type in RETRY_TYPES]
        assert order == ["step/start", "llm/retry", "llm/retry-started", "assistant/message", "step/end"]
        (waiting,), (started,) = s.of_type("llm/retry"), s.of_type("llm/retry-started")
        codes = json.dumps(sorted(DEFAULT_RETRYABLE_CODES), separators=(",", ":"))
        assert waiting == {
            "retryId": waiting["retryId"],
            "turn": 1,
            "step": 1,
            "provider": "deepseek-official",
            "mode": "normal",
            "policyKey": f'["normal",5,{codes},1,2000,0]',
            "retry": 1,
            "maxRetries": 5,
            "delayMs": 1,
            "failure": {
                "message": "Internal server error",
                "code": "SERVER",
                "status": 500,
                "requestId": "mock-request",
            },
        }
        assert started == {"retryId": waiting["retryId"], "turn": 1, "step": 1, "retry": 1}


async def test_b45b_the_budget_ends_the_turn_with_the_last_failure() -> None:
    async with agent_stack(["server_error"] * 4, retryPolicy={**FAST, "maxRetries": 2}) as s:
        reason = await s.prompt("hi")
        assert reason["kind"] == "error" and reason["error"]["code"] == "SERVER"
        assert [event["retry"] for event in s.of_type("llm/retry")] == [1, 2]
        assert len({event["retryId"] for event in s.of_type("llm/retry")}) == 1
        assert len(s.server.requests) == 3


async def test_b45c_a_code_that_is_not_listed_is_not_repeated() -> None:
    async with agent_stack(["auth_error", "success"]) as s:
        reason = await s.prompt("hi")
        assert reason["error"]["code"] == "AUTH" and s.of_type("llm/retry") == []
        assert await s.prompt("again") == {"kind": "completed"}


async def test_b46a_a_retry_after_within_the_limit_is_waited_exactly() -> None:
    script = [{"behavior": "rate_limit", "retryAfterMs": 1000}, "success"]
    policy = {"backoff": {"initialDelayMs": 1, "maxDelayMs": 1000, "jitterRatio": 1}}
    async with agent_stack(script, retryPolicy=policy) as s:
        assert await s.prompt("hi") == {"kind": "completed"}
        assert [event["delayMs"] for event in s.of_type("llm/retry")] == [1000]


async def test_b46b_a_longer_one_ends_a_normal_policy_and_is_ignored_by_always() -> None:
    script = [{"behavior": "rate_limit", "retryAfterMs": 60_000}, "success"]
    backoff = {"backoff": {"initialDelayMs": 1, "maxDelayMs": 40, "jitterRatio": 0}}
    async with agent_stack(script, retryPolicy=backoff) as s:
        assert (await s.prompt("hi"))["error"]["code"] == "RATE_LIMIT"
        assert s.of_type("llm/retry") == []
    async with agent_stack(script, retryPolicy={"mode": "always", **backoff}) as s:
        assert await s.prompt("hi") == {"kind": "completed"}
        (event,) = s.of_type("llm/retry")
        assert event["delayMs"] == 1 and event["mode"] == "always" and "maxRetries" not in event


async def test_b47_always_lets_the_rest_of_the_chain_go_first() -> None:
    policy = {"mode": "always", "backoff": {"initialDelayMs": 1, "maxDelayMs": 1, "jitterRatio": 0}}
    async with agent_stack(["auth_error", "auth_error", "auth_error", "success"], retryPolicy=policy) as s:
        decisions: list[Any] = ["retry", RuntimeError("downstream broke"), None]

        async def downstream(event: AgentRequestError, next: Any) -> Any:
            decision = decisions.pop(0)
            if isinstance(decision, Exception):
                raise decision
            return decision

        s.root.on(AgentRequestError, downstream)
        assert await s.prompt("hi") == {"kind": "completed"}
        # The first attempt was repeated by the downstream listener, the other two by the row.
        assert [event["retry"] for event in s.of_type("llm/retry")] == [1, 2] and decisions == []


async def test_b48a_cancel_ends_the_wait() -> None:
    slow = {"backoff": {"initialDelayMs": 60_000, "maxDelayMs": 60_000, "jitterRatio": 0}}
    async with agent_stack(["server_error", "success"], retryPolicy=slow) as s:
        s.agent.followup(create_user_message("hi"))
        while not s.of_type("llm/retry"):
            await asyncio.sleep(0.005)
        s.agent.cancel({"kind": "user"})
        await asyncio.wait_for(s.agent.when_idle(), 5)
        assert s.of_type("turn/end")[-1]["reason"] == {"kind": "aborted", "reason": {"kind": "user"}}
        assert s.of_type("llm/retry-started") == []
        assert await s.prompt("again") == {"kind": "completed"}


async def test_b48b_unload_ends_the_wait_and_a_stale_callback_does_nothing() -> None:
    slow = RetryPolicy.validate({"backoff": {"initialDelayMs": 60_000, "maxDelayMs": 60_000}})
    async with agent_stack() as s, Context() as root:
        recovery = retry.Recovery(root)
        s.session.append("turn/start", {"turn": 1})
        s.session.append("step/start", {"turn": 1, "step": 1})
        event = AgentRequestError(
            agent=s.agent,
            turn=1,
            step=1,
            provider="p",
            failure=LlmFailure("m", "SERVER"),
            retry_policy=slow,
            signal=AbortController().signal,
        )

        async def give_up() -> None:
            return None

        waiting = asyncio.create_task(recovery.decide(event, give_up))
        while not s.of_type("llm/retry"):
            await asyncio.sleep(0)
        await asyncio.wait_for(recovery.stop(), 5)
        assert waiting.done() and await waiting is None
        assert await recovery.decide(event, give_up) is None
        assert len(s.of_type("llm/retry")) == 1 and s.of_type("llm/retry-started") == []


async def test_b48c_unload_waits_for_a_delegated_decision() -> None:
    async with agent_stack() as s, Context() as root:
        recovery = retry.Recovery(root)
        gate = asyncio.Event()
        event = AgentRequestError(
            agent=s.agent,
            turn=1,
            step=1,
            provider="p",
            failure=LlmFailure("m", "SERVER"),
            retry_policy=None,
            signal=AbortController().signal,
        )

        async def slow() -> Any:
            await gate.wait()
            return "retry"

        deciding = asyncio.create_task(recovery.decide(event, slow))
        await asyncio.sleep(0)
        stopping = asyncio.create_task(recovery.stop())
        await asyncio.sleep(0.01)
        assert not stopping.done()
        gate.set()
        await stopping
        assert await deciding == "retry"


async def test_b49b_retries_are_counted_per_policy_and_step() -> None:
    async with agent_stack(["server_error", "server_error", "tool_call_success", "server_error", "success"]) as s:
        assert await s.prompt("hi") == {"kind": "completed"}
        assert [(e["step"], e["retry"]) for e in s.of_type("llm/retry")] == [(1, 1), (1, 2), (2, 1)]
        ids = [event["retryId"] for event in s.of_type("llm/retry")]
        assert ids[0] == ids[1] != ids[2]


async def test_b50a_a_refused_connection_recovers() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        policy = {"backoff": {"initialDelayMs": 50, "maxDelayMs": 50, "jitterRatio": 0}, "maxRetries": 100}
        async with agent_stack(baseURL=f"http://127.0.0.1:{port}/v1", retryPolicy=policy) as s:
            s.agent.followup(create_user_message("hi"))
            while not s.of_type("llm/retry"):
                await asyncio.sleep(0.005)
            assert s.of_type("llm/retry")[0]["failure"]["code"] == "TRANSPORT"
            closed.close()
            async with MockLlmServer(["success"], port=port):
                await asyncio.wait_for(s.agent.when_idle(), 20)
            assert s.of_type("turn/end")[-1]["reason"] == {"kind": "completed"}


async def test_b50b_attempts_send_identical_bodies_and_partial_output_stays_out_of_history() -> None:
    async with agent_stack(["partial_disconnect", "partial_eof", "success", "success"]) as s:
        assert await s.prompt("hi") == {"kind": "completed"}
        first, second, third = (request.raw for request in s.server.requests)
        assert first == second == third
        (message,) = s.of_type("assistant/message")
        assert message["message"]["content"] == [{"type": "text", "text": "Hello from the mock model."}]
        await s.prompt("next")
        history = json.loads(s.server.requests[-1].raw)["messages"]
        assert [m["content"] for m in history if m["role"] == "assistant"] == ["Hello from the mock model."]


async def test_the_row_takes_no_configuration() -> None:
    async with Context() as root:
        with pytest.raises(ConfigError, match="retryPolicy on the provider's row"):
            await root.plugin(retry, {"maxRetries": 3})
