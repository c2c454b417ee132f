"""A burst's slot cache: which memory the client means by which number (burst:§6.2)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import islice

from nnburst.control.connection import Connection
from nnburst.control.limits import UPCALL_TIMEOUT
from nnburst.control.messages.burst import GetMemories as GetMemoriesMessage
from nnburst.control.messages.burst import Memories
from nnburst.driver.model.pools import Pool
from nnburst.fmq.shared_memory import SharedMemory
from nnburst.hal.errors import GeneralFailure

#: The getMemories upcall: one region for each slot, in order, within so many seconds.
GetMemories = Callable[[Sequence[int], float], list[SharedMemory]]

#: File descriptors that one reply can carry.
_SLOTS_PER_CALL = 64


class SlotCache:
    """Slots to mapped pools; entries live until freed. Used by the burst's thread only."""

    def __init__(self, get_memories: GetMemories) -> None:
        """Start empty."""
        self._get_memories = get_memories
        self._pools: dict[int, Pool] = {}

    def resolve(self, slots: Sequence[int]) -> list[Pool]:
        """The pools behind `slots`, asking the client for all unknown ones at once.

        The question is sorted and names each slot once; nothing is asked if all are known.
        DEVIATES: more than 64 unknown slots are asked for 64 at a time, as many fds as a message takes. The
        client has one deadline for all of them.

        Raises:
            NnburstError: the client does not have a slot, or what it sent is not usable memory.
        """
        unknown = iter(sorted({slot for slot in slots if slot not in self._pools}))
        deadline = time.monotonic() + UPCALL_TIMEOUT
        while batch := list(islice(unknown, _SLOTS_PER_CALL)):
            memories = self._get_memories(batch, max(deadline - time.monotonic(), 0))
            for slot, memory in zip(batch, memories, strict=True):
                self._pools[slot] = Pool(memory)
        return [self._pools[slot] for slot in slots]

    def release(self, slot: int) -> None:
        """Forget a slot; unknown ones are ignored (NNAPI: freeMemory)."""
        pool = self._pools.pop(slot, None)
        if pool is not None:
            pool.close()

    def close(self) -> None:
        """Forget all."""
        for slot in list(self._pools):
            self.release(slot)


def get_memories(
    upcalls: Connection, callback: int, slots: Sequence[int], timeout: float
) -> list[SharedMemory]:
    """IBurstCallback::getMemories: the pools behind slots of one burst, which the caller owns.

    Args:
        upcalls: to the client.
        callback: of the burst.
        slots: at most 64.
        timeout: seconds that the client has.

    Raises:
        GeneralFailure: burst:§6.2: it answers with a wrong count.
        NnburstError: the client's reason, or its silence.
    """
    message = GetMemoriesMessage(callback, tuple(slots))
    found, fds = upcalls.call(message, Memories, timeout=timeout)
    if len(found.sizes) != len(slots):
        fds.close()
        raise GeneralFailure(f"getMemories gave {len(found.sizes)} pools for {len(slots)} slots")
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
