"""Model adapters and their helpers: deepseek, local, demo, replay, retry, default model (floor 4)."""
