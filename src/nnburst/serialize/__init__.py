"""Requests and results as FMQ datums, byte-identical to the original on every defined byte.

Pure functions over arrays; this package knows no queues and no file descriptors.
`docs/wire_format.md` says what every byte is and how malformed packets are read.
"""
