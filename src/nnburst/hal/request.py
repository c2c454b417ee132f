"""The HAL's request: arguments in pools. A burst carries the 1.0 layout: no driver buffers."""

from __future__ import annotations

import msgspec

from nnburst.hal.model import BufferToken, DataLocation, MemoryPool


class RequestArgument(msgspec.Struct, frozen=True, omit_defaults=True):
    """One input or output of a request.

    Attributes:
        has_no_value: the argument is omitted; `location` is then all zero and `dimensions` empty.
        location: byte range in one of the request's pools.
        dimensions: extents, if they add to the model's; empty to take the model's.
    """

    has_no_value: bool = False
    location: DataLocation = DataLocation()
    dimensions: tuple[int, ...] = ()


class Request(msgspec.Struct, frozen=True):
    """Inputs and outputs in the model's order, and the memory that they lie in.

    Attributes:
        inputs: one for each of the model.
        outputs: one for each of the model.
        pools: what `pool_index` counts in; a `BufferToken` stands for a driver's buffer (1.3).
    """

    inputs: tuple[RequestArgument, ...]
    outputs: tuple[RequestArgument, ...]
    pools: tuple[MemoryPool | BufferToken, ...] = ()

    @property
    def memory_count(self) -> int:
        """How many pools are shared memory, each with a descriptor of its own."""
        return sum(not isinstance(pool, BufferToken) for pool in self.pools)
