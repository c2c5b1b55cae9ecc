"""How a transcript looks, part by part: streamed answers, reasoning, tool calls, diffs, retries, what waits, the status
line. Each part takes pieces of events and gives finished text to print and rows for a `screen.Region`.
"""
