"""Gives access to the pools of a request: a client's memory, mapped into the driver, or a driver's buffer.

Memory is mapped read-only for inputs and read-write for outputs.
"""

from __future__ import annotations

from collections.abc import Sequence

from nnburst.control.channel import Fds
from nnburst.control.service import Reference
from nnburst.driver.confinement import POOLS, SHARED_BYTES, Charge, Quota
from nnburst.driver.model.buffers import BufferTracker, DeviceBuffer
from nnburst.fmq.shared_memory import SharedMemory
from nnburst.hal.errors import GeneralFailure, InvalidArgument, ResourceExhausted
from nnburst.hal.model import BufferToken, MemoryPool


class Pool:
    """One pool; it is mapped for reading or for writing at its first use of that kind. One thread at a time.

    A mapping stays until its last view is gone, even if the pool is closed.
    """

    __slots__ = ("_bytes", "_charge", "_memory", "_quota", "_readable", "_writable", "size")

    def __init__(
        self, memory: SharedMemory, size: int | None = None, quota: Quota = SHARED_BYTES
    ) -> None:
        """Own `memory` from here on.

        Args:
            memory: memory that has been checked.
            size: the size that the client claims, at most the memory's size; the memory's size unless given.
            quota: the quota for its bytes, charged when they are mapped.

        Raises:
            ResourceExhausted: the client has too many pools; `memory` is closed.
        """
        self._memory = memory
        self._quota = quota
        self.size = memory.size if size is None else size
        try:
            self._charge = POOLS.charge()
        except BaseException:
            memory.close()
            raise
        self._bytes: Charge | None = None  # each mapping keeps it, too
        self._readable: memoryview | None = None
        self._writable: memoryview | None = None

    @property
    def fd(self) -> int:
        """The descriptor, borrowed.

        Raises:
            Closed: after `close`.
        """
        return self._memory.fd

    @property
    def readable(self) -> memoryview:
        """All bytes, read-only.

        Raises:
            GeneralFailure: the pool cannot be mapped (device:E5).
            ResourceExhausted: the client has too many bytes of pools mapped.
        """
        if self._readable is None:
            self._readable = self._map(writable=False)
        return self._readable

    @property
    def writable(self) -> memoryview:
        """All bytes, read-write.

        Raises:
            GeneralFailure: the pool cannot be mapped for writing (device:E5).
            ResourceExhausted: the client has too many bytes of pools mapped.
        """
        if self._writable is None:
            self._writable = self._map(writable=True)
        return self._writable

    def _map(self, *, writable: bool) -> memoryview:
        if self._bytes is None:
            self._bytes = self._quota.charge(self.size)
        try:
            return self._memory.map_memory(writable=writable, keep=self._bytes)[: self.size]
        except (ResourceExhausted, OSError, ValueError) as error:
            raise GeneralFailure(f"device:E5: a pool cannot be mapped: {error}") from error

    def close_descriptor(self) -> None:
        """Close only the descriptor: existing mappings can still be bound again."""
        self._memory.close()
        self._charge.close()

    def close(self) -> None:
        """Close the descriptor and forget the mappings."""
        self.close_descriptor()
        self._readable = self._writable = self._bytes = None


class BufferPool:
    """A buffer as a pool of one request; `close` releases it.

    Attributes:
        size: always None: a request uses a whole buffer and does not state its size.
    """

    __slots__ = ("_reference", "size")

    def __init__(self, reference: Reference[DeviceBuffer]) -> None:
        """Own `reference` from here on."""
        self._reference = reference
        self.size = None

    @property
    def buffer(self) -> DeviceBuffer:
        """The buffer."""
        return self._reference.target

    def close(self) -> None:
        """End the request's use of the buffer."""
        self._reference.close()


#: A pool of a request; `pool_index` of its arguments counts these.
RequestPool = Pool | BufferPool


def adopt_pools(described: Sequence[MemoryPool], fds: Fds) -> list[Pool]:
    """Adopt the pools of a model: `fds[i]` belongs to `described[i]`, whose `fd_index` must be `i`.

    Args:
        described: hostile until checked here.
        fds: one descriptor for each pool.

    Raises:
        InvalidArgument: validation:M4: a pool names another descriptor, or is not a sealed memfd of its size.
    """
    pools: list[Pool] = []
    try:
        for pool in described:
            pools.append(adopt_pool(pool, fds, len(pools)))
    except BaseException as error:
        close_pools(pools)
        if isinstance(error, InvalidArgument):
            raise InvalidArgument(f"validation:M4: pools[{len(pools)}]: {error}") from error
        raise
    return pools


def adopt_request_pools(
    described: Sequence[MemoryPool | BufferToken],
    fds: Fds,
    buffers: BufferTracker,
    quota: Quota = SHARED_BYTES,
) -> list[RequestPool]:
    """Adopt the pools of a request; `close_pools` closes them when it is done.

    Args:
        described: hostile until checked here; `fd_index` counts the pools that are memory, in order.
        fds: one descriptor for each pool that is memory.
        buffers: the client's buffers by token.
        quota: the quota for mapped bytes.

    Raises:
        InvalidArgument: validation:R2: a pool names another descriptor, is not a sealed memfd of its size, or
            names a buffer that does not exist.
    """
    pools: list[RequestPool] = []
    memories = 0
    try:
        for pool in described:
            if isinstance(pool, BufferToken):
                pools.append(BufferPool(buffers.acquire(pool.token)))
            else:
                pools.append(adopt_pool(pool, fds, memories, quota))
                memories += 1
    except BaseException as error:
        close_pools(pools)
        if isinstance(error, InvalidArgument):
            raise InvalidArgument(f"validation:R2: pools[{len(pools)}]: {error}") from error
        raise
    return pools


def adopt_pool(pool: MemoryPool, fds: Fds, index: int, quota: Quota = SHARED_BYTES) -> Pool:
    """Adopt the pool with the descriptor `fds[index]`; its `fd_index` must be `index`, `quota` as for `Pool`.

    Raises:
        InvalidArgument: it names another descriptor, or is not a sealed memfd of its size.
    """
    if pool.fd_index != index:
        raise InvalidArgument(f"fd_index is {pool.fd_index}, expected {index}")
    return Pool(SharedMemory.adopt(fds.take(index), pool.size), pool.size, quota)


def close_pools(pools: Sequence[RequestPool]) -> None:
    """Close all pools."""
    for pool in pools:
        pool.close()


def close_descriptors(pools: Sequence[RequestPool]) -> None:
    """Close the descriptors of a bound request's memory; its mappings and buffers stay until `close_pools`.

    This saves descriptors, which are limited, while many executions wait.
    """
    for pool in pools:
        if isinstance(pool, Pool):
            pool.close_descriptor()
