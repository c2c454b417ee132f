"""Executions over shared memory: a burst, its channels, its bound requests."""
