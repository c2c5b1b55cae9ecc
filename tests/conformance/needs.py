"""Which plugins a recorded case is about, and which of them are not built yet.

A case waits for the rows behind its features, the tools its model calls and the plugin events in its logs. Nothing
here says what is built: that is asked of the table of row names, so a case stops waiting by itself.
"""

from __future__ import annotations

from pathlib import Path

from dsh.loader import names
from dsh.loader.resolve import ResolveError, resolve
from tests.conformance.corpus import Case

CONFINEMENT = ("sandbox-local", "sandbox-policy", "bash-sandbox", "fs-sandbox", "user-approval")
"""Rows without which nothing can be confined, and nobody asked."""

_HOOKS = ("hooks-claude-code",)
_SPAWN = ("subagent", "subagent-spawn-in-process", "tool-subagent")
_CONTINUABLE = (*_SPAWN, "tool-subagent-control")
_TERMINAL = ("terminal", "tool-terminal")

_OF_THE_SPINE = """
    core-loop streaming multi-turn cancel mid-stream model-error turn-error tool-error parallel-tools packed-rows
    resume crash-repair startup-failure headless-cli one-shot normaliser header-scrub header inbox turns long-history
    log steering
""".split()
_OF_ANOTHER = """
    EMPTY_RESPONSE RATE_LIMIT PreToolUse PostToolUse Stop UserPromptSubmit deny context config-atomicity
    context-overflow prefix-restore reconciliation over-cap-sampling two-children seed-prefix native-tools inspect
    sidecar spill-config
""".split()
"""Words that only describe what another feature of the same case does."""

FEATURES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_OF_THE_SPINE, ()),
    **dict.fromkeys(_OF_ANOTHER, ()),
    "acp-wire": ("acp",),
    "acp-error": ("acp",),
    "acp-permission": ("acp", *CONFINEMENT),
    "acp-image-prompt": ("acp", "attachment-local"),
    "agent-instructions": ("agent-instructions",),
    "approval": CONFINEMENT,
    "ask-user": ("user-questions", "tool-ask-user"),
    "attachments": ("attachment-local",),
    "bash": ("tool-bash",),
    "bash-background": ("jobs-local", "tool-jobs", "tool-bash"),
    "chat-completions": ("llm-deepseek",),
    "checkpoint": ("session-checkpoint-policy",),
    "code-mode": ("code-runtime-worker-thread",),
    "command-log": ("commands",),
    "compaction": ("compaction-basic", "token-meter"),
    "cordis-tools": ("tool-cordis", "cordis-host-runner"),
    "credentials": ("credentials-local", "llm-deepseek"),
    "diff-meta": ("tool-fs",),
    "feedback": ("command-feedback",),
    "fs": ("tool-fs",),
    "fs-edit": ("tool-fs",),
    "fs-read": ("tool-fs",),
    "fs-write": ("tool-fs",),
    "glob": ("tool-fs-search",),
    "goal": ("goal", "tool-goal"),
    "goal-rounds": ("goal-round-driver",),
    "hooks-claude-code": _HOOKS,
    "hooks-codex": ("hooks-codex",),
    "images": ("attachment-local",),
    "jobs": ("jobs-local", "tool-jobs"),
    "llm-retry": ("llm-retry",),
    "lsp": ("lsp", "lsp-stdio", "tool-lsp"),
    "message-feedback": ("message-feedback",),
    "observation-policy": ("fs-observation-policy",),
    "persistent-bash": ("terminal-bash", "tool-bash-persistent"),
    "persistent-pwsh": ("tool-pwsh-persistent",),
    "plan-mode": ("plan-mode",),
    "product-subagent": ("subagent-codex",),
    "publish-failure": _SPAWN,
    "python-sdk": ("sdk-jsonrpc-server",),
    "repeat-tool-reminder": ("repeat-tool-reminder",),
    "report-tool": ("tool-subagent-report",),
    "runner-signature": CONFINEMENT,
    "sandbox": CONFINEMENT,
    "sandbox-inheritance": CONFINEMENT,
    "sdk-wire": ("sdk-jsonrpc-server",),
    "session-title-llm": ("session-title-first-prompt-llm",),
    "settlement": _CONTINUABLE,
    "skill-tool": ("tool-skill",),
    "skills": ("skill", "skill-filesystem"),
    "str_replace_editor": ("tool-str-replace-editor",),
    "subagent-continuable": _CONTINUABLE,
    "subagent-depth-limit": _SPAWN,
    "subagent-fork": ("subagent", "subagent-fork-in-process", "tool-subagent"),
    "subagent-spawn": _SPAWN,
    "terminal-tools": _TERMINAL,
    "title-fallback": ("session-title",),
    "todo": ("tool-todo",),
    "web-search": ("tool-web",),
    "workflow": ("workflow-worker-thread", "tool-workflow"),
}

TOOLS: dict[str, tuple[str, ...]] = {
    "ask_user_question": ("tool-ask-user",),
    "bash": ("tool-bash", "tool-bash-persistent"),
    "create_goal": ("tool-goal",),
    "cordis_define": ("tool-cordis",),
    "cordis_inspect_list": ("tool-cordis",),
    "cordis_inspect_query": ("tool-cordis",),
    "cordis_inspect_self": ("tool-cordis",),
    "cordis_run": ("tool-cordis",),
    "cordis_stop": ("tool-cordis",),
    "cordis_undefine": ("tool-cordis",),
    "edit": ("tool-fs",),
    "exit_plan_mode": ("plan-mode",),
    "get_goal": ("tool-goal",),
    "glob": ("tool-fs-search",),
    "grep": ("tool-fs-search",),
    "interrupt_agent": ("tool-subagent-control",),
    "job_kill": ("tool-jobs",),
    "job_list": ("tool-jobs",),
    "job_output": ("tool-jobs",),
    "list_agents": ("tool-subagent-control/list-agents",),
    "lsp": ("tool-lsp",),
    "pwsh": ("tool-pwsh-persistent",),
    "ralph": ("tool-ralph",),
    "read": ("tool-fs",),
    "read_image": ("attachment-local",),
    "report": ("tool-subagent-report",),
    "run_code": ("code-runtime-worker-thread",),
    "send_message": ("tool-subagent-control",),
    "skill": ("tool-skill",),
    "str_replace_editor": ("tool-str-replace-editor",),
    "subagent": ("tool-subagent",),
    "subagent_codex_primary": ("subagent-codex",),
    "subagent_codex_secondary": ("subagent-codex",),
    "subagent_fork": ("tool-subagent",),
    **{f"terminal_{what}": ("tool-terminal",) for what in ("open", "send", "read", "signal", "close", "list")},
    "todo_write": ("tool-todo",),
    "update_goal": ("tool-goal",),
    "workflow": ("tool-workflow",),
    "write": ("tool-fs",),
    "write_remote": (),  # stands in a stored log only; nothing may call it again
}
"""The row that brings each tool of the recordings; the first that a composition has, if there are several."""

EVENTS: dict[str, tuple[str, ...]] = {
    "approval": ("user-approval",),
    "compaction": ("compaction-basic",),
    "goal": ("goal",),
    "hook": (),  # of either hook plugin: the feature says which
    "llm": ("llm-retry",),
    "permission": ("permission-presets",),
    "plan": ("plan-mode",),
    "sandbox": ("sandbox-policy",),
    "subagent": ("subagent",),
    "todo": ("tool-todo",),
    "session/title": ("session-title",),
    "session/title-llm-request": ("session-title-first-prompt-llm",),
    "tool-workflow": ("tool-workflow",),
}
"""Rows that write event types: by the type, or by what stands before its slash."""

DRIVERS: dict[str, tuple[str, ...]] = {
    "acp": ("acp",),
    "jsonrpc-sdk": ("sdk-jsonrpc-server",),
    "jsonrpc-sdk-http": ("sdk-jsonrpc-server",),
}


def is_built(row: str) -> bool:
    """Whether the plugin behind a row name exists. Raises `ResolveError` for a name that nobody knows."""
    try:
        resolve(row, Path.cwd())
    except ResolveError:
        if names.module_of(row) is None and names.unavailable_reason(row) is None:
            raise
        return False
    return True


def waits_for(case: Case) -> list[str]:
    """The plugins that are missing for this case to mean anything; empty when it can run."""
    rows = set(DRIVERS.get(case.driver, ()))
    for feature in case.spec["features"]:
        rows |= set(FEATURES[feature])
    if case.spec["target"] == "cli":  # the text of a command is the same without the plugins that a log tells of
        return sorted(row for row in rows if not is_built(row))
    for tool in case.spec.get("tools", ()):
        rows |= set(_bringing(case, tool))
    for facts in case.facts.values():
        for kind in facts["types"]:
            rows |= set(EVENTS.get(kind, EVENTS.get(kind.partition("/")[0], ())))
    return sorted(row for row in rows if not is_built(row))


def _bringing(case: Case, tool: str) -> tuple[str, ...]:
    rows = TOOLS[tool]
    return rows if len(rows) < 2 else tuple(row for row in rows if row in case.rows)[:1]
