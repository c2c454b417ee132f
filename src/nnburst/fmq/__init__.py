"""Fast message queues: sealed shared memory, rings over it, and the event flag that wakes.

This layer moves bytes. It has no tensors, no packets and no sockets.
"""
