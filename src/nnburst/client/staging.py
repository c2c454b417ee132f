"""Provides private pools for arrays that lie in no pool, and places arrays in pools.

`SocketRequest` takes a private pool for each request over the socket and returns it when the execution has
ended; the next request, of any shapes, may use it. Two other users differ:

* A burst's bound request keeps a pool of its own (`client/burst/arrays.py`): its packet, which is sent again
  unchanged, names the driver's slot of that pool, so no other request may use the pool. `Layout` places its
  arrays, too. One loop checks and copies them, since an execution over a burst takes microseconds.
* A buffer's copy (`client/execution/buffer.py`) is not a request: one array at the beginning of one memory.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from nnburst.client.memory import Memory
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import DataLocation, Model
from nnburst.hal.types import RequestArgument
from nnburst.hal.utils import listed

#: Alignment of tensors in bytes that inference engines expect.
ALIGNMENT: Final = 64
_SMALLEST: Final = 4096
#: Most free pools that are kept: more are left over when many executions were under way at once.
_MOST_FREE: Final = 32


class Layout:
    """Places tensors in a pool, one after the other, aligned."""

    def __init__(self) -> None:
        self.size = 0

    def place(self, length: int) -> int:
        """Reserve `length` bytes and return their offset."""
        offset = -(-self.size // ALIGNMENT) * ALIGNMENT
        self.size = offset + length
        return offset


def in_new_pool(
    wanted: Sequence[tuple[np.dtype[Any], tuple[int, ...]]],
) -> list[npt.NDArray[Any]]:
    """Make an array of each dtype and shape, zeroed, all in one new pool.

    Raises:
        ResourceExhausted: there is not enough memory.
    """
    layout = Layout()
    places = [layout.place(dtype.itemsize * math.prod(shape)) for dtype, shape in wanted]
    if not layout.size:
        return [np.zeros(shape, dtype) for dtype, shape in wanted]
    pool = Memory(layout.size)
    return [
        pool.array(dtype, shape, place)
        for (dtype, shape), place in zip(wanted, places, strict=True)
    ]


class StagingPools:
    """Keeps pools for reuse; one execution at a time uses each. Thread-safe."""

    def __init__(self, allocate: Callable[[int], Memory]) -> None:
        """`allocate(size)` makes a pool."""
        self._allocate = allocate
        self._lock = threading.RLock()  # a signal handler may execute while its thread is in here
        self._free: list[Memory] = []
        self._closed = False

    def take(self, size: int) -> Memory:
        """Take a free pool of at least `size` bytes; the most recently used one comes first."""
        with self._lock:
            memory = self._free.pop() if self._free else None
        if memory is not None and memory.size >= size:
            return memory
        if memory is not None:
            memory.close()
        return self._allocate(max(_SMALLEST, 1 << (size - 1).bit_length()))

    def release(self, memory: Memory) -> None:
        """Return a pool for the next execution, or free it if enough are kept.

        Not after a timeout: the driver may still write to it.
        """
        with self._lock:
            if not self._closed and len(self._free) < _MOST_FREE:
                self._free.append(memory)
                return
        memory.close()

    def close(self) -> None:
        """Free all pools."""
        with self._lock:
            self._closed = True
            free, self._free = self._free, []
        for memory in free:
            memory.close()


class PrivatePool:
    """One request's pool of the staging pools, until the request gives it back. Thread-safe.

    Attributes:
        memory: a pool of at least the wanted size; None if that was 0.
    """

    def __init__(self, staging: StagingPools, size: int) -> None:
        """Take a pool of `size` bytes."""
        self.memory = staging.take(size) if size else None
        self._staging = staging
        self._to_release = [] if self.memory is None else [self.memory]

    def release(self) -> None:
        """Return the pool, which the driver no longer uses, for the next request. Twice is fine."""
        try:
            memory = self._to_release.pop()  # in one step: two threads may find that it has ended
        except IndexError:
            return
        self._staging.release(memory)

    def keep(self) -> None:
        """Never return the pool: the driver may use it even after this object is gone."""
        self._to_release.clear()


P = TypeVar("P")


class RequestPools(Generic[P]):
    """Collects the pools of one request in order of their first use; arguments name them by that position.

    Attributes:
        used: the pools.
    """

    def __init__(self) -> None:
        """Start with no pool."""
        self.used: list[P] = []

    def argument(
        self, pool: P, offset: int, length: int, dimensions: tuple[int, ...]
    ) -> RequestArgument:
        """Make an argument of `length` bytes at `offset` in a pool."""
        index = next((i for i, used in enumerate(self.used) if used is pool), len(self.used))
        if index == len(self.used):
            self.used.append(pool)
        return RequestArgument(location=DataLocation(index, offset, length), dimensions=dimensions)


class CarriesPools(Protocol):
    """A model together with the contents of its pools, for its CONSTANT_REFERENCE operands."""

    @property
    def model(self) -> Model:
        """The model, which declares the pools and their sizes."""

    @property
    def pools(self) -> Sequence[npt.NDArray[Any]]:
        """The bytes of each pool, in the model's order."""


@contextmanager
def unpacked(
    model: Model | CarriesPools, pools: Sequence[Memory]
) -> Iterator[tuple[Model, Sequence[Memory]]]:
    """The bare model and its pools; pools that the model carries are copied, and closed after the block.

    Raises:
        InvalidArgument: it is not a model, or `pools` are no pools or are given although the model carries
            its own.
    """
    if isinstance(model, Model):
        yield model, check_pools(pools)
        return
    bare = bare_model(model)
    if pools:
        raise InvalidArgument(f"pools: {len(pools)} given, the model brings its own")
    with ExitStack() as stack:
        yield bare, [stack.enter_context(_copied(pool)) for pool in model.pools]


def check_pools(pools: Sequence[Memory]) -> tuple[Memory, ...]:
    """The pools of a model.

    Raises:
        InvalidArgument: it is no list of pools.
    """
    found = listed("pools", pools)
    for at, pool in enumerate(found):
        if not isinstance(pool, Memory):
            raise InvalidArgument(
                f"pools[{at}] is of type {type(pool).__name__}, expected a Memory"
            )
    return found


def bare_model(model: Model | CarriesPools) -> Model:
    """The model without the bytes of its pools.

    Raises:
        InvalidArgument: it is not a model.
    """
    bare = model if isinstance(model, Model) else getattr(model, "model", None)
    if not isinstance(bare, Model):
        raise InvalidArgument(
            f"model: of type {type(model).__name__}, expected a Model, as ModelBuilder.build returns,"
            " or what nnburst.load returns"
        )
    return bare


def _copied(content: npt.NDArray[Any]) -> Memory:
    memory = Memory(content.nbytes)
    np.asarray(memory)[...] = content.reshape(-1).view(np.uint8)
    return memory
