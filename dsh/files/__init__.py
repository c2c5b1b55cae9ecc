"""Files for agents (floor 4): a seam, its provider on this machine, and three tools.

`service` is the seam `fs` with its events; everybody else imports only that. `local` (row `fs-local`) runs the blocking
work of `disk` and `atomic_write` in threads. `tools` (row `tool-fs`) registers `read_tool`, `write_tool`, `edit_tool`;
`text`, `window`, `diff` are pure, `texts` is what the model reads. `observation_policy` (a row) lets a session change
only what it has read. May touch any path it is asked for; where an agent may go is decided by policies and providers.
"""
