"""Saves lowered networks for later processes: cache files, and memory files with packed weights.

A lowered network is a flatbuffer, and the engine does not check the offsets in it. They stay in the program,
which the driver protects; only the elements of float32 and 8-bit tensors are moved to the constants. Tensors
of these types steer nothing in the engine (shapes, axes, paddings and indices are int32), and a client could
have given its model any other values in the first place.

Processes share the lowered file, and its weights in the form that the engine's kernels read. The engine
checks neither the packed weights nor the network. So both come only from a process that made them from the
same model (`nnburst.driver.weights_server`).
"""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Final

import msgspec

from nnburst.executor.base import Cached, Octets, memory_file, without_constants
from nnburst.executor.graph.tensor import TensorType
from nnburst.executor.litert.network import Network
from nnburst.formats.tflite_reader import File, read_format, root_table
from nnburst.hal import late_numpy as np
from nnburst.hal.errors import GeneralFailure
from nnburst.hal.model import Model

#: Constants with fewer bytes stay in the network.
_SMALLEST: Final = 64
#: Names of the format's types whose elements steer nothing.
_VALUES: Final = ("FLOAT32", "UINT8", "INT8")


class CachedNetwork(msgspec.Struct, frozen=True, array_like=True):
    """A `Network` whose constants have been cut out.

    The constants are as long as the whole file, with zeros for everything else: the rest is then written into
    its places, and nothing large is copied.

    Attributes:
        content: the file without constants.
        spans: offset and length of each constant in the whole file, ascending.
        inputs: see `Network`, as for all other attributes.
    """

    content: bytes
    spans: tuple[tuple[int, int], ...]
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    private_inputs: frozenset[int]
    private_outputs: frozenset[int]


class CachedPart(msgspec.Struct, frozen=True, array_like=True):
    """A part of a model; the whole model if it is not split.

    Attributes:
        model: the model of the part, with constants only if another executor runs it.
        network: the network that the engine runs; None if another executor runs the part.
        constants: number of bytes of its constants.
        static: see `split.SplitPart`.
    """

    model: Model
    network: CachedNetwork | None
    constants: int
    static: bool = True


class Program(msgspec.Struct, frozen=True, array_like=True):
    """The parts of a model, as stored in `Cached.program`.

    Attributes:
        parts: the parts in order; their constants follow each other.
        types: types of the whole model's operands, as far as known; None if the model is not split.
    """

    parts: tuple[CachedPart, ...]
    types: dict[int, TensorType] | None = None


_encode: Final = msgspec.msgpack.Encoder().encode
_decode_program: Final = msgspec.msgpack.Decoder(Program).decode


def cut_constants(model: Model, network: Network) -> tuple[CachedPart, Octets]:
    """A network that computes `model`, and its constants."""
    content = memoryview(network.content)
    spans = tuple(sorted(_constant_spans(network.content)))
    constants = bytearray(len(content))
    for offset, length in spans:
        constants[offset : offset + length] = content[offset : offset + length]
    made = CachedNetwork(
        b"".join(content[start:end] for start, end in _between(spans, len(content))),
        spans,
        network.inputs,
        network.outputs,
        network.private_inputs,
        network.private_outputs,
    )
    return CachedPart(without_constants(model), made, len(constants)), constants


def put_back(made: CachedNetwork, constants: Octets) -> Network:
    """Put constants back into a network, which takes over their bytes.

    Raises:
        GeneralFailure: the constants are not as long as those that were cut out.
    """
    content = constants if isinstance(constants, bytearray) else bytearray(constants)
    if len(content) != len(made.content) + sum(length for _, length in made.spans):
        raise GeneralFailure(f"{len(constants)} bytes of constants do not fit the network")
    kept = memoryview(made.content)
    for start, end in _between(made.spans, len(content)):
        content[start:end] = kept[: end - start]
        kept = kept[end - start :]
    return Network(
        content,
        made.inputs,
        made.outputs,
        made.private_inputs,
        made.private_outputs,
    )


def pack(
    model: Model,
    parts: Sequence[tuple[CachedPart, Octets]],
    types: Mapping[int, TensorType] | None = None,
) -> Cached:
    """Cache a model: its lowered parts, their constants and their types.

    Args:
        model: the whole model.
        parts: the parts in order, with their constants.
        types: types of its operands, if it is split.
    """
    program = Program(tuple(part for part, _ in parts), None if types is None else dict(types))
    constants = parts[0][1] if len(parts) == 1 else b"".join(each for _, each in parts)
    return Cached(without_constants(model), _encode(program), constants)


def as_part(cached: Cached, *, static: bool) -> tuple[CachedPart, Octets]:
    """A cached part of a split model: this executor's one network, or another executor's model."""
    if not cached.program:
        part = CachedPart(cached.model, None, len(cached.constants), static)
    else:
        part = msgspec.structs.replace(_decode_program(cached.program).parts[0], static=static)
    return part, cached.constants


def unpack(cached: Cached) -> tuple[Program, list[Octets]]:
    """The program and the constants of each part, from what `pack` returned.

    Raises:
        GeneralFailure: program and constants do not fit each other.
    """
    try:
        program = _decode_program(cached.program)
    except (msgspec.MsgspecError, ValueError) as error:
        raise GeneralFailure(f"malformed program: {error}") from error
    if len(cached.constants) != sum(part.constants for part in program.parts):
        raise GeneralFailure(f"{len(cached.constants)} bytes of constants do not fit the program")
    if len(program.parts) == 1:
        return program, [cached.constants]
    ends = list(accumulate((part.constants for part in program.parts), initial=0))
    each = [cached.constants[start:end] for start, end in pairwise(ends)]
    return program, each


def _between(spans: Sequence[tuple[int, int]], size: int) -> Iterator[tuple[int, int]]:
    """Start and end of the pieces before, between and behind the spans of a file."""
    start = 0
    for offset, length in spans:
        yield start, offset
        start = offset + length
    yield start, size


def _constant_spans(content: Octets | memoryview) -> Iterator[tuple[int, int]]:
    """Offset and length of each constant in a lowered network that may be cut out."""
    model = root_table(File(content))
    graph = model.Subgraphs(0)
    start = np.frombuffer(content, np.uint8).ctypes.data
    values = {read_format().enumerations["TensorType"][name] for name in _VALUES}
    tensors = [graph.Tensors(at) for at in range(graph.TensorsLength())]
    steering = {tensor.Buffer() for tensor in tensors if tensor.Type() not in values}
    for buffer in {tensor.Buffer() for tensor in tensors} - steering:
        data = model.Buffers(buffer).DataAsNumpy()  # 0 if it has no data
        if isinstance(data, np.ndarray) and data.nbytes >= _SMALLEST:
            yield data.ctypes.data - start, data.nbytes


_FILES: Final = 3  # descriptions of inputs and outputs, network, weights


class _Borders(msgspec.Struct, frozen=True, array_like=True):
    """A `Network` without its content."""

    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    private_inputs: frozenset[int]
    private_outputs: frozenset[int]


_decode_borders: Final = msgspec.msgpack.Decoder(_Borders).decode


class PackedWeights:
    """Owns the descriptor of packed weights as long as engines are made with them.

    Attributes:
        fd: the descriptor, owned.
    """

    def __init__(self, fd: int) -> None:
        """Own `fd`."""
        self.fd = fd

    def close(self) -> None:
        """Close the descriptor; engines keep their mappings. May be called twice."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        if hasattr(self, "fd"):  # its constructor may have been interrupted
            self.close()


def to_files(network: Network, weights: int) -> tuple[int, ...]:
    """Write a network to memory files; `weights`, the descriptor of its packed weights, is one of them."""
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
    """Read a network, whose content is mapped, and its packed weights.

    Args:
        files: descriptors that `to_files` returned; borrowed.

    Raises:
        GeneralFailure: the files are not from `to_files`.
    """
    if len(files) != _FILES:
        raise GeneralFailure(f"{len(files)} memory files of a network, expected {_FILES}")
    try:
        described, content = (
            mmap.mmap(fd, os.fstat(fd).st_size, mmap.MAP_SHARED, mmap.PROT_READ) for fd in files[:2]
        )
        with described:
            borders = _decode_borders(described[:])
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
