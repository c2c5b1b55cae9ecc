"""Bridges to outside systems: MCP, skills, LSP, web (floor 4)."""
