"""Front ends as rows (floor 5): how a person or a program talks to a running composition.

`console` is the terminal, `headless` runs one task (`dsh exec`), `event_stream` reports a daemon's life, `control`
answers other terminals, `acp` serves editors and `sdk_jsonrpc_server` SDK clients, both over `stdio_jsonrpc`.
Consoles share `dialogue` (lines, steers, the queue, Ctrl-C), `commands` with `builtin_commands` and `completion`,
`transcript` (events as a person reads them), `screen` and `prompt_line` (where both appear; `prompt_app` draws it).
What they ask of the agent at the other end is `front`: `console` answers for this process, `control.remote` for a
daemon. All share `outcome` (what a run came to, and how it is printed), `stdin` and `stdout` (the real ones, kept for
protocol and result lines) and `terminal_text` (colour, no control characters).
They ask the launcher to exit through the root value `appExit`; only the launcher ends the process. May import
everything below; nothing imports them but the command line.
"""
