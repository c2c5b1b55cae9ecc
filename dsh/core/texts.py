"""Contract texts of this folder: what a model, a client or an operator reads, word for word."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

# -- agents and the loop -----------------------------------------------------------------------------------------------

RUNTIME_CONTEXT_INTRO: Final = "Current runtime context. This snapshot supersedes earlier runtime-context snapshots."
RUNTIME_CONTEXT_NONE: Final = "Current runtime context: none. Earlier runtime-context snapshots no longer apply."
RUNTIME_CONTEXT_PLUGIN: Final = "@deepseek-ai/dsh-system-prompt"

LOOP_INACTIVE: Final = "agent loop is not active"
NO_FACTORY: Final = "no agent factory registered (load an agent-loop plugin)"
NO_PERSISTENCE: Final = "cannot resume: session persistence is not configured (load a dsh-session-persistence backend)"


def no_route(agent_id: str) -> str:
    """An agent without provider or model asked for a request."""
    return (
        f'agent "{agent_id}" has no provider/model: set AgentOptions.provider and AgentOptions.model '
        "or supply both via the agent/request waterfall"
    )


# -- calls ------------------------------------------------------------------------------------------------------------

RESERVED_TOOL: Final = "run_code"
REST: Final = "<unlisted-tools>"

ABORTED: Final = "tool call aborted"
ABORTED_BEFORE_DISPATCH: Final = "tool call aborted before dispatch"
ARGUMENTS_NOT_JSON: Final = "tool execution arguments must be losslessly JSON-serializable"
RESULT_NOT_JSON: Final = "tool result must be losslessly JSON-serializable"
BLOCKED: Final = "tool result blocked by post-execute policy"
VALUE_AND_CONTENT: Final = "tools/post-execute accept decision cannot replace both value and content"
VALUE_OF_FAILURE: Final = "tools/post-execute cannot replace the value of a failed result"
VALUE_NOT_JSON: Final = "value is not lossless JSON"
NO_OUTPUT: Final = "(no output)"
NOT_STARTED: Final = (
    "The tool call was interrupted before the Harness recorded it as started. Retry it if it is still needed."
)
OUTCOME_UNKNOWN: Final = (
    "The tool call was interrupted after it was recorded, but no result was durably recorded. Its outcome is unknown. "
    "Decide whether to retry from the tool semantics: retry only if the operation is read-only or idempotent; if it "
    "may have side effects, first verify external state or ask the user. Do not retry blindly."
)


def unknown_tool(name: str, how: str | None = None) -> str:
    return f'unknown tool "{name}"' + (f": {how}" if how else "")


def invalid_arguments(violations: Iterable[str]) -> str:
    return "invalid arguments: " + "; ".join(violations)


def invalid_output(name: str, violations: Iterable[str]) -> str:
    return f'tool "{name}" returned invalid output: ' + "; ".join(violations)


def denied(name: str) -> str:
    return f'tool "{name}" was denied'


def approval_unsupported(name: str) -> str:
    return f'tool "{name}" requires approval (not yet supported)'


def approval_without_agent(name: str) -> str:
    return f'tool "{name}" requires approval, but the call has no agent to route it through'


def approval_refused(outcome: str, name: str) -> str:
    if outcome == "rejected":
        return f'the user rejected tool "{name}"'
    if outcome == "cancelled":
        return f'approval for tool "{name}" was cancelled'
    return f'tool "{name}" requires approval, but no approval channel is available'


def observer_failed(name: str, call_id: str, message: str) -> str:
    return f'tool "{name}" ({call_id}): tools/result observer failed: {message}'


# -- registration -----------------------------------------------------------------------------------------------------

RESERVED: Final = (
    f'tool name "{RESERVED_TOOL}" is reserved for the Code Mode presentation transport '
    "and cannot be registered or shadowed"
)
RESTRICT_UNSCOPED: Final = (
    "tools.restrict() requires a scoped context (agent.ctx): a context-global restriction would mask every agent "
    "— deny the tool for the intended agent instead"
)
RESTRICT_EMPTY: Final = (
    "tools.restrict({}) is a no-op: pass `allow` and/or `deny` "
    "(an empty filter is almost always a materialized-empty-config bug)"
)
RESTRICT_RESERVED: Final = (
    f'tools.restrict() cannot name reserved Code Mode presentation transport "{RESERVED_TOOL}"; '
    "restrict end-capability tools instead"
)


def no_output(name: str) -> str:
    return f'tool "{name}" must declare output {{ schema, render, presentationMeta? }}'


def bad_timeout(name: str) -> str:
    return f'tool "{name}" timeoutMs must be a positive finite number'


def bad_parameters(name: str) -> str:
    return f'tool "{name}" parameters must be lossless JSON before schema projection'


def duplicate(what: str, name: str, variant: str | None) -> str:
    """``variant``: what an agent may register besides one for everybody; None for two in one scope."""
    if variant is None:
        return f'{what} "{name}" is already registered in this scope'
    return (
        f'{what} "{name}" is already registered (for a per-agent {variant}, register through that agent\'s '
        "`agent.ctx` instead)"
    )


def restrict_unknown(names: Iterable[str], known: Iterable[str]) -> str:
    return f"tools.restrict() names unknown global {_counted(names)}; known global tools: {listed(known)}"


# -- system prompt ----------------------------------------------------------------------------------------------------

IDENTITY: Final = "You are an AI agent powered by DeepSeek Harness."
TOOL_ORDER_REST: Final = f'toolOrder must contain the "{REST}" rest entry (where unlisted tools are inserted)'
TOOL_ORDER_RESERVED: Final = (
    f'tool provider returned reserved tool name "{REST}" (reserved for toolOrder\'s rest entry)'
)


def bad_order(kind: str, name: str) -> str:
    return f'prompt {kind} "{name}" order must be a finite number'


def bad_variable_name(name: str) -> str:
    return f'invalid prompt variable name "{name}" (must match /^[a-z][a-z0-9_]*$/)'


def several_complete(names: Iterable[str]) -> str:
    return f"multiple complete prompt sections are active: {quoted(names)}"


def tool_order_twice(name: str) -> str:
    return f'toolOrder lists "{name}" more than once'


def tool_order_unknown(names: Iterable[str], known: Iterable[str]) -> str:
    return f"toolOrder lists unregistered {_counted(names)}; known tools: {listed(known)}"


def unknown_variable(name: str, kind: str, section: str, known: Iterable[str]) -> str:
    return (
        f'unknown prompt variable "{{{{{name}}}}}" in {kind} "{section}"; registered variables: {listed(sorted(known))}'
    )


def empty_variable(name: str, kind: str, section: str) -> str:
    return f'prompt variable "{{{{{name}}}}}" has no value for this assembly ({kind} "{section}")'


def malformed_variable(group: str, kind: str, section: str) -> str:
    return (
        f'malformed prompt variable reference "{group}" in {kind} "{section}" '
        "(variable names match /^[a-z][a-z0-9_]*$/)"
    )


def broken_variable(text: str, kind: str, section: str) -> str:
    return (
        f'malformed prompt variable reference at "{text[:16]}…" in {kind} "{section}" '
        "(references are complete simple {{name}} groups)"
    )


# -- words ------------------------------------------------------------------------------------------------------------


def quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "(none)"


def _counted(names: Iterable[str]) -> str:
    several = tuple(names)
    return ("tool " if len(several) == 1 else "tools ") + quoted(several)
