"""Passes elements between processes by fast message queues: rings in sealed memory, with an event flag.

    queue = MessageQueue.create(np.dtype("<u4"), 1024)      # one program
    queue = create_named_queue("/camera", bytes, 65536)     # two that share no socket

This layer moves bytes. It has no tensors, packets or sockets. Names are imported when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from nnburst.fmq.event_flag import EventFlag, EventFlagBits
    from nnburst.fmq.message_queue import Claim, MessageQueue, QueueStatistics
    from nnburst.fmq.named_queue import (
        NamedQueue,
        create_named_queue,
        inherit_queue,
        inheritance,
        list_named_queues,
        open_named_queue,
        receive_queue,
        remove_stale_names,
        send_queue,
    )
    from nnburst.fmq.object_queue import Queue
    from nnburst.fmq.shared_memory import Flavor, GrantorDescriptor, MQDescriptor, SharedMemory

__all__ = [
    "MessageQueue",
    "Flavor",
    "QueueStatistics",
    "Claim",
    "EventFlag",
    "EventFlagBits",
    "MQDescriptor",
    "GrantorDescriptor",
    "SharedMemory",
    "create_named_queue",
    "open_named_queue",
    "NamedQueue",
    "list_named_queues",
    "remove_stale_names",
    "send_queue",
    "receive_queue",
    "inheritance",
    "inherit_queue",
    "Queue",
]

_HOME: Final = {
    "MessageQueue": "nnburst.fmq.message_queue",
    "QueueStatistics": "nnburst.fmq.message_queue",
    "Claim": "nnburst.fmq.message_queue",
    "Flavor": "nnburst.fmq.shared_memory",
    "MQDescriptor": "nnburst.fmq.shared_memory",
    "GrantorDescriptor": "nnburst.fmq.shared_memory",
    "EventFlag": "nnburst.fmq.event_flag",
    "EventFlagBits": "nnburst.fmq.event_flag",
    "SharedMemory": "nnburst.fmq.shared_memory",
    "create_named_queue": "nnburst.fmq.named_queue",
    "open_named_queue": "nnburst.fmq.named_queue",
    "NamedQueue": "nnburst.fmq.named_queue",
    "list_named_queues": "nnburst.fmq.named_queue",
    "remove_stale_names": "nnburst.fmq.named_queue",
    "send_queue": "nnburst.fmq.named_queue",
    "receive_queue": "nnburst.fmq.named_queue",
    "inheritance": "nnburst.fmq.named_queue",
    "inherit_queue": "nnburst.fmq.named_queue",
    "Queue": "nnburst.fmq.object_queue",
}

if not TYPE_CHECKING:  # with this function, type checkers would accept any name

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            raise AttributeError(f"module 'nnburst.fmq' has no attribute {name!r}")
        value = getattr(importlib.import_module(_HOME[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
