"""The optional part of the contract with an executor: weights that processes of several clients share.

    PackingExecutor.pack(model, …)            -> memory files    where no client's message was read
    PackingExecutor.prepare_packed(files, …)  -> Prepared        in a worker, instead of `prepare`

Engines read weights in a form of their own. It is made once, in memory files that are sealed and only read
from then on, so that further clients of a service that prepare the same model save the time and the memory.
Who may share with whom, and what "the same model" is, are the driver's business (`nnburst.driver.weights`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from nnburst.executor.base import Bytes, Prepared, PrepareOptions
from nnburst.hal.model import Model


@runtime_checkable
class PackingExecutor(Protocol):
    """An executor whose packed weights can be shared. Thread-safe."""

    def pack(
        self, model: Model, pools: Sequence[Bytes], options: PrepareOptions
    ) -> tuple[int, ...]:
        """Pack the weights of a validated model; called in a process that does nothing else.

        Args:
            model: as for `Executor.prepare`.
            pools: likewise; they do not change.
            options: likewise.

        Returns:
            Descriptors of memfds that can be sealed, at most `MAX_FILES`; the caller owns them, and they
            are mapped nowhere. Empty if the model has nothing to share.

        Raises:
            NnburstError: it cannot be prepared.
        """

    def prepare_packed(
        self, model: Model, files: Sequence[int], options: PrepareOptions
    ) -> Prepared:
        """Prepare a model that `pack` has packed with the same options in another process.

        Args:
            model: the same.
            files: what `pack` returned, sealed against writing; borrowed.
            options: the same.

        Raises:
            NnburstError: it cannot be prepared so; it will be prepared by `prepare`.
        """


#: Memory files of one model.
MAX_FILES = 4


def memory_file(name: str, *parts: bytes | bytearray | memoryview) -> int:
    """A new memfd that can be sealed, with `parts` in it one behind the other; the caller owns it.

    Raises:
        OSError: memory is short.
    """
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        for part in parts:
            left = memoryview(part)
            while left:
                left = left[os.write(fd, left) :]
    except BaseException:
        os.close(fd)
        raise
    return fd
