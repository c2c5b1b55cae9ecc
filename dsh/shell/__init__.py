"""Processes and commands for agents (floor 4): three seams, their providers on this machine, and a tool.

`service` holds the seams `subprocess`, `shell`, `shellEnv`; everybody else imports only that. `subprocess` (a row)
starts a `child` with its `pipes`, `collector` and `process_tree`, under `child_env` (no secrets) and `exit_guard` (no
survivors). `bash` (a row) runs command lines through it, `env` (a row) names the `DSH_*` variables, `tool_bash` (a row)
is the tool, `texts` what the model reads. Nothing here outlives the run; spilled output stays in a private folder.
"""
