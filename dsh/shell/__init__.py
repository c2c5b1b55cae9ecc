"""Processes and commands for agents (floor 4): seams, their providers on this machine, and two tools `bash`.

`service` holds the seams `subprocess`, `shell`, `shellEnv`; everybody else imports only that. `subprocess` (a row)
starts a `child` with its `pipes`, `collector` and `process_tree`, under `child_env` (no secrets), `exit_guard` and
`death_watch` (no survivors). `bash` (a row) runs command lines through it, `env` (a row) names the `DSH_*` variables,
`tool_bash` (a row) is the tool, `texts` what the models read. `terminal` (a row) is the seam for programs that keep
running between calls; `terminal_bash` (a row) starts bash on a `pty_child`, with `foreground` to see whether it waits
and `screen` for what it shows; `tool_bash_persistent` (a row) is the tool that uses it. Nothing here outlives the run;
spilled output stays in a private folder.
"""
