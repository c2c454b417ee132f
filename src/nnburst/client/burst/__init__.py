"""Executes over shared memory: bursts, their channels and their bound requests."""
