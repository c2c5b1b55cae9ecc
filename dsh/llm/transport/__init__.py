"""What every provider adapter needs to talk HTTP: a client, a byte-level event stream, clocks, error classes."""
