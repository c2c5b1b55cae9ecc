"""The command line (floor 6): one Typer command a file, each imported only when it runs.

`main` finds the command in its table and sets log lines up (`logs`). `run`, `exec` and `resume` describe a `Launch`;
`host` turns one into a running composition and an exit code, signals included. The others look at or change one thing:
`config`, `settings`, `credentials`, `sessions`, `init` (from `starter`), `local`, `dev`. `output` is how all of them
print and fail; `quick_values` keeps typer's slow converters out of the start. Nothing imports this folder.
"""
