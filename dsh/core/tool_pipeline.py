"""One tool call, staged: materialise, policy, dispatch, post, finish.

Whatever happens on the way, a call settles with one `ToolResult` and one `tools/result`. Plugin code that fails turns
into that result; only a cancelled host passes through, and the call is settled before it does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from dsh.cordis import AbortSignal
from dsh.cordis.errors import describe_error
from dsh.cordis.jsonio import FrozenDict, FrozenList, NotJsonError, snapshot_json
from dsh.cordis.records import identity_record
from dsh.llm.content import text_block
from dsh.llm.message import freeze_message

from . import texts
from .seams import Approval
from .tasks import cancel_count, stops_host
from .tool_body import run_body
from .tool_errors import ToolNotFoundError, ToolOutputError
from .tool_events import (
    ACCEPT,
    ALLOW,
    UNSET,
    Accept,
    Allow,
    Ask,
    Blocked,
    Deny,
    ToolsExecute,
    ToolsPostExecute,
    ToolsPreExecute,
    ToolsResult,
)
from .tool_result import ToolErrorInfo, ToolResult, block_message
from .tool_run import ToolInput, ToolRun
from .tool_schema import value_violations

if TYPE_CHECKING:
    from dsh.llm.types import Block, Message

    from .tool_definition import ToolDefinition
    from .tools import Tools

Guard = Callable[[ToolRun], Any]


@identity_record
class RegisteredTool:
    """A definition in the registry, with the schemas that were checked and frozen when it entered."""

    definition: ToolDefinition
    schema: FrozenDict
    output_schema: FrozenDict


_ABORTED = ToolResult.failure(texts.ABORTED, info={"name": "AbortError", "code": "ABORTED"})
ABORTED_BEFORE_DISPATCH = ToolResult.failure(
    texts.ABORTED_BEFORE_DISPATCH, info={"name": "AbortError", "code": "ABORTED_BEFORE_DISPATCH"}
)


class ToolExecution:
    """One call. `await prepare()`, then `dispatch()` if it answered True, then `commit()`.

    Each step may be followed by a later one at any time; a step never runs twice. `run` is the `exec` object that
    events and bodies get. Cancelling the task that awaits a step settles the call as aborted and re-raises; `commit()`
    then still gives the result.
    """

    __slots__ = ("_bodies", "_caller", "_committed", "_final", "_finalize", "_host", "_result", "_started", "run")

    def __init__(self, host: Tools, call: ToolInput) -> None:
        self._host = host
        self._caller = call.signal if call.signal is not None else AbortSignal()
        self._result: ToolResult | None = None
        self._final = False  # settled without the post stage
        self._started = False  # a body ran
        self._bodies: list[ToolResult] = []  # results made by this call's own body
        self._committed: ToolResult | None = None
        tool = host.resolve(call.name, call.agent)
        self._finalize = tool.definition.finalize_content if tool is not None else None
        try:
            arguments = snapshot_json(call.arguments)
        except Exception:
            arguments = None
            self._settle(ToolResult.failure(texts.ARGUMENTS_NOT_JSON), final=True)
        self.run = ToolRun(call, arguments, self._caller)
        if self._result is None and self._caller.aborted:
            self._settle(_aborted(False), final=True)

    # -- stages -------------------------------------------------------------------------------------------------------

    async def prepare(self) -> bool:
        """Ask policy and guards. True: a body must be dispatched; False: the call is settled, `commit()` it."""
        if self._result is not None:
            return False
        before = cancel_count()
        try:
            reason = await self._policy()
        except BaseException as error:
            self._settle_fault(error, before)
            return False
        if reason is not None:
            self._settle(ToolResult.failure(reason))
        elif self._caller.aborted:
            self._settle(_aborted(False))
        return self._result is None

    async def dispatch(self) -> None:
        """Run wrappers and body. Never raises for a failing tool or wrapper; a started body is always awaited."""
        if self._result is not None:
            return
        if self._caller.aborted:
            self._settle(_aborted(False))
            return
        run = self.run
        before = cancel_count()
        run._signal_open = True
        try:
            answer = await self._host.ctx.waterfall(ToolsExecute(exec=run), self._body)
            result = answer if any(answer is own for own in self._bodies) else self._adopt(answer)
        except BaseException as error:
            self._settle_fault(error, before)
            return
        finally:
            run._signal_open = False
            run._signal = self._caller
        if not result.is_error and self._caller.aborted:
            result = _aborted(self._started, result.additional_contexts)
        self._settle(_with_contexts(result, self._contexts(result)))

    async def commit(self) -> ToolResult:
        """Judge and finish the settled call, and announce its result. Repeated calls give the same result."""
        if self._committed is not None:
            return self._committed
        if self._result is None:  # prepared, but given up before its body started
            self._settle(_aborted(False), final=True)
        if not self._final:
            self._final = True
            await self._post()
        return self._finish()

    def abandon(self) -> ToolResult:
        """Finish without any further stage, for a caller that is being cancelled."""
        if self._committed is not None:
            return self._committed
        if self._result is None:
            self._settle(_aborted(self._started), final=True)
        return self._finish()

    # -- policy -------------------------------------------------------------------------------------------------------

    async def _policy(self) -> str | None:
        """Why the call must not run, or None."""
        run = self.run
        decision = await self._host.ctx.waterfall(ToolsPreExecute(exec=run), lambda: ALLOW)
        if isinstance(decision, Deny):
            return decision.reason or texts.denied(run.name)
        if isinstance(decision, Ask):
            reason = await self._ask(decision)
            if reason is not None:
                return reason
        elif not isinstance(decision, Allow):
            raise TypeError(f"tools/pre-execute must answer Allow, Deny or Ask, not {type(decision).__name__}")
        if self._caller.aborted:
            return None
        for guard in self._host.guards(run.agent):
            verdict = guard(run)
            if hasattr(verdict, "__await__"):
                verdict = await verdict
            if verdict is not None:
                return verdict if isinstance(verdict, str) and verdict else texts.denied(run.name)
        return None

    async def _ask(self, ask: Ask) -> str | None:
        run = self.run
        approval = self._host.ctx.get(Approval)
        if approval is None:
            return ask.reason or texts.approval_unsupported(run.name)
        if run.agent is None:
            return texts.approval_without_agent(run.name)
        outcome = await approval.request(
            agent=run.agent,
            tool_name=run.name,
            call_id=run.call_id,
            arguments=run.arguments,
            reason=ask.reason,
            signal=self._caller,
        )
        if outcome == "allowed-once":
            return None
        if outcome == "cancelled" and self._caller.aborted:
            return None  # an aborted caller is not told about the question that went with it
        return texts.approval_refused(outcome, run.name)

    # -- dispatch -----------------------------------------------------------------------------------------------------

    async def _body(self) -> ToolResult:
        """What `next()` of the innermost wrapper runs: the body, with its failure already put into words."""
        run = self.run
        outer = run._signal
        signal = outer if outer is self._caller else AbortSignal.any(self._caller, outer)
        tool = self._host.resolve(run.name, run.agent)
        if tool is None:
            result = ToolResult.from_error(ToolNotFoundError(run.name))
        elif signal.aborted:
            result = _aborted(False)
        else:
            run._signal = signal
            self._started = True
            try:
                value, error = await run_body(tool.definition, run)
            finally:
                run._signal = outer
            if error is None:
                result = self._success(tool, value)
            else:
                self._host.ctx.logger.debug("tool %s (%s) failed", run.name, run.call_id, exc_info=error)
                result = ToolResult.from_error(error)
            if not result.is_error and self._caller.aborted:
                result = _aborted(True)
        result = _with_contexts(result, tuple(run._contexts))
        self._bodies.append(result)
        return result

    def _adopt(self, answer: object) -> ToolResult:
        """A wrapper's own answer, made valid for this call."""
        if not isinstance(answer, ToolResult):
            raise TypeError(f"tools/execute must answer a ToolResult, not {type(answer).__name__}")
        if answer.is_error:
            if answer.error is not None:
                return answer
            message = block_message(answer.content) or texts.denied(self.run.name)
            return replace(answer, error=ToolErrorInfo(message))
        result = self._from_value(answer.value)
        return replace(
            result,
            additional_contexts=answer.additional_contexts,
            concludes_turn=answer.concludes_turn and not result.is_error,
        )

    def _from_value(self, value: object) -> ToolResult:
        """A success of this call made from `value` alone, by the definition registered now."""
        tool = self._host.resolve(self.run.name, self.run.agent)
        if tool is None:
            return ToolResult.from_error(ToolNotFoundError(self.run.name))
        return self._success(tool, value)

    def _success(self, tool: RegisteredTool, value: object) -> ToolResult:
        run = self.run
        output = tool.definition.output
        try:
            try:
                frozen = snapshot_json(value)
            except NotJsonError:
                raise ToolOutputError(run.name, [texts.VALUE_NOT_JSON]) from None
            except Exception as error:
                raise ToolOutputError(run.name, [f"value snapshot failed: {describe_error(error)}"]) from error
            if violations := value_violations(tool.output_schema, frozen):
                raise ToolOutputError(run.name, violations)
            content = _projected(run.name, "output.render", lambda: output.render(run.arguments, frozen))
            if not _are_blocks(content):
                raise ToolOutputError(run.name, ["output.render must return a list of content blocks"])
            meta = None
            project = output.presentation_meta
            if project is not None and run.parent is None:
                meta = _projected(run.name, "output.presentationMeta", lambda: project(run.arguments, frozen))
        except ToolOutputError as error:
            return ToolResult.from_error(error)
        return ToolResult(False, cast("Sequence[Block]", content), frozen, meta)

    # -- post and finish ----------------------------------------------------------------------------------------------

    async def _post(self) -> None:
        result = self._settled()
        before = cancel_count()
        try:
            decision = await self._host.ctx.waterfall(ToolsPostExecute(exec=self.run, result=result), lambda: ACCEPT)
            judged = result if decision is ACCEPT else self._judge(decision, result)
        except BaseException as error:
            self._settle_fault(error, before)
            return
        if not judged.is_error and self._caller.aborted:
            judged = _aborted(self._started, judged.additional_contexts)
        self._settle(judged, final=True)

    def _judge(self, decision: object, result: ToolResult) -> ToolResult:
        if isinstance(decision, Blocked):
            feedback = decision.feedback
            blocks = [text_block(feedback)] if isinstance(feedback, str) else feedback
            self.run._contexts.clear()
            return ToolResult.failure(
                block_message(blocks) or texts.BLOCKED,
                content=blocks or [text_block(texts.BLOCKED)],
                additional_contexts=tuple(decision.additional_contexts),
            )
        if not isinstance(decision, Accept):
            raise TypeError(f"tools/post-execute must answer Accept or Blocked, not {type(decision).__name__}")
        contexts = (*result.additional_contexts, *decision.additional_contexts)
        self._result = _with_contexts(result, contexts)  # kept even if the replacement below is refused
        if decision.value is not UNSET:
            if decision.content is not None:
                raise ValueError(texts.VALUE_AND_CONTENT)
            if result.is_error:
                raise ValueError(texts.VALUE_OF_FAILURE)
            fresh = self._from_value(decision.value)
            return replace(fresh, additional_contexts=contexts, concludes_turn=result.concludes_turn)
        if decision.content is not None:
            return replace(self._result, content=decision.content)
        return self._result

    def _finish(self) -> ToolResult:
        run = self.run
        result = self._seal(self._settled())
        if self._finalize is not None:
            try:
                content = self._finalize(run, result)
                if content is not None:
                    result = _sealed(replace(result, content=content))
            except BaseException as error:  # there is no await in it: whatever comes is its own failure
                result = _with_contexts(ToolResult.from_error(error), result.additional_contexts)
        concludes = (result.concludes_turn or run._concludes) and not result.is_error
        if concludes != result.concludes_turn:
            result = replace(result, concludes_turn=concludes)
        run._closed = True
        self._committed = result
        ctx = self._host.ctx
        try:
            ctx.emit(ToolsResult(exec=run, result=result))
        except BaseException as error:  # an observer's SystemExit, say: the call has its result all the same
            ctx.logger.error("%s", texts.observer_failed(run.name, run.call_id, describe_error(error)))
        return result

    def _seal(self, result: ToolResult) -> ToolResult:
        result = _with_contexts(result, self._contexts(result))
        try:
            return _sealed(result)
        except Exception:
            kept = tuple(message for message in result.additional_contexts if _is_frozen(message))
            return _with_contexts(ToolResult.failure(texts.RESULT_NOT_JSON), kept)

    def _settle(self, result: ToolResult, *, final: bool = False) -> None:
        self._result = result
        self._final = self._final or final

    def _settled(self) -> ToolResult:
        assert self._result is not None
        return self._result

    def _settle_fault(self, error: BaseException, cancels_before: int) -> None:
        """Settle for good with what went wrong around the body; re-raise when it is the host that is being stopped."""
        contexts = self._result.additional_contexts if self._result is not None else ()
        if stops_host(error, cancels_before):
            self._settle(_aborted(self._started, contexts), final=True)
            raise error
        run = self.run
        self._host.ctx.logger.warning("a listener around tool %s (%s) failed", run.name, run.call_id, exc_info=error)
        self._settle(_with_contexts(ToolResult.from_error(error), contexts), final=True)

    def _contexts(self, result: ToolResult) -> tuple[Message, ...]:
        """Contexts deferred through `exec` first, then those a wrapper or listener put on the result itself."""
        deferred = self.run._contexts
        given = result.additional_contexts
        if not deferred:
            return given
        return (*deferred, *(message for message in given if not any(message is known for known in deferred)))


def _aborted(started: bool, contexts: tuple[Message, ...] = ()) -> ToolResult:
    return _with_contexts(_ABORTED if started else ABORTED_BEFORE_DISPATCH, contexts)


def _with_contexts(result: ToolResult, contexts: tuple[Message, ...]) -> ToolResult:
    return result if result.additional_contexts == contexts else replace(result, additional_contexts=contexts)


def _projected(name: str, what: str, project: Callable[[], Any]) -> Any:
    try:
        answer = project()
    except Exception as error:
        raise ToolOutputError(name, [f"{what} failed: {describe_error(error)}"]) from error
    try:
        return snapshot_json(answer)
    except Exception as error:
        raise ToolOutputError(name, [f"{what} returned non-lossless JSON"]) from error


def _sealed(result: ToolResult) -> ToolResult:
    """The result with everything in it frozen. Raises when a part of it is not JSON."""
    content = snapshot_json(result.content)
    if not _are_blocks(content):
        raise TypeError("content must be a list of blocks")
    meta = snapshot_json(result.meta)
    contexts = tuple(freeze_message(message) for message in result.additional_contexts)
    if (
        content is result.content
        and meta is result.meta
        and all(frozen is given for frozen, given in zip(contexts, result.additional_contexts, strict=True))
    ):
        return result
    return replace(result, content=cast("Sequence[Block]", content), meta=meta, additional_contexts=contexts)


def _are_blocks(content: object) -> bool:
    return isinstance(content, FrozenList) and all(
        isinstance(block, dict) and isinstance(block.get("type"), str) for block in content
    )


def _is_frozen(message: object) -> bool:
    return isinstance(message, FrozenDict)
