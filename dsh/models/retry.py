"""The row ``llm-retry``: repeats a failed model call within its step, as the provider's retry policy says.

Every retry is in the log before its wait begins, so the count survives a crash and a person can see why an agent is
waiting. The policy belongs to the provider's row (``retryPolicy``); this row has no configuration.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal
from uuid import uuid4

from dsh.cordis import AbortController, AbortError, AbortSignal, ConfigModel, Context
from dsh.cordis.errors import error_chain
from dsh.cordis.issues import Keys, Walk
from dsh.core.agent_events import AgentRequestError
from dsh.llm.retry_policy import RetryPolicy
from dsh.llm.waiting import until_abort

name = "llm-retry"
Decision = Literal["retry"] | None


class Config(ConfigModel):
    """Takes nothing."""

    @classmethod
    def __read_config__(cls, raw: Any, walk: Walk, keys: Keys) -> Any:
        for key in raw if isinstance(raw, Mapping) else ():
            text = "llm-retry takes no configuration; set retryPolicy on the provider's row, such as llm-deepseek"
            walk.fail((*keys, str(key)), text)
        return super().__read_config__({}, walk, keys)


def apply(ctx: Context, config: Config) -> None:
    """Answer failed requests of all agents for as long as the row is mounted."""
    recovery = Recovery(ctx)
    ctx.defer(recovery.stop)
    ctx.on(AgentRequestError, recovery.decide, global_=True)


class Recovery:
    """Decides about failed requests; `stop` ends the waits and lets delegated decisions finish."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._unload = AbortController()
        self._deciding = 0
        self._quiet = asyncio.Event()
        self._quiet.set()

    async def stop(self) -> None:
        """End every wait without an action; return when no decision is pending."""
        self._unload.abort("llm-retry unloaded")
        await self._quiet.wait()

    async def decide(self, event: AgentRequestError, next: Callable[[], Awaitable[Decision]]) -> Decision:
        """``"retry"`` after the wait, or what the rest of the chain says."""
        if self._unload.signal.aborted:
            return None
        self._deciding += 1
        self._quiet.clear()
        try:
            return await self._decide(event, next)
        finally:
            self._deciding -= 1
            if not self._deciding:
                self._quiet.set()

    async def _decide(self, event: AgentRequestError, next: Callable[[], Awaitable[Decision]]) -> Decision:
        policy = event.retry_policy
        if policy is None:
            return await next()
        if policy.mode == "always":
            try:
                decision = await next()
            except Exception as error:
                self._ctx.logger.warning("recovery of a failed model call raised: %s", error_chain(error))
            else:
                if decision is not None:
                    return decision
            if event.signal.aborted or self._unload.signal.aborted:
                return None
        elif event.failure.code not in policy.retryable_codes:
            return await next()
        retry, retry_id = _numbered(event, policy)
        delay = _delay_ms(policy, retry, event.failure.provider_retry_after_ms)
        if delay is None or (policy.mode == "normal" and retry > policy.max_retries):
            return await next()
        return await self._wait_and_retry(event, policy, retry, retry_id, delay)

    async def _wait_and_retry(
        self, event: AgentRequestError, policy: RetryPolicy, retry: int, retry_id: str, delay_ms: float
    ) -> Decision:
        session = event.agent.session
        where = {"retryId": retry_id, "turn": event.turn, "step": event.step}
        budget = {"maxRetries": policy.max_retries} if policy.mode == "normal" else {}
        session.append(
            "llm/retry",
            {
                **where,
                "provider": event.provider,
                "mode": policy.mode,
                "policyKey": policy.key(),
                "retry": retry,
                **budget,
                "delayMs": delay_ms,
                "failure": event.failure.to_wire(),
            },
        )
        stop = AbortSignal.any(event.signal, self._unload.signal)
        try:
            await until_abort(asyncio.sleep(delay_ms / 1000), stop)
        except AbortError:
            return None
        if stop.aborted:
            return None
        session.append("llm/retry-started", {**where, "retry": retry})
        return "retry"


def _numbered(event: AgentRequestError, policy: RetryPolicy) -> tuple[int, str]:
    """Number and id of the next retry, counted in the log per step, provider and policy."""
    key = policy.key()
    for logged in reversed(event.agent.session.events):
        if logged.type == "step/start":
            break
        data = logged.data
        if logged.type == "llm/retry" and data["provider"] == event.provider and data["policyKey"] == key:
            return data["retry"] + 1, data["retryId"]
    return 1, str(uuid4())


def _delay_ms(policy: RetryPolicy, retry: int, asked: float | None) -> float | None:
    """The wait before a retry; None when the provider asks for more patience than the policy has."""
    if asked is None:
        return policy.delay_ms(retry)
    if asked <= policy.backoff.max_delay_ms:
        return asked
    return policy.delay_ms(retry) if policy.mode == "always" else None
