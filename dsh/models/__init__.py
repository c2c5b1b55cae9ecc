"""Model routes and what decides between them (floor 4); one row a file.

Adapters: `deepseek/` (the service), `local*` (a child process with a small model), `demo` (scripted), `replay*`
(recorded sessions). `default_model` picks the route of an agent that names none, `retry` repeats failed calls.
`mock_server` and `mock_replies` are a scripted model server on real HTTP, for tests and `dsh dev mock-llm`;
`stream_invariant` checks every stream in tests. Talks to the network through `dsh.llm.transport` alone, and reads keys
from the credentials seam at each call; no key is kept or printed.
"""
