"""Constants: read late, converted one at a time, large ones into one pool.

A constant stays a description of bytes in the file until an operation uses it. So folding
(DEQUANTIZE, DENSIFY, 64-bit integers) costs nothing for what is dropped, and at most one converted
copy lies in memory beside the pool.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nnburst.hal.enums import OperandLifeTime, OperandType
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.limits import INT32_MAX
from nnburst.hal.model import DataLocation, SymmPerChannelQuantParams
from nnburst.hal.operand_types import DTYPES
from nnburst.importer.refused import Refused
from nnburst.importer.tflite.reader import File, Malformed
from nnburst.importer.tflite.sparse import dense_cost, densify
from nnburst.importer.tflite.tensors import TensorType, element_type, tensor_type
from nnburst.importer.tflite.tflite_file import TfliteFile

Array = npt.NDArray[Any]

#: NNAPI: ANEURALNETWORKS_MAX_SIZE_OF_IMMEDIATELY_COPIED_VALUES; larger constants go into the pool.
_LARGEST_COPY: Final = 128
#: What engines ask of the address of a constant.
_ALIGNMENT: Final = 64

_STORED: Final[dict[str, np.dtype[Any]]] = {
    "INT64": np.dtype("<i8"),
    "FLOAT64": np.dtype("<f8"),
    "INT4": np.dtype("u1"),
}


@dataclass(frozen=True, slots=True)
class Constant:
    """A value that the file holds.

    Attributes:
        type: the operand that it becomes.
        read: makes the array, of the operand's element type and shape; it may be a view of the file.
        cost: bytes that `read` allocates at most.
        key: equal for constants with equal bytes; None for ones that are not shared.
        name: of the tensor, for messages.
    """

    type: TensorType
    read: Callable[[], Array]
    cost: int
    key: Hashable = None
    name: str = ""

    @property
    def size(self) -> int:
        """Bytes of the value."""
        return self.type.elements * DTYPES[self.type.type].itemsize

    def retyped(self, kind: TensorType) -> Constant:
        """The same bytes as an operand of another type with elements of the same size."""
        return replace(self, type=kind, read=lambda: self.read().reshape(kind.dimensions))


def constant_of(kind: TensorType, values: npt.ArrayLike) -> Constant:
    """A small constant that the importer makes up itself."""
    array = np.asarray(values, DTYPES[kind.type]).reshape(kind.dimensions)
    return Constant(kind, lambda: array, 0)


def integers(values: npt.ArrayLike) -> Constant:
    """A TENSOR_INT32 constant of one dimension."""
    array = np.asarray(values, np.int32).reshape(-1)
    return constant_of(TensorType(OperandType.TENSOR_INT32, array.shape), array)


def constant_tensor(file: TfliteFile, tensor: Any) -> Constant | None:  # noqa: ANN401 - generated code
    """The value of a tensor of the file; None where it is computed.

    Raises:
        InvalidArgument: it does not fit its type, or NNAPI has no such operand.
    """
    if tensor.ExternalBuffer():
        raise Refused("its data lies in another file")
    data = file.buffer(tensor.Buffer())
    if not len(data) or tensor.IsVariable():
        return None
    kind = tensor_type(file.bytes, tensor, constant=True)
    name = element_type(tensor)
    key = (tensor.Buffer(), name, kind.dimensions)
    if (sparsity := tensor.Sparsity()) is not None:
        if name not in ("FLOAT32", "FLOAT16", "INT8"):
            raise Refused(f"sparse {name}: expected FLOAT32, FLOAT16 or INT8")
        dtype = DTYPES[kind.type]
        if len(data) % dtype.itemsize:
            raise Malformed(f"sparse {name} values take {len(data)} bytes")
        stored = data.view(dtype)
        return Constant(
            kind,
            lambda: densify(sparsity, stored, kind.dimensions),
            dense_cost(kind.dimensions, stored),
            (*key, sparsity._tab.Pos),  # which tree it is: two of them make different matrices
        )
    return _dense(name, kind, data, key)


def _dense(name: str, kind: TensorType, data: npt.NDArray[np.uint8], key: Hashable) -> Constant:
    dtype = _STORED.get(name, DTYPES[kind.type])
    expected = (kind.elements + 1) // 2 if name == "INT4" else kind.elements * dtype.itemsize
    if len(data) != expected:
        raise Malformed(f"a constant has {len(data)} bytes, its shape says {expected}")
    stored = data.view(dtype)
    convert = _CONVERSIONS.get(name)
    if convert is None:
        return Constant(kind, lambda: stored.reshape(kind.dimensions), 0, key)
    return Constant(
        kind, lambda: convert(stored, kind).reshape(kind.dimensions), 4 * len(data), key
    )


def _narrow(stored: Array, kind: TensorType) -> Array:  # noqa: ARG001
    """64-bit integers as 32-bit ones."""
    if stored.max() > INT32_MAX or stored.min() < -INT32_MAX - 1:
        raise Refused("a 64-bit integer does not fit 32 bits")
    return stored.astype(np.int32)


def _nibbles(stored: Array, kind: TensorType) -> Array:
    """Two 4-bit integers of every byte, the lower half first."""
    both = np.empty((len(stored), 2), np.int8)
    np.left_shift(stored, 4, out=both[:, 0].view(np.uint8))
    both[:, 1] = stored.view(np.int8)
    both >>= 4
    return both.reshape(-1)[: kind.elements]


_CONVERSIONS: Final[dict[str, Callable[[Array, TensorType], Array]]] = {
    "INT64": _narrow,
    "FLOAT64": lambda stored, _: stored.astype(np.float32),
    "INT4": _nibbles,
    "BOOL": lambda stored, _: (stored != 0).astype(np.uint8),
}


def dequantized(constant: Constant) -> Constant:
    """The real numbers of a quantised or float16 constant, as float32."""
    kind = constant.type
    real = TensorType(OperandType.TENSOR_FLOAT32, kind.dimensions)

    def read() -> Array:
        stored = constant.read()
        if kind.is_float:
            return stored.astype(np.float32)
        scales: Array | np.float32 = np.float32(kind.scale)
        if isinstance(kind.extra_params, SymmPerChannelQuantParams):
            shape = [1] * len(kind.dimensions)
            shape[kind.extra_params.channel_dim] = -1
            scales = np.array(kind.extra_params.scales, np.float32).reshape(shape)
        values = stored.astype(np.float32)
        values -= np.float32(kind.zero_point)
        values *= scales
        return values

    key = None if constant.key is None else ("float32", constant.key, kind)
    return Constant(real, read, constant.cost + 4 * kind.elements, key, constant.name)


class ConstantPool:
    """Where the constants of a model go: small ones into `operand_values`, large ones into a pool.

    Attributes:
        values: the model's operand_values.
    """

    def __init__(self, file: File) -> None:
        """`file` is charged for them."""
        self.values = bytearray()
        self._file = file
        self._large: list[tuple[int, Constant]] = []
        self._size = 0
        self._places: dict[Hashable, DataLocation] = {}

    def place(self, constant: Constant) -> tuple[OperandLifeTime, DataLocation]:
        """Find room for a constant."""
        if constant.size <= _LARGEST_COPY:
            return OperandLifeTime.CONSTANT_COPY, self.copy(self.read(constant).tobytes())
        if constant.key is not None and constant.key in self._places:
            return OperandLifeTime.CONSTANT_REFERENCE, self._places[constant.key]
        offset = self._size + -self._size % _ALIGNMENT
        self._file.spend(offset + constant.size - self._size)
        self._size = offset + constant.size
        self._large.append((offset, constant))
        location = DataLocation(0, offset, constant.size)
        if constant.key is not None:
            self._places[constant.key] = location
        return OperandLifeTime.CONSTANT_REFERENCE, location

    def copy(self, data: bytes) -> DataLocation:
        """Append a small value to `values`."""
        self.values.extend(b"\0" * (-len(self.values) % 16))
        self.values.extend(data)
        return DataLocation(0, len(self.values) - len(data), len(data))

    def charge(self, size: int) -> None:
        """Charge the file for `size` bytes that are kept elsewhere."""
        self._file.spend(size)

    def read(self, constant: Constant) -> Array:
        """The value of a constant that is kept nowhere."""
        self._file.spend(constant.cost)
        try:
            with np.errstate(all="ignore"):  # numbers may be anything
                array = constant.read()
        except (Malformed, Refused) as error:
            raise InvalidArgument(f"{constant.name}: {error}") from None
        self._file.give_back(constant.cost)
        return array

    def fill(self) -> tuple[npt.NDArray[np.uint8], ...]:
        """The bytes of the model's pools, read-only: one, or none where nothing is large."""
        if not self._size:
            return ()
        pool = np.zeros(self._size, np.uint8)
        for offset, constant in self._large:
            part = pool[offset : offset + constant.size].view(DTYPES[constant.type.type])
            part.reshape(constant.type.dimensions)[...] = self.read(constant)
        pool.flags.writeable = False
        return (pool,)
