"""The model vocabulary and the abstract model service: messages, streams, failures, transport kit (floor 2)."""
