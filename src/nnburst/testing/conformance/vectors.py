"""Reads and writes conformance vectors: files of models with inputs and expected outputs.

One file holds the tests of one specification and every distinct byte string once (`buffers`); see
`Vector` for the parts of a test. Files are gzip without time or name, so that writing is reproducible.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from nnburst.hal.enums import OperandLifeTime, OperandType, OperationType
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import (
    DTYPES,
    DataLocation,
    MemoryPool,
    Model,
    Operand,
    Operation,
    Subgraph,
    SymmPerChannelQuantParams,
)
from nnburst.hal.regular_file import read_regular_file

_ALIGNMENT: Final = 16
#: Folder of the package's data: `packets.json`, and in `vectors` a file for each operation.
SHIPPED: Final = Path(__file__).parent.with_name("data")


class ChannelQuant(msgspec.Struct, frozen=True, rename="camel"):
    """Per-channel scales."""

    scales: tuple[float, ...]
    channel_dim: int


class VectorOperand(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """An operand of a vector's graph; `data` is an index into the file's buffers.

    Attributes:
        type: name of an OperandType.
        dimensions: 0 is unknown; of a main output with empty data, a truly empty extent.
        lifetime: name of an OperandLifeTime.
        is_ignored: whether this is an output that is not compared.
        data: a constant's value, an input's, an expected output's, or a subgraph's number.
    """

    name: str = ""
    type: str
    dimensions: tuple[int, ...]
    scale: float
    zero_point: int
    lifetime: str
    number_of_consumers: int
    channel_quant: ChannelQuant | None = None
    is_ignored: bool = False
    data: int | None = None

    @property
    def kind(self) -> OperandType:
        """Operand type."""
        return OperandType[self.type]


class VectorOperation(msgspec.Struct, frozen=True):
    """An operation of a vector's graph."""

    type: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class VectorGraph(msgspec.Struct, frozen=True):
    """A subgraph with operations in an order that can be executed."""

    operands: tuple[VectorOperand, ...]
    operations: tuple[VectorOperation, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class Tolerance(msgspec.Struct, frozen=True):
    """The differences that results may have; see `nnburst.testing.conformance.comparison`.

    Attributes:
        float32: atol and rtol.
        float16: atol and rtol.
        int32: steps; likewise the others.
    """

    float32: tuple[float, float] = (1e-5, 5 * 2.0**-23)
    float16: tuple[float, float] = (5 * 2.0**-10, 5 * 2.0**-10)
    int32: int = 1
    quant8: int = 1
    quant16: int = 1
    bool8: int = 0


class Vector(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One test: a model, its inputs and the expected outputs.

    Attributes:
        name: unique over all files.
        expect_failure: whether building, preparing or executing must report an error.
        relaxed: whether float32 may be computed as float16.
        multinomial_tolerance: tolerance for RANDOM_MULTINOMIAL, whose results are compared by frequency.
        suites: the ways in which it is run (`nnburst.testing.conformance.campaign`).
        buffers: bytes of the operands' data; shared by all vectors of a file.
    """

    name: str
    spec: str
    folder: str
    model_name: str = ""
    example_name: str = ""
    variations: tuple[str, ...] = ()
    hal_version: str = "UNKNOWN"
    effective_hal_version: str = "AIDL_V3"
    expect_failure: bool = False
    relaxed: bool = False
    multinomial_tolerance: float | None = None
    main: VectorGraph
    referenced: tuple[VectorGraph, ...] = ()
    tolerance: Tolerance = Tolerance()
    suites: tuple[str, ...] = ("run",)
    buffers: tuple[bytes, ...] = ()

    @property
    def graphs(self) -> tuple[VectorGraph, ...]:
        """All graphs, main first."""
        return (self.main, *self.referenced)

    @property
    def inputs(self) -> list[VectorOperand]:
        """Operands that the request feeds."""
        return [self.main.operands[i] for i in self.main.inputs]

    @property
    def outputs(self) -> list[VectorOperand]:
        """Operands that the request reads."""
        return [self.main.operands[i] for i in self.main.outputs]

    def bytes_of(self, operand: VectorOperand) -> bytes | None:
        """An operand's data; None if it has no data, or empty data as an omitted input."""
        data = None if operand.data is None else self.buffers[operand.data]
        return None if not data and operand.lifetime == "SUBGRAPH_INPUT" else data

    def array_of(self, operand: VectorOperand) -> npt.NDArray[Any] | None:
        """`bytes_of` as a read-only array of the operand's shape."""
        data = self.bytes_of(operand)
        if data is None:
            return None
        return np.frombuffer(data, DTYPES[operand.kind]).reshape(operand.dimensions)


class VectorFile(msgspec.Struct, frozen=True):
    """The content of a vector file."""

    format: int
    spec: str
    folder: str
    tests: tuple[Vector, ...]
    buffers: tuple[bytes, ...]


_DECODER: Final = msgspec.json.Decoder(VectorFile)


def read(path: Path) -> list[Vector]:
    """The tests of one file.

    Raises:
        OSError: the file cannot be read.
        InvalidArgument: it is not a vector file of format 1.
    """
    content = read_regular_file(path)
    try:
        file = _DECODER.decode(gzip.decompress(content))
    except (EOFError, gzip.BadGzipFile, RecursionError, ValueError, zlib.error) as error:
        raise InvalidArgument(f"{path}: not a vector file: {error}") from error
    if file.format != 1:
        raise InvalidArgument(f"{path}: vector format {file.format} is not known, expected 1")
    return [msgspec.structs.replace(test, buffers=file.buffers) for test in file.tests]


def write(path: Path, *vectors: Vector) -> None:
    """Write a file with these tests (at least one) and only the buffers that they use."""
    used: dict[bytes, int] = {}

    def placed(vector: Vector) -> Vector:
        def place(operand: VectorOperand) -> VectorOperand:
            if operand.data is None:
                return operand
            data = vector.buffers[operand.data]
            return msgspec.structs.replace(operand, data=used.setdefault(data, len(used)))

        return msgspec.structs.replace(map_operands(vector, place), buffers=())

    tests = tuple(map(placed, vectors))
    file = VectorFile(1, vectors[0].spec, vectors[0].folder, tests, tuple(used))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(msgspec.json.encode(file), mtime=0))


def map_operands(vector: Vector, change: Callable[[VectorOperand], VectorOperand]) -> Vector:
    """Replace every operand of every graph of a vector by `change(operand)`."""
    main, *referenced = (
        msgspec.structs.replace(graph, operands=tuple(map(change, graph.operands)))
        for graph in vector.graphs
    )
    return msgspec.structs.replace(vector, main=main, referenced=tuple(referenced))


class BuiltModel(msgspec.Struct, frozen=True):
    """A vector as a model.

    Attributes:
        model: the model; with CONSTANT_REFERENCE operands it has one pool.
        pool: the bytes of that pool.
    """

    model: Model
    pool: bytes

    @property
    def pools(self) -> list[bytes]:
        """Bytes of each of the model's pools."""
        return [self.pool] if self.pool else []


def build(vector: Vector) -> BuiltModel:
    """Build the model of a vector."""
    values, pool = bytearray(), bytearray()
    main, *referenced = (_graph(vector, graph, values, pool) for graph in vector.graphs)
    model = Model(
        main=main,
        referenced=tuple(referenced),
        operand_values=bytes(values),
        pools=(MemoryPool(len(pool)),) if pool else (),
        relax_computation_float32_to_float16=vector.relaxed,
    )
    return BuiltModel(model, bytes(pool))


def _graph(vector: Vector, graph: VectorGraph, values: bytearray, pool: bytearray) -> Subgraph:
    return Subgraph(
        operands=tuple(_operand(vector, o, values, pool) for o in graph.operands),
        operations=tuple(
            Operation(OperationType[o.type], o.inputs, o.outputs) for o in graph.operations
        ),
        input_indexes=graph.inputs,
        output_indexes=graph.outputs,
    )


def _operand(vector: Vector, operand: VectorOperand, values: bytearray, pool: bytearray) -> Operand:
    lifetime = OperandLifeTime[operand.lifetime]
    location = DataLocation()
    data = vector.bytes_of(operand) or b""
    if lifetime is OperandLifeTime.SUBGRAPH:
        location = DataLocation(offset=int.from_bytes(data, "little"))
    elif lifetime is OperandLifeTime.CONSTANT_COPY:
        location = _append(values, data)
    elif lifetime is OperandLifeTime.CONSTANT_REFERENCE:
        location = _append(pool, data)
    channels = operand.channel_quant
    return Operand(
        type=operand.kind,
        dimensions=operand.dimensions,
        number_of_consumers=operand.number_of_consumers,
        scale=operand.scale,
        zero_point=operand.zero_point,
        lifetime=lifetime,
        location=location,
        extra_params=None
        if channels is None
        else SymmPerChannelQuantParams(channels.scales, channels.channel_dim),
    )


def _append(memory: bytearray, data: bytes) -> DataLocation:
    memory.extend(b"\0" * (-len(memory) % _ALIGNMENT))
    location = DataLocation(offset=len(memory), length=len(data))
    memory.extend(data)
    return location
