"""A client's memory, mapped into the driver: read-only for inputs, read-write for outputs."""

from __future__ import annotations

from collections.abc import Sequence

from nnburst.control.channel import Fds
from nnburst.executor.protocol import Bytes
from nnburst.fmq.shared_memory import SharedMemory
from nnburst.hal.errors import GeneralFailure, InvalidArgument, ResourceExhausted
from nnburst.hal.model import MemoryPool


class Pool:
    """One pool, mapped each way when first needed. One thread uses it at a time.

    The mappings live as long as their views; `close` gives up the descriptor.
    """

    __slots__ = ("_memory", "_readable", "_writable", "size")

    def __init__(self, memory: SharedMemory, size: int | None = None) -> None:
        """Own `memory` from here on; `size` is what its owner declared, at most what there is."""
        self._memory = memory
        self.size = memory.size if size is None else size
        self._readable: Bytes | None = None
        self._writable: Bytes | None = None

    @property
    def readable(self) -> Bytes:
        """All bytes, read-only.

        Raises:
            GeneralFailure: the pool cannot be mapped (device:E5).
        """
        if self._readable is None:
            self._readable = self._map(writable=False)
        return self._readable

    @property
    def writable(self) -> Bytes:
        """All bytes, read-write.

        Raises:
            GeneralFailure: the pool cannot be mapped so (device:E5).
        """
        if self._writable is None:
            self._writable = self._map(writable=True)
        return self._writable

    def _map(self, *, writable: bool) -> Bytes:
        try:
            return self._memory.map(writable=writable)[: self.size]
        except (ResourceExhausted, OSError, ValueError) as error:
            raise GeneralFailure(f"E5: a pool cannot be mapped: {error}") from error

    def close(self) -> None:
        """Close the descriptor and forget the mappings."""
        self._memory.close()
        self._readable = self._writable = None


def adopt_pools(described: Sequence[MemoryPool], fds: Fds, rule: str) -> list[Pool]:
    """The pools of a model or request: `fds[i]` is `described[i]`, whose `fd_index` is `i`.

    Args:
        described: hostile until checked here.
        fds: one for each.
        rule: that a bad pool breaks: validation:M4 of models, validation:R2 of requests.

    Raises:
        InvalidArgument: a pool names another descriptor, or is no sealed memfd of its size.
    """
    pools: list[Pool] = []
    try:
        for index, pool in enumerate(described):
            if pool.fd_index != index:
                raise InvalidArgument(f"fd_index is {pool.fd_index}, expected {index}")  # noqa: TRY301
            pools.append(Pool(SharedMemory.adopt(fds.take(index), pool.size), pool.size))
    except BaseException as error:
        close_pools(pools)
        if isinstance(error, InvalidArgument):
            raise InvalidArgument(f"{rule}: pools[{len(pools)}]: {error}") from error
        raise
    return pools


def close_pools(pools: Sequence[Pool]) -> None:
    """Close each."""
    for pool in pools:
        pool.close()
