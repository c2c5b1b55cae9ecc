"""The plugin runtime: contexts, fibers, effects, services, events, realms, scopes, config models (floor 1)."""
