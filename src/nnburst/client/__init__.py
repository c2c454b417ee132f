"""Reaches drivers from a program: connections, models, bursts and memory.

`launch` and `connect` return a `Device`. A device prepares a model; the `PreparedModel` executes it and opens
bursts.
"""
