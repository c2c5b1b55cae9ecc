"""The subprocess and shell seams, their local providers, and the bash tool (floor 4)."""
