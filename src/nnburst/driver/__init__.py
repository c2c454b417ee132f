"""The driver: what runs in the other process. Rooms, from the ground up; imports go down only.

limits    what a worker may use up, give up and write to a log
model     devices, prepared models, pools, driver-managed buffers, compilation caches
session   what a worker knows of its client, and the threads that serve it
burst     the thread of a burst, what it has bound, its slots
calls     the calls of a client, one handler module for each interface of the HAL
service   the process: command line, supervisor, listener, workers
"""
