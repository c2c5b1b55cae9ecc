"""Files for agents (floor 4): a seam, its provider on this machine, four tools, and room for results that are too long.

`service` is the seam `fs` with its events; everybody else imports only that. `local` (row `fs-local`) runs the blocking
work of `disk` and `atomic_write` in threads. `tools` (row `tool-fs`) registers `read_tool`, `write_tool`, `edit_tool`;
`str_replace_editor` (a row) is one tool for all of it. `text`, `window`, `diff` are pure, `texts` and `editor_texts`
what the model reads. `observation_policy` (a row) lets a session change only what it has read. `spill_store` is the
seam that keeps long texts, `spill_local` (a row) its folder, `spill_policy` (a row) puts long results there. May touch
any path it is asked for; where an agent may go is decided by policies and providers.
"""
