"""Sessions on disk: JSONL persistence, leases, checkpoints (floor 4)."""
