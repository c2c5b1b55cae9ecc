"""Session logs on disk (floor 4): what every conversation is resumed from.

`jsonl` is the row; it puts the `coordinator` (who may write, what is loaded) over `jsonl_store` (a `Backend`), whose
blocking calls run in order on the one thread of `writer`. `lease` says who may write a log, `log_file`, `jsonl_codec`
and `frames` how its bytes look, `live_log` and `live_sessions` how live events get there, `loading` how they come back.
`backend` is what a store must do, `paths` where its files are, `prepared` what is loaded and not yet live.
`checkpoint_policy`, `projection` and `title` (with `title_text`) are rows of their own. `stored` (with `log_tail`),
`verify`, `forking` (with `salvage`) and `renaming` serve the command line without a run.
May touch the folders of `root` it was given and nothing else; imports core, llm and cordis.
"""
