"""The row names of built-in plugins, and the module each one stands for. Strings only: importing this loads nothing.

A name may be written `@deepseek-ai/dsh-llm`, `dsh-llm` or `llm`. A module that does not exist yet makes its name
"known, not built yet".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

GROUP: Final = "cordis:group"
INCLUDE: Final = "cordis:include"

SCOPE: Final = "@deepseek-ai/"
PREFIX: Final = "dsh-"
CORDIS_PREFIXES: Final = ("@deepseek-ai/cordis-plugin-", "@cordisjs/plugin-")
"""Prefixes of the plugins that belong to the runtime itself."""

CORDIS_PLUGINS: Final[Mapping[str, str]] = {
    "include": INCLUDE,
    "group": GROUP,
    "timer": "dsh.loader.builtin:timer",
    "loader": "dsh.loader.builtin:loader",
    "hmr": "dsh.loader.hmr",
    "logger-console": "dsh.cordis.logger_console",
}


def _folder(package: str, **modules: str) -> dict[str, str]:
    """Row names (with `_` for `-`) to modules of one folder; a module starting with `dsh.` stands elsewhere."""
    return {name.replace("_", "-"): f"{package}.{module}" for name, module in modules.items()}


PLUGINS: Final[Mapping[str, str]] = {
    **_folder(
        "dsh.core",
        session="session_store",
        agent="agents",
        agent_loop="agent_loop",
        tools="tools",
        system_prompt="system_prompt",
        agent_tool_presentation="agent_tool_presentation",
        invariants="invariants",
    ),
    **_folder("dsh.llm", llm="service"),
    **_folder(
        "dsh.models",
        llm_retry="retry",
        token_meter="token_meter",
        agent_default_model="default_model",
        llm_deepseek="deepseek",
        llm_pi_ai="providers",
        llm_local="local",
        llm_demo="demo",
        llm_replay="replay",
    ),
    **_folder("dsh.settings", settings_file="file", credentials_local="credentials", authorization="authorization"),
    **_folder(
        "dsh.sessions",
        session_persistence_jsonl="jsonl",
        session_persistence_sqlite="sqlite",
        session_checkpoint_policy="checkpoint_policy",
        session_projection="projection",
        session_projection_cache="projection_cache",
        session_stats="stats",
        session_title="title",
        session_title_first_prompt_llm="title_first_prompt_llm",
        session_title_all_prompts_llm="title_all_prompts_llm",
        session_query_sqlite="query_sqlite",
        tool_session_query="tool_query",
        session_log_export="log_export",
        session_telemetry="telemetry",
        session_telemetry_otel="telemetry_otel",
        compaction_basic="compaction_basic",
        compaction_tool_result_pruner="compaction_tool_result_pruner",
        command_compact="command_compact",
        command_feedback="command_feedback",
        message_feedback="message_feedback",
    ),
    **_folder(
        "dsh.files",
        fs_local="local",
        fs_sandbox="sandbox",
        fs_observation_policy="observation_policy",
        tool_fs="tools",
        tool_fs_search="search_tools",
        tool_str_replace_editor="str_replace_editor",
        spill_local="spill_local",
        spill_policy="spill_policy",
    ),
    **_folder(
        "dsh.shell",
        subprocess_local="subprocess",
        bash_local="bash",
        bash_sandbox="bash_sandbox",
        shell_env="env",
        tool_bash="tool_bash",
        tool_bash_persistent="tool_bash_persistent",
        terminal="terminal",
        terminal_bash="terminal_bash",
        tool_terminal="tool_terminal",
    ),
    **_folder(
        "dsh.policy",
        user_approval="approval",
        permission_presets="permission_presets",
        sandbox_local="sandbox_local",
        sandbox_policy="sandbox_policy",
        user_questions="user_questions",
        tool_ask_user="tool_ask_user",
        commands="commands",
        plan_mode="plan_mode",
        hooks_claude_code="hooks_claude_code",
        hooks_codex="hooks_codex",
        tool_call_timeout_policy="tool_timeout",
        repeat_tool_reminder="repeat_tool_reminder",
        turn_limits="turn_limits",
        tool_todo="todo",
    ),
    **_folder(
        "dsh.context",
        agent_instructions="instructions",
        file_reference_local="file_reference_local",
        session_reference="session_reference",
        time_context="time",
        tmux_context="tmux",
    ),
    **_folder(
        "dsh.integrations",
        mcp_client="mcp_client",
        skill="skill",
        skill_filesystem="skill_filesystem",
        tool_skill="tool_skill",
        lsp="lsp",
        lsp_stdio="lsp_stdio",
        tool_lsp="tool_lsp",
        web="web",
        tool_web="tool_web",
        web_fetch_http="web_fetch_http",
        web_search_deepseek="web_search_deepseek",
        web_search_exa="web_search_exa",
        web_search_perplexity="web_search_perplexity",
        attachment_local="attachment_local",
        code_runtime_python="code_runtime_python",
        storage="storage",
        storage_json="storage_json",
        storage_sqlite="storage_sqlite",
        storage_domain="storage_domain",
        workspace="workspace",
        e2b="e2b",
        fs_e2b="fs_e2b",
        subprocess_e2b="subprocess_e2b",
    ),
    **_folder(
        "dsh.delegation",
        subagent="subagent",
        subagent_spawn_in_process="spawn_in_process",
        subagent_fork_in_process="fork_in_process",
        subagent_acp="subagent_acp",
        subagent_dsh_sdk="subagent_dsh_sdk",
        subagent_claude_code="subagent_claude_code",
        subagent_codex="subagent_codex",
        tool_subagent="tool_subagent",
        tool_subagent_control="tool_subagent_control",
        tool_subagent_report="tool_subagent_report",
        jobs_local="jobs_local",
        tool_jobs="tool_jobs",
        workflow_worker_thread="workflow_worker_thread",
        tool_workflow="tool_workflow",
        tool_ralph="tool_ralph",
        goal="goal",
        goal_round_driver="goal_round_driver",
        tool_goal="tool_goal",
        command_goal="command_goal",
        schedule="schedule",
        agent_presets="agent_presets",
        persona="persona",
        cordis_host_runner="cordis_host_runner",
        tool_cordis="tool_cordis",
        compute_local="compute_local",
        compute_ray="compute_ray",
    ),
    "tool-subagent-control/list-agents": "dsh.delegation.tool_list_agents",
    **_folder(
        "dsh.interfaces",
        sdk_jsonrpc_server="sdk_jsonrpc_server",
        acp="acp",
        host_webserver="webserver",
        headless="headless",
        console="console",
        event_stream="event_stream",
        control="control.server",
    ),
}

SKIPPED_PREFIXES: Final = ("client-", "ui-")
SKIPPED: Final = frozenset({"skill-badge"})
"""Plugins of a browser page: their rows are kept and never mounted."""

_NO_COUNTERPART: Final = "this runtime has no counterpart"
UNAVAILABLE: Final[Mapping[str, str]] = {
    "code-runtime-worker-thread": "it runs JavaScript; the Python counterpart is code-runtime-python",
    "pwsh-local": "PowerShell is not supported; use bash-local",
    "pwsh-sandbox": "PowerShell is not supported; use bash-sandbox",
    "tool-pwsh": "PowerShell is not supported; use tool-bash",
    "tool-pwsh-persistent": "PowerShell is not supported; use tool-bash-persistent",
    "api-gateway": _NO_COUNTERPART,
    "base": "bundles are not supported; list the rows in cordis.yml",
    "web-app": "bundles are not supported; list the rows in cordis.yml",
}
UNAVAILABLE_PREFIXES: Final[Mapping[str, str]] = {
    "typert-": _NO_COUNTERPART,
    "directory-picker-": _NO_COUNTERPART,
    "host-directory-picker-": _NO_COUNTERPART,
    "pwsh-": "PowerShell is not supported; the bash plugins take its place",
    "tool-pwsh": "PowerShell is not supported; use tool-bash",
    "experimental-": "it is not built yet",
}


def short_name(name: str) -> str | None:
    """The key of the tables for any spelling of a built-in's name; `None` if it has none of those forms."""
    for prefix in CORDIS_PREFIXES:
        if name.startswith(prefix):
            return name
    if name.startswith(SCOPE):
        rest = name.removeprefix(SCOPE)
        return rest.removeprefix(PREFIX) if rest.startswith(PREFIX) else None
    return name.removeprefix(PREFIX)


def spellings(short: str) -> tuple[str, ...]:
    """Every way to write the row name behind a key of the tables; the one for new files comes first."""
    own = (PREFIX + short, short, SCOPE + PREFIX + short)
    if short not in CORDIS_PLUGINS:
        return own
    carrier = (CORDIS_PLUGINS[short],) if CORDIS_PLUGINS[short] in (GROUP, INCLUDE) else ()
    return (*carrier, *(prefix + short for prefix in CORDIS_PREFIXES), *own)


def module_of(name: str) -> str | None:
    """The module (or built-in carrier) behind a row name in any spelling; `None` if the tables do not know it."""
    for prefix in CORDIS_PREFIXES:
        if name.startswith(prefix):
            return CORDIS_PLUGINS.get(name.removeprefix(prefix))
    short = short_name(name)
    if short is None:
        return None
    return PLUGINS.get(short) or CORDIS_PLUGINS.get(short)


def is_skipped(name: str) -> bool:
    """Whether the row belongs to a browser page. Names without the `dsh-` prefix never do."""
    if not name.startswith((SCOPE + PREFIX, PREFIX)):
        return False
    short = short_name(name)
    return short is not None and (short in SKIPPED or short.startswith(SKIPPED_PREFIXES))


def unavailable_reason(name: str) -> str | None:
    """Why a known name cannot be used here; `None` if nothing is known about it."""
    short = short_name(name)
    if short is None:
        return None
    if short in UNAVAILABLE:
        return UNAVAILABLE[short]
    return next((reason for prefix, reason in UNAVAILABLE_PREFIXES.items() if short.startswith(prefix)), None)


def is_group(name: str) -> bool:
    """Whether a row of this name is a group."""
    return name == GROUP or module_of(name) == GROUP


def is_include(name: str) -> bool:
    """Whether a row of this name includes another file."""
    return name == INCLUDE or module_of(name) == INCLUDE
