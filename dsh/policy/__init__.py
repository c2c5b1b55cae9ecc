"""Small guards around the agent (floor 4); one row a file, none of which another depends on.

`todo` is the tool for a visible task list, `tool_timeout` ends calls that overrun what their tool declares,
`turn_limits` ends turns that overrun steps, tokens or time. They act through events of core alone and touch neither
files nor processes; a guard that needs a private door into the loop is a missing event.
"""
