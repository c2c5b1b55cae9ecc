"""The command line: one Typer command a file (floor 6)."""
