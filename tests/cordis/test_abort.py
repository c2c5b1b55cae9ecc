"""The abort signal: first reason wins, listeners run once, derived signals clean up after themselves."""

from __future__ import annotations

import asyncio

import pytest

from dsh.cordis.abort import AbortController, AbortError, AbortSignal


def test_first_reason_wins() -> None:
    controller = AbortController()
    assert not controller.signal.aborted and controller.signal.reason is None
    controller.abort("first")
    controller.abort("second")
    assert controller.signal.aborted and controller.signal.reason == "first"


def test_raise_if_aborted_carries_the_reason() -> None:
    controller = AbortController()
    controller.signal.raise_if_aborted()
    cause = ValueError("stop")
    controller.abort(cause)
    with pytest.raises(AbortError) as caught:
        controller.signal.raise_if_aborted()
    assert caught.value.reason is cause and caught.value.__cause__ is cause


def test_listeners_run_once_in_order_and_may_be_undone() -> None:
    controller = AbortController()
    seen: list[str] = []
    controller.signal.on_abort(lambda: seen.append("a"))
    undo = controller.signal.on_abort(lambda: seen.append("b"))
    controller.signal.on_abort(lambda: seen.append("c"))
    undo()
    undo()
    controller.abort()
    controller.abort()
    assert seen == ["a", "c"]
    controller.signal.on_abort(lambda: seen.append("late"))
    assert seen == ["a", "c", "late"]


def test_a_raising_listener_does_not_starve_the_next(caplog: pytest.LogCaptureFixture) -> None:
    controller = AbortController()
    seen: list[int] = []
    controller.signal.on_abort(lambda: 1 / 0)  # type: ignore[arg-type,return-value]
    controller.signal.on_abort(lambda: seen.append(1))
    controller.abort()
    assert seen == [1]
    assert "abort listener" in caplog.text


async def test_wait_returns_the_reason() -> None:
    controller = AbortController()
    waiter = asyncio.ensure_future(controller.signal.wait())
    await asyncio.sleep(0)
    assert not waiter.done()
    controller.abort("done")
    assert await waiter == "done"
    assert await controller.signal.wait() == "done"


async def test_a_cancelled_wait_leaves_no_listener() -> None:
    controller = AbortController()
    waiter = asyncio.ensure_future(controller.signal.wait())
    await asyncio.sleep(0)
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert not controller.signal._listeners


def test_any_fires_with_the_first_source() -> None:
    one, two = AbortController(), AbortController()
    both = AbortSignal.any(one.signal, None, two.signal)
    seen: list[object] = []
    both.on_abort(lambda: seen.append(both.reason))
    two.abort("two")
    one.abort("one")
    assert seen == ["two"] and both.aborted and both.reason == "two"


def test_any_knows_the_order_even_when_nobody_listened() -> None:
    one, two = AbortController(), AbortController()
    both = AbortSignal.any(one.signal, two.signal)
    two.abort("two")
    one.abort("one")
    assert both.reason == "two"


def test_any_listens_only_while_listened_to() -> None:
    long_lived, short = AbortController(), AbortController()
    both = AbortSignal.any(long_lived.signal, short.signal)
    assert not long_lived.signal._listeners
    undo = both.on_abort(lambda: None)
    assert len(long_lived.signal._listeners) == 1
    undo()
    assert not long_lived.signal._listeners and not short.signal._listeners
    both.on_abort(lambda: None)
    short.abort()
    assert both.aborted and not long_lived.signal._listeners


def test_any_of_one_is_that_one() -> None:
    only = AbortController().signal
    assert AbortSignal.any(only, None) is only
    assert not AbortSignal.any().aborted


async def test_after_fires_with_a_timeout_reason() -> None:
    signal = AbortSignal.after(0.01)
    assert isinstance(await asyncio.wait_for(signal.wait(), 5), TimeoutError)
    assert str(signal.reason) == "timed out after 0.01 s"
    assert AbortSignal.after(0, "late").reason == "late"


async def test_after_holds_no_timer_without_listeners() -> None:
    signal = AbortSignal.after(60)
    undo = signal.on_abort(lambda: None)
    assert signal._timer is not None  # type: ignore[attr-defined]
    undo()
    assert signal._timer is None  # type: ignore[attr-defined]
    assert not signal.aborted
