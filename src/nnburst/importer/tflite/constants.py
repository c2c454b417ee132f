"""Constants of a .tflite file: views of its bytes, converted if NNAPI has no such type."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nnburst.formats.tflite.reader import MalformedTflite
from nnburst.hal.limits import INT32_MAX
from nnburst.hal.operand_types import DTYPES
from nnburst.importer.constants import Constant
from nnburst.importer.refused import Refused
from nnburst.importer.tensor_type import TensorType
from nnburst.importer.tflite.sparse import dense_cost, densify
from nnburst.importer.tflite.tensors import element_type, tensor_type
from nnburst.importer.tflite.tflite_file import TfliteFile

Array = npt.NDArray[Any]

_STORED: Final[dict[str, np.dtype[Any]]] = {
    "INT64": np.dtype("<i8"),
    "FLOAT64": np.dtype("<f8"),
    "INT4": np.dtype("u1"),
}


def constant_tensor(file: TfliteFile, tensor: Any) -> Constant | None:  # noqa: ANN401 - generated code
    """The value of a tensor of the file; None if it is computed.

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
            raise MalformedTflite(f"sparse {name} values take {len(data)} bytes")
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
        raise MalformedTflite(
            f"a constant has {len(data)} bytes, expected {expected} from its shape"
        )
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
