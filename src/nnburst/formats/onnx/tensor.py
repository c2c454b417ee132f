"""Tensors of an ONNX file: where their values lie, and the values as arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nnburst.formats.onnx.wire import Field, Malformed, Message, integers, once, reals, text

Array = npt.NDArray[Any]

#: Element types by their number in a file: a name, and numpy's type if it has one.
ELEMENT_NAMES: Final = (
    "undefined", "float", "uint8", "int8", "uint16", "int16", "int32", "int64", "string", "bool",
    "float16", "double", "uint32", "uint64", "complex64", "complex128", "bfloat16", "float8e4m3fn",
    "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "uint4", "int4", "float4e2m1", "float8e8m0",
    "uint2", "int2",
)  # fmt: skip
DTYPES: Final[dict[str, np.dtype[Any]]] = {
    "float": np.dtype("<f4"),
    "uint8": np.dtype("u1"),
    "int8": np.dtype("i1"),
    "uint16": np.dtype("<u2"),
    "int16": np.dtype("<i2"),
    "int32": np.dtype("<i4"),
    "int64": np.dtype("<i8"),
    "bool": np.dtype("?"),
    "float16": np.dtype("<f2"),
    "double": np.dtype("<f8"),
    "uint32": np.dtype("<u4"),
    "uint64": np.dtype("<u8"),
}
_MOST_RANK: Final = 32


def element_name(number: int) -> str:
    """Name of an element type."""
    return ELEMENT_NAMES[number] if 0 <= number < len(ELEMENT_NAMES) else f"type {number}"


@dataclass(slots=True)
class TensorProto:
    """A tensor of the file.

    Attributes:
        name: of the tensor.
        element: name of its element type.
        shape: its extents; empty for a scalar.
        external: how another file's bytes are named, if they are there.
    """

    name: str = ""
    element: str = "undefined"
    shape: tuple[int, ...] = ()
    external: Mapping[str, str] = field(default_factory=dict)
    is_external: bool = False
    _raw: memoryview | None = None
    _reals: Array | None = None
    _integers: list[int] = field(default_factory=list)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the elements.

        Raises:
            Malformed: numpy has no such type.
        """
        found = DTYPES.get(self.element)
        if found is None:
            raise Malformed(f"tensor {self.name!r} has the unknown type {self.element}")
        return found

    @property
    def elements(self) -> int:
        """How many."""
        return math.prod(self.shape)

    def array(self, external: Callable[[TensorProto], memoryview]) -> Array:
        """The value, read-only: a view of the file if its bytes lie there.

        Args:
            external: gives the bytes of one whose values lie elsewhere.

        Raises:
            InvalidArgument: the values are not as many as the shape has.
        """
        raw = external(self) if self.is_external else self._raw
        if raw is not None:
            size = self.elements * self.dtype.itemsize
            if len(raw) != size:
                raise Malformed(f"tensor {self.name!r} has {len(raw)} bytes, expected {size}")
            found = np.frombuffer(raw, self.dtype)
        elif self._reals is not None:
            found = self._reals.astype(self.dtype, copy=False)
        else:
            found = self._from_integers()
        if found.size != self.elements:
            raise Malformed(f"tensor {self.name!r} has {found.size} of {self.elements} values")
        found = found.reshape(self.shape)
        found.flags.writeable = False
        return found

    def _from_integers(self) -> Array:
        if self.element == "float16":
            return np.array(self._integers, np.int64).astype(np.uint16).view("<f2")
        if self.element == "uint64":
            return np.array(self._integers, np.int64).view(np.uint64)
        return np.array(self._integers, np.int64).astype(self.dtype)


def read_tensor(message: Message) -> TensorProto:
    """A TensorProto."""
    message.budget.spend(1024)
    found = TensorProto()
    dims: list[int] = []
    external: dict[str, str] = {}
    for entry in message.fields():
        if entry.number == 1:
            dims += integers(entry, message.budget)
        elif entry.number == 2:
            found.element = element_name(entry.integer)
        elif entry.number == 8:
            found.name = text(entry, message.budget)
        elif entry.number == 9:
            if not entry.packed:
                raise Malformed("the raw data of a tensor is a number, expected bytes")
            found._raw = entry.view
        elif entry.number == 13:
            key, value = read_pair(message.inner(entry))
            once(f"{key!r} of a tensor's other file", external.get(key))
            external[key] = value
        elif entry.number == 14:
            found.is_external = entry.integer & 0xFFFFFFFF != 0
        else:
            _read_values(found, entry, message)
    if len(dims) > _MOST_RANK or any(extent < 0 for extent in dims):
        raise Malformed(f"tensor {found.name!r} has the impossible shape {dims[:_MOST_RANK]}")
    found.shape, found.external = tuple(dims), external
    return found


def _read_values(tensor: TensorProto, entry: Field, message: Message) -> None:
    """Values that are not bytes: numbers of their own."""
    if entry.number in (4, 10):
        tensor._reals = _more(
            tensor._reals, reals(entry, "<f4" if entry.number == 4 else "<f8"), message
        )
    elif entry.number in (5, 7, 11):
        tensor._integers += integers(entry, message.budget)


def _more(before: Array | None, new: Array, message: Message) -> Array:
    """Numbers that come in several fields."""
    if before is None:
        return new
    message.budget.spend(before.nbytes + new.nbytes)
    return np.concatenate([before, new])


def read_pair(message: Message) -> tuple[str, str]:
    """A StringStringEntryProto."""
    key = value = ""
    for entry in message.fields():
        if entry.number == 1:
            key = text(entry, message.budget)
        elif entry.number == 2:
            value = text(entry, message.budget)
    return key, value
