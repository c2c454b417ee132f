"""What a worker keeps for the client that it serves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from nnburst.control.connection import Connection
from nnburst.control.messages.burst import GetMemories, Memories
from nnburst.control.objects import ObjectTable
from nnburst.driver.model.buffer_tracker import BufferTracker
from nnburst.driver.model.device import Device
from nnburst.driver.session.fence_waiter import FenceWaiter
from nnburst.driver.session.outbox import Outbox
from nnburst.driver.session.scheduler import Scheduler
from nnburst.fmq.shared_memory import SharedMemory
from nnburst.hal.enums import Priority
from nnburst.hal.errors import GeneralFailure


class ClientSession:
    """One client's device, objects and upcalls. Thread-safe.

    Attributes:
        device: whose calls it makes.
        upcalls: the socket on which the driver calls the client.
        objects: what its handles stand for.
        buffers: those of them that requests name by tokens.
        scheduler: runs its work.
        outbox: notifications that it is yet to get.
        fences: waits for its sync fences.
    """

    def __init__(self, device: Device, upcalls: Connection) -> None:
        """Serve `device` to the client at the other end of `upcalls`."""
        self.device: Final = device
        self.upcalls: Final = upcalls
        self.objects: Final = ObjectTable()
        self.buffers: Final = BufferTracker(self.objects)
        self.scheduler: Final = Scheduler()
        self.outbox: Final = Outbox(upcalls)
        self.fences: Final = FenceWaiter()

    def get_memories(
        self, callback: int, slots: Sequence[int], timeout: float
    ) -> list[SharedMemory]:
        """IBurstCallback::getMemories: the pools behind slots of one burst, which the caller owns.

        Args:
            callback: of the burst.
            slots: at most 64.
            timeout: seconds that the client has.

        Raises:
            GeneralFailure: burst:§6.2: it answers with a wrong count.
            NnburstError: the client's reason, or its silence.
        """
        message = GetMemories(callback, tuple(slots))
        found, fds = self.upcalls.call(message, Memories, timeout=timeout)
        if len(found.sizes) != len(slots):
            fds.close()
            raise GeneralFailure(
                f"getMemories gave {len(found.sizes)} pools for {len(slots)} slots"
            )
        memories: list[SharedMemory] = []
        with fds:
            try:
                for index, size in enumerate(found.sizes):
                    memories.append(SharedMemory.adopt(fds.take(index), size))
            except BaseException:
                for memory in memories:
                    memory.close()
                raise
        return memories


def priority_of(target: object) -> Priority:
    """The priority of the prepared model that an object belongs to; MEDIUM if it has none."""
    priority = getattr(target, "priority", Priority.MEDIUM)
    return priority if isinstance(priority, Priority) else Priority.MEDIUM
