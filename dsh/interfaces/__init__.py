"""Front ends as plugins: console, one-shot runner, event stream (floor 5)."""
