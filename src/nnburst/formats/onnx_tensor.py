"""Reads the tensors of an ONNX file as arrays; their values may be in external data files."""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nnburst.formats.budget import Budget
from nnburst.formats.protobuf import Field, Malformed, Message, integers, once, text
from nnburst.hal.errors import InvalidArgument

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
        name: name of the tensor.
        element: name of its element type.
        shape: its extents; empty for a scalar.
        external: entries that name another file and a range of it, if the values lie there.
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
        """Numpy's type of the elements.

        Raises:
            Malformed: numpy has no such type.
        """
        found = DTYPES.get(self.element)
        if found is None:
            raise Malformed(f"tensor {self.name!r} has the unknown type {self.element}")
        return found

    @property
    def elements(self) -> int:
        """The number of its elements."""
        return math.prod(self.shape)

    @property
    def converted(self) -> int:
        """The most bytes that `array` allocates: none if the value is a view of a file."""
        if self._raw is not None or self.is_external:
            return 0
        return 16 * (len(self._integers) if self._reals is None else self._reals.size)

    def array(self, external: Callable[[TensorProto], memoryview]) -> Array:
        """The value, read-only: a view of the file if it has the value's bytes.

        Args:
            external: returns the bytes of a tensor whose values are in another file.

        Raises:
            InvalidArgument: the number of values does not fit the shape.
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


def reals(field: Field, dtype: npt.DTypeLike) -> npt.NDArray[np.generic]:
    """The floating-point numbers of a repeated field, which may be packed: a view of the file."""
    kind = np.dtype(dtype)
    if len(field.view) % kind.itemsize or (not field.packed and len(field.view) != kind.itemsize):
        raise Malformed(f"field {field.number} has {len(field.view)} bytes of {kind}")
    return np.frombuffer(field.view, kind)


def read_tensor(message: Message) -> TensorProto:
    """Parse a TensorProto."""
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
    """Read values that are stored as numbers, not as raw bytes."""
    if entry.number in (4, 10):
        tensor._reals = _more(
            tensor._reals, reals(entry, "<f4" if entry.number == 4 else "<f8"), message
        )
    elif entry.number in (5, 7, 11):
        tensor._integers += integers(entry, message.budget)


def _more(before: Array | None, new: Array, message: Message) -> Array:
    """Join numbers that are stored in several fields."""
    if before is None:
        return new
    message.budget.spend(before.nbytes + new.nbytes)
    return np.concatenate([before, new])


def read_pair(message: Message) -> tuple[str, str]:
    """Parse a StringStringEntryProto."""
    key = value = ""
    for entry in message.fields():
        if entry.number == 1:
            key = text(entry, message.budget)
        elif entry.number == 2:
            value = text(entry, message.budget)
    return key, value


# -- Values in external data files -----------------------------------------------------------------
# A file from an unknown source names other files. So only a regular file inside its own directory is
# read, with no link on the way to it, each opened relative to the directory that was opened before.


def file_name(location: str) -> str:
    """A tensor's location without `./` before it, which onnxruntime takes for the same name."""
    while location.startswith("./"):
        location = location[2:].lstrip("/")
    return location


class ExternalData:
    """The external data files of an ONNX file, each read once. Not thread-safe."""

    def __init__(
        self, directory: Path | None, budget: Budget, files: Mapping[str, memoryview] | None = None
    ) -> None:
        """Begin without files read.

        Args:
            directory: directory of the ONNX file; None for one that is given as bytes.
            budget: budget of the ONNX file.
            files: bytes of files that are given with it, by the names that it has for them.
        """
        self._directory = directory
        self._budget = budget
        self._read: dict[str, memoryview] = {}  # by `file_name`
        for name, content in (files or {}).items():
            self._keep(name, content)

    def bytes_of(self, tensor: TensorProto) -> memoryview:
        """The bytes of a tensor's values.

        Raises:
            InvalidArgument: the file may not be read, or has too few bytes.
        """
        content = self.file_of(tensor)
        offset, length = _number(tensor, "offset", 0), _number(tensor, "length", -1)
        length = tensor.elements * tensor.dtype.itemsize if length < 0 else length
        if offset + length > len(content):
            raise InvalidArgument(
                f"{_place(tensor)}, whose {len(content)} bytes end before it does"
            )
        return content[offset : offset + length]

    def file_of(self, tensor: TensorProto) -> memoryview:
        """The whole file that a tensor's values lie in.

        Raises:
            InvalidArgument: the file may not be read.
        """
        what = _place(tensor)
        location = _location(tensor)
        content = self._read.get(file_name(location))
        if content is not None:
            return content
        if self._directory is None:
            raise InvalidArgument(
                f"{what}, but the network came as bytes: give the path of its file"
            )
        return self._keep(location, memoryview(_contents(self._directory, location, what)))

    def _keep(self, name: str, content: memoryview) -> memoryview:
        self._read[file_name(name)] = content
        self._budget.extend(len(content))
        self._budget.spend(len(content))
        return content


def _location(tensor: TensorProto) -> str:
    """The network's name for the file with a tensor's values."""
    return tensor.external.get("location", "")


def _place(tensor: TensorProto) -> str:
    """Names of a tensor and its file, for messages."""
    return f"tensor {tensor.name!r} lies in {_location(tensor)!r}"


def _number(tensor: TensorProto, key: str, default: int) -> int:
    value = tensor.external.get(key)
    if value is None:
        return default
    if not (value.isascii() and value.isdigit() and len(value) < 20):
        raise InvalidArgument(
            f"tensor {tensor.name!r}: {key} {value!r}, expected a number of bytes"
        )
    return int(value)


def _contents(directory: Path, location: str, what: str) -> bytes:
    parts = PurePosixPath(location).parts
    if not parts or location.startswith("/") or ".." in parts or "\0" in location:
        raise InvalidArgument(f"{what}, expected a file below the network's own directory")
    here = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts[:-1]:
            flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            inner = os.open(part, flags, dir_fd=here)
            os.close(here)
            here = inner
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(parts[-1], flags, dir_fd=here)
    except OSError as error:
        raise InvalidArgument(f"{what}, which cannot be opened: {error.strerror}") from error
    finally:
        os.close(here)
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise InvalidArgument(f"{what}, which is not a regular file")
        return file.read()
