"""Values: where the operands of a compound plan lie while it computes, and who may write them."""

from __future__ import annotations

import os
from typing import Final

import numpy as np

from nnburst.client.memory.memory import Memory as Pool
from nnburst.fmq.shared_memory import SharedMemory
from nnburst.hal.closing import Closing
from nnburst.hal.errors import GeneralFailure, ResourceExhausted
from nnburst.runtime.argument import Argument, Bytes


class TemporaryPool(Closing):
    """A pool that some devices may write and all others only read.

    Two attachments of one memfd: drivers that write get it as it is, readers a descriptor that is open for
    reading only, so that a driver cannot change what another has computed.
    """

    def __init__(self, size: int, writers: frozenset[int]) -> None:
        """New zeroed memory.

        Args:
            size: bytes, at least 1.
            writers: positions of the devices that may write.

        Raises:
            ResourceExhausted: there is not so much memory.
        """
        self.size: Final = size
        self.writers: Final = writers
        shared = SharedMemory.create(size, name="temporaries")
        try:
            reader = SharedMemory(_read_only(shared.fd), size)
        except BaseException:
            shared.close()
            raise
        self._for_writers: Final = Pool._adopt(shared, writable=True)
        self._for_readers: Final = Pool._adopt(reader, writable=False)

    def view(self, device: int | None, offset: int, length: int) -> Bytes:
        """Bytes as a device gets them; None stands for this process."""
        writes = device is None or device in self.writers
        pool = self._for_writers if writes else self._for_readers
        found: Bytes = pool.array(np.uint8, (length,), offset)
        return found

    def close(self) -> None:
        """Give both attachments up."""
        self._for_writers.close()
        self._for_readers.close()


def _read_only(fd: int) -> int:
    try:
        return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise ResourceExhausted(f"temporaries cannot be opened for reading: {error}") from error


class Value:
    """Where one operand lies, and its dimensions as far as they are known.

    Attributes:
        dimensions: 0 is unknown.
    """

    def __init__(self, dimensions: tuple[int, ...]) -> None:
        """Start with what the model, or the argument, declares."""
        self.dimensions = dimensions

    def argument(self, device: int | None) -> Argument:
        """It as a device gets it; None stands for the CPU, which is this process."""
        raise NotImplementedError

    @property
    def room(self) -> int:
        """Bytes that it may have."""
        raise NotImplementedError

    def bytes(self, length: int) -> Bytes:
        """Its first bytes, in this process.

        Raises:
            GeneralFailure: this process does not have them.
        """
        found = self.argument(None).bytes
        if found is None:
            raise GeneralFailure(
                "control flow: an operand is omitted, or lies in a driver's buffer"
            )
        return found[:length]


class GivenValue(Value):
    """An argument of the application's."""

    def __init__(self, argument: Argument) -> None:
        """Lie where the application has put it."""
        super().__init__(argument.dimensions)
        self._argument: Final = argument

    def argument(self, device: int | None) -> Argument:  # noqa: ARG002 - it is the same for all
        """Where it lies, with the dimensions as they are known now."""
        given = self._argument
        return Argument(given.bytes, self.dimensions, given.buffer)

    @property
    def room(self) -> int:
        """Bytes of the argument; 0 in a buffer."""
        given = self._argument.bytes
        return 0 if given is None else given.size


class PooledValue(Value):
    """A temporary in a pool."""

    def __init__(
        self, pool: TemporaryPool, offset: int, length: int, dimensions: tuple[int, ...]
    ) -> None:
        """Lie in `length` bytes from `offset` on."""
        super().__init__(dimensions)
        self._place: Final = pool, offset, length
        self._views: Final[dict[int | None, Bytes]] = {}

    def argument(self, device: int | None) -> Argument:
        """Its view for a device, made once: the same arrays again cost a burst nothing."""
        view = self._views.get(device)
        if view is None:
            pool, offset, length = self._place
            view = self._views[device] = pool.view(device, offset, length)
        return Argument(view, self.dimensions)

    @property
    def room(self) -> int:
        """Bytes that were laid out for it."""
        return self._place[2]
