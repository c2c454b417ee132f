"""Reaches drivers from a program: connections, models, bursts and memory.

`launch` and `connect` give a `Device`, which prepares a `PreparedModel`, which executes and opens bursts.
"""
