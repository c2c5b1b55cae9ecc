"""The file seam, its local provider, and the read, write and edit tools (floor 4)."""
