"""Contract texts of the agent loop: what a model or a client reads word for word."""

RUNTIME_CONTEXT_INTRO = "Current runtime context. This snapshot supersedes earlier runtime-context snapshots."
RUNTIME_CONTEXT_NONE = "Current runtime context: none. Earlier runtime-context snapshots no longer apply."
RUNTIME_CONTEXT_PLUGIN = "@deepseek-ai/dsh-system-prompt"

ABORTED_BEFORE_DISPATCH = "Error: tool call aborted before dispatch"

LOOP_INACTIVE = "agent loop is not active"
NO_FACTORY = "no agent factory registered (load an agent-loop plugin)"
NO_PERSISTENCE = "cannot resume: session persistence is not configured (load a dsh-session-persistence backend)"


def no_route(agent_id: str) -> str:
    """An agent without provider or model asked for a request."""
    return (
        f'agent "{agent_id}" has no provider/model: set AgentOptions.provider and AgentOptions.model '
        "or supply both via the agent/request waterfall"
    )
