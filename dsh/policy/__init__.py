"""Rules and small guards around the agent: todo list, approvals, limits (floor 4)."""
