"""Rows that the compositions of many tests share."""

from __future__ import annotations

SPINE = """\
- id: agent-loop
  name: dsh-agent-loop
  config:
    maxParallelToolCalls: 10   # live
    agents:
      - id: main
- {id: llm, name: dsh-llm}
- {id: session, name: dsh-session}
- {id: system-prompt, name: dsh-system-prompt}
- {id: tools, name: dsh-tools}
- {id: agent, name: dsh-agent}
"""
"""The agent loop with an agent `main`, and what it stands on."""

SHELL = """\
- {id: subprocess, name: dsh-subprocess-local}
- {id: bash, name: dsh-bash-local}
- {id: shell-env, name: dsh-shell-env}
- {id: tool-bash, name: dsh-tool-bash, config: {allowParallel: true}}
"""
"""The tool `bash`, and what it stands on."""
