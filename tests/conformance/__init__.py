"""Recorded runs of the reference system, replayed against this build."""
