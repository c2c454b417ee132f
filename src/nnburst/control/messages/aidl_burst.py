"""IBurst of AIDL: bursts over this channel."""

from __future__ import annotations

from nnburst.control.messages.message import Call, Handle, MemoryIdentifier, RequestMessage
from nnburst.hal.model import MemoryPool


class OpenAidlBurst(Call, frozen=True, tag="OpenBurst"):
    """AIDL IPreparedModel::configureExecutionBurst: an IBurst, whose requests come over this channel."""

    handle: Handle


class BurstExecute(RequestMessage, frozen=True):
    """AIDL IBurst::executeSynchronously; `handle` is the burst.

    Attributes:
        memory_identifiers: one for each pool of the request: under which number the burst remembers its
            mapping, or -1 not to. A pool whose number the burst holds comes without a descriptor, with
            `fd_index` -1.
    """

    memory_identifiers: tuple[MemoryIdentifier, ...] = ()

    @property
    def fd_count(self) -> int:
        """The pools that the burst does not hold yet."""
        pools = (pool for pool in self.request.pools if isinstance(pool, MemoryPool))
        return sum(pool.fd_index >= 0 for pool in pools)


class ReleaseMemoryResource(Call, frozen=True):
    """AIDL IBurst::releaseMemoryResource: forget a memory identifier; an unknown one is fine."""

    handle: Handle
    memory_identifier: MemoryIdentifier
