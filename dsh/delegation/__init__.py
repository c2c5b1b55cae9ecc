"""Work handed on: subagents, jobs, goals, workflows (floor 4)."""
