"""Session logs on disk (floor 4): what every conversation is resumed from.

`jsonl` is the row; it puts the `coordinator` (who may write, what is loaded) over `jsonl_store` (a `Backend`), whose
blocking calls run in order on the one thread of `writer`. `lease` says who may write a log, `log_file`, `jsonl_codec`
and `frames` how its bytes look, `live_log` and `live_sessions` how live events get there, `loading` how they come back.
`checkpoint_policy` and `projection` are rows of their own; `stored` and `verify` serve the command line without a run.
May touch the folders of `root` it was given and nothing else; imports core, llm and cordis.
"""
