"""The row names of built-in plugins, and the module each one stands for. Strings only: importing this loads nothing.

A name may be written `@deepseek-ai/dsh-llm`, `dsh-llm` or `llm`. A module that does not exist yet makes its name
"known, not built yet".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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


_TABLE: Final = """
dsh.core: session=session_store agent=agents agent-loop tools system-prompt agent-tool-presentation invariants
dsh.llm: llm=service
dsh.models: llm-retry=retry token-meter agent-default-model=default_model llm-deepseek=deepseek llm-pi-ai=providers
  llm-local=local llm-demo=demo llm-replay=replay
dsh.settings: settings-file=file credentials-local=credentials authorization
dsh.sessions: session-persistence-jsonl=jsonl session-persistence-sqlite=sqlite
  session-checkpoint-policy=checkpoint_policy session-projection=projection session-projection-cache=projection_cache
  session-stats=stats session-title=title session-title-first-prompt-llm=title_first_prompt_llm
  session-title-all-prompts-llm=title_all_prompts_llm session-query-sqlite=query_sqlite tool-session-query=tool_query
  session-log-export=log_export session-telemetry=telemetry session-telemetry-otel=telemetry_otel compaction-basic
  compaction-tool-result-pruner command-compact command-feedback message-feedback
dsh.files: fs-local=local fs-sandbox=sandbox fs-observation-policy=observation_policy tool-fs=tools
  tool-fs-search=search_tools tool-str-replace-editor=str_replace_editor spill-local spill-policy
dsh.shell: subprocess-local=subprocess bash-local=bash bash-sandbox shell-env=env tool-bash tool-bash-persistent
  terminal terminal-bash tool-terminal
dsh.policy: user-approval=approval permission-presets sandbox-local sandbox-policy user-questions tool-ask-user
  commands plan-mode hooks-claude-code hooks-codex tool-call-timeout-policy=tool_timeout repeat-tool-reminder
  turn-limits tool-todo=todo
dsh.context: agent-instructions=instructions file-reference-local session-reference time-context=time tmux-context=tmux
dsh.integrations: mcp-client skill skill-filesystem tool-skill lsp lsp-stdio tool-lsp web tool-web web-fetch-http
  web-search-deepseek web-search-exa web-search-perplexity attachment-local code-runtime-python storage storage-json
  storage-sqlite storage-domain workspace e2b fs-e2b subprocess-e2b
dsh.delegation: subagent subagent-spawn-in-process=spawn_in_process subagent-fork-in-process=fork_in_process
  subagent-acp subagent-dsh-sdk subagent-claude-code subagent-codex tool-subagent tool-subagent-control
  tool-subagent-report jobs-local tool-jobs workflow-worker-thread tool-workflow tool-ralph goal goal-round-driver
  tool-goal command-goal schedule agent-presets persona cordis-host-runner tool-cordis compute-local compute-ray
  tool-subagent-control/list-agents=tool_list_agents
dsh.interfaces: sdk-jsonrpc-server acp host-webserver=webserver headless console event-stream control=control.server
"""
"""Folders with the rows whose modules lie in them; `row=module` where the module is not called as the row is."""


def _rows(table: str) -> Iterator[tuple[str, str]]:
    for word in table.split():
        name, equals, module = word.partition("=")
        if word.endswith(":"):
            folder = word[:-1]
        else:
            yield name, f"{folder}.{module if equals else name.replace('-', '_')}"


PLUGINS: Final[Mapping[str, str]] = dict(_rows(_TABLE))

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
    return None if short is None else PLUGINS.get(short) or CORDIS_PLUGINS.get(short)


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
