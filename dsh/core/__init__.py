"""The spine: session log, prompt assembly, tool registry and pipeline, agents, inbox and the loop (floor 3)."""
