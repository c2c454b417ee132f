"""What processes share of one network: the lowered file, and its weights as the engine's kernels read them.

The engine believes what it finds in packed weights, offsets included, and in the network, too. Both come only
from a process that made them of the same model (`nnburst.driver.weights`).
"""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Sequence
from typing import Final

import msgspec

from nnburst.executor.graph.tensor import TensorType
from nnburst.executor.litert.network import Network
from nnburst.executor.sharing import memory_file
from nnburst.hal.errors import GeneralFailure

_FILES: Final = 3  # borders, network, weights


class _Borders(msgspec.Struct, frozen=True, array_like=True):
    """A `Network` without its content."""

    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    private_inputs: frozenset[int]
    private_outputs: frozenset[int]


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Borders).decode


class PackedWeights:
    """A descriptor of packed weights, for as long as engines are made with them.

    Attributes:
        fd: owned.
    """

    def __init__(self, fd: int) -> None:
        """Own `fd`."""
        self.fd = fd

    def close(self) -> None:
        """Engines that are there keep their mappings. Twice is fine."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()


def to_files(network: Network, weights: int) -> tuple[int, ...]:
    """The memory files of a network whose packed weights lie in `weights`, which is one of them."""
    borders = _Borders(
        network.inputs, network.outputs, network.private_inputs, network.private_outputs
    )
    described = memory_file("borders", _encode(borders))
    try:
        return described, memory_file("network", network.content), weights
    except BaseException:
        os.close(described)
        raise


def from_files(files: Sequence[int]) -> tuple[Network, PackedWeights]:
    """A network whose content is mapped, and its packed weights.

    Args:
        files: as `to_files` made them; borrowed.

    Raises:
        GeneralFailure: they are others.
    """
    if len(files) != _FILES:
        raise GeneralFailure(f"{len(files)} memory files of a network, expected {_FILES}")
    try:
        described, content = (
            mmap.mmap(fd, os.fstat(fd).st_size, mmap.MAP_SHARED, mmap.PROT_READ) for fd in files[:2]
        )
        with described:
            borders = _decode(described[:])
        weights = fcntl.fcntl(files[2], fcntl.F_DUPFD_CLOEXEC, 0)
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise GeneralFailure(f"the memory files of a network: {error}") from error
    network = Network(
        memoryview(content),
        borders.inputs,
        borders.outputs,
        borders.private_inputs,
        borders.private_outputs,
    )
    return network, PackedWeights(weights)
