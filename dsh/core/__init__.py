"""The spine (floor 3): session log, system prompt, tools, agents and the loop. Knows no provider, file or process.

The log: `session` is one over `session_event` and `session_header`, `session_store` the service that has the live ones.
`surface`, `derivation`, `latest`, `request_header` and `consumed_work` fold it; `seed`, `fork`, `repair`, `stored_log`,
`legacy`, `packed_rows` and `bulk` bring logs in and out; `event_types` and `message_shape` say what one may hold.
The prompt: `system_prompt` with `prompt_order` and `prompt_render`, and `runtime_context`.
Tools: `tools` is the registry, `tool_pipeline` the stages of a call with its `tool_run`, `tool_body` and `tool_result`,
`tool_events` what plugins hear of it. `tool_definition` is what a tool is, by hand (`tool_author`, `tool_schema`) or
from a function (`tool_hints`, `hint_schema`), `tool_presentation` how it is shown, `tool_errors` what it refuses.
Agents: `agents` is the registry, `agent` the contract, `agent_loop` the row that makes them (`creation`,
`configured_agents`). `driver` runs turns and steps, with `inbox`, `request_builder` and `tool_batch`; `agent_events`
are its extension points; `initiator` tells on whose behalf code runs, `working_directory` where.
`seams` are services that other folders provide; `invariants` and its `*_invariant` companions check all of this in a
run; `texts` and `tasks` serve everybody.
"""
