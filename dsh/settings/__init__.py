"""User settings and credentials (floor 4)."""
