"""Trials by fire: kills, cancels at every await, random interleavings, long runs, two processes on one session.

Each kind has a short form in the default suite; `scripts/soak` runs the long one (`FIRE_COUNT`, `FIRE_SEED`).
"""
