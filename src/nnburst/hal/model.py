"""Defines the HAL's structs of models: operands, operations, subgraphs, pools, and facts about operand types.

The control channel's messages use these structs directly. They have no methods that check or build:
`nnburst.hal.validation` validates, `nnburst.hal.model_builder` builds.

NNAPI: types.hal OperandType, Utils.cpp nonExtensionOperandSizeOfData.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from struct import calcsize
from typing import TYPE_CHECKING, Any, Final

import msgspec

from nnburst.hal import late_numpy as np
from nnburst.hal.enums import FeatureLevel, OperandLifeTime, OperandType
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.limits import OPERAND_TYPE_BASE_MAX, UINT32_MAX


class DataLocation(msgspec.Struct, frozen=True, omit_defaults=True):
    """The place of data: a pool (or `operand_values`), and a byte range in it."""

    pool_index: int = 0
    offset: int = 0
    length: int = 0


class SymmPerChannelQuantParams(msgspec.Struct, frozen=True, tag="channel_quant"):
    """Scales of TENSOR_QUANT8_SYMM_PER_CHANNEL, one per index of dimension `channel_dim`."""

    scales: tuple[float, ...]
    channel_dim: int


class ExtensionParams(msgspec.Struct, frozen=True, tag="extension"):
    """Opaque bytes that belong to an extension operand."""

    data: bytes


ExtraParams = SymmPerChannelQuantParams | ExtensionParams | None
_CONSTANTS: Final = (OperandLifeTime.CONSTANT_COPY, OperandLifeTime.CONSTANT_REFERENCE)


class Operand(msgspec.Struct, frozen=True, omit_defaults=True):
    """One operand of a subgraph.

    Attributes:
        type: an `OperandType`, or a larger value that belongs to an extension.
        dimensions: row-major extents; 0 is unknown; empty is a scalar, or a tensor of unknown rank.
        number_of_consumers: number of times that operations of this subgraph read it.
        scale: quantisation step, a float32 value.
        zero_point: stored value that represents 0.
        lifetime: the source of its value.
        location: place of its value, for constants and SUBGRAPH; all zero otherwise.
        extra_params: per-channel quantisation or extension bytes.
    """

    type: int
    dimensions: tuple[int, ...] = ()
    number_of_consumers: int = 0
    scale: float = 0.0
    zero_point: int = 0
    lifetime: OperandLifeTime = OperandLifeTime.TEMPORARY_VARIABLE
    location: DataLocation = DataLocation()
    extra_params: ExtraParams = None

    @property
    def is_constant(self) -> bool:
        """Whether its value comes with the model, copied or in a pool."""
        return self.lifetime in _CONSTANTS


class Operation(msgspec.Struct, frozen=True):
    """One operation: its type and the indexes of its operands."""

    type: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class Subgraph(msgspec.Struct, frozen=True):
    """Operands, operations in execution order, and the indexes of inputs and outputs."""

    operands: tuple[Operand, ...]
    operations: tuple[Operation, ...]
    input_indexes: tuple[int, ...]
    output_indexes: tuple[int, ...]


class MemoryPool(msgspec.Struct, frozen=True, tag=True, tag_field="kind"):
    """A pool of shared memory: its size in bytes and the index of its fd in the message."""

    size: int
    fd_index: int = 0


class BufferToken(MemoryPool, frozen=True, kw_only=True):
    """A driver's buffer in a request, named by its token; `size` is 0, and no descriptor is sent.

    Also the member of 1.3's and AIDL's unions.
    """

    size: int = 0
    fd_index: int = -1
    token: int


class ExtensionNameAndPrefix(msgspec.Struct, frozen=True):
    """Prefix under which a model uses an extension."""

    name: str
    prefix: int


class Model(msgspec.Struct, frozen=True, omit_defaults=True):
    """A network (1.3 layout, to which older models can be converted).

    Attributes:
        main: the subgraph that is executed.
        referenced: subgraphs used by IF and WHILE, numbered from 0.
        operand_values: values of CONSTANT_COPY operands.
        pools: memory that CONSTANT_REFERENCE operands lie in.
        relax_computation_float32_to_float16: float32 may be computed as float16.
        extension_name_to_prefix: one-to-one map of the extensions used.
    """

    main: Subgraph
    referenced: tuple[Subgraph, ...] = ()
    operand_values: bytes = b""
    pools: tuple[MemoryPool, ...] = ()
    relax_computation_float32_to_float16: bool = False
    extension_name_to_prefix: tuple[ExtensionNameAndPrefix, ...] = ()

    def __repr__(self) -> str:
        return f"<nnburst.Model: {described(self)}>"


def described(model: Model) -> str:
    """Describe a model's size in a few words, since models have thousands of parts."""
    main = model.main
    return (
        f"{len(main.input_indexes)} inputs, {len(main.output_indexes)} outputs,"
        f" {len(main.operations)} operations, {len(main.operands)} operands,"
        f" {len(model.referenced)} further subgraphs"
    )


_T = OperandType

#: Format in `struct` of the elements of each core type with data; little endian, as on the wire.
ELEMENT_CODES: Final[dict[OperandType, str]] = {
    _T.FLOAT32: "f",
    _T.INT32: "i",
    _T.UINT32: "I",
    _T.BOOL: "B",
    _T.FLOAT16: "e",
    _T.TENSOR_FLOAT32: "f",
    _T.TENSOR_INT32: "i",
    _T.TENSOR_QUANT8_ASYMM: "B",
    _T.TENSOR_QUANT16_SYMM: "h",
    _T.TENSOR_FLOAT16: "e",
    _T.TENSOR_BOOL8: "B",
    _T.TENSOR_QUANT8_SYMM_PER_CHANNEL: "b",
    _T.TENSOR_QUANT16_ASYMM: "H",
    _T.TENSOR_QUANT8_SYMM: "b",
    _T.TENSOR_QUANT8_ASYMM_SIGNED: "b",
    _T.TENSOR_OEM_BYTE: "B",
}
#: Bytes of an element of each core type with data.
ELEMENT_BYTES: Final = {kind: calcsize(f"<{code}") for kind, code in ELEMENT_CODES.items()}

if TYPE_CHECKING:
    import numpy.typing as npt

    #: numpy's dtype of the elements of each core type with data; made at its first use.
    DTYPES: dict[OperandType, np.dtype[Any]]

SCALARS: Final = frozenset(
    {_T.FLOAT32, _T.INT32, _T.UINT32, _T.BOOL, _T.FLOAT16, _T.SUBGRAPH, _T.OEM}
)

#: Smallest and largest stored value of every quantised tensor type.
QUANTIZED_RANGES: Final[dict[OperandType, tuple[int, int]]] = {
    _T.TENSOR_QUANT8_ASYMM: (0, 255),
    _T.TENSOR_QUANT8_ASYMM_SIGNED: (-128, 127),
    _T.TENSOR_QUANT8_SYMM: (-128, 127),
    _T.TENSOR_QUANT8_SYMM_PER_CHANNEL: (-128, 127),
    _T.TENSOR_QUANT16_ASYMM: (0, 65535),
    _T.TENSOR_QUANT16_SYMM: (-32768, 32767),
}

#: Version that introduced each core operand type.
INTRODUCED: Final[dict[OperandType, FeatureLevel]] = {
    kind: FeatureLevel.V1_0
    if kind <= _T.TENSOR_QUANT8_ASYMM or kind >= _T.OEM
    else FeatureLevel.V1_2
    if kind <= _T.TENSOR_QUANT8_SYMM
    else FeatureLevel.V1_3
    for kind in OperandType
}


def is_extension(kind: int) -> bool:
    """Whether an operand or operation type belongs to an extension (compared as unsigned 32 bit)."""
    return (kind & UINT32_MAX) > OPERAND_TYPE_BASE_MAX


def is_scalar(kind: OperandType) -> bool:
    """Whether a core type is a scalar (NNAPI: nonExtensionOperandTypeIsScalar)."""
    return kind in SCALARS


def size_bytes(kind: OperandType, dimensions: Sequence[int]) -> int:
    """Bytes of one operand's data; 0 if the size is unknown (a dimension 0, or a tensor of rank 0).

    Python's integers do not overflow, so a size above 2**32 - 1 is returned as it is and refused by
    validation (NNAPI: nonExtensionOperandSizeOfData; DEVIATES: the original aborts on overflow).
    """
    element = ELEMENT_BYTES.get(kind, 0)
    if kind in SCALARS:
        return element
    return element * math.prod(dimensions) if len(dimensions) else 0


def __getattr__(name: str) -> object:
    if name != "DTYPES":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    made = {kind: np.dtype(f"<{code}") for kind, code in ELEMENT_CODES.items()}
    globals()[name] = made
    return made


def refuse_masked(name: str, value: object) -> None:
    """Refuse numpy's masked arrays, whatever their mask: elements without a value cannot be sent.

    Raises:
        InvalidArgument: `value` is a masked array; the message names the argument `name`.
    """
    if type(value) is not np.ndarray and isinstance(value, np.ma.MaskedArray):
        raise InvalidArgument(
            f"{name} is a masked array, whose mask would be lost, expected a plain one such as its"
            " filled() or its data"
        )


def checked_dtype(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """The dtype of elements in shared memory.

    Raises:
        InvalidArgument: numpy knows no such type; or elements contain Python objects, or are arrays, which
            numpy takes apart.
    """
    try:
        kind: np.dtype[Any] = np.dtype(dtype)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"dtype is {dtype!r}: {error}") from None
    if kind.hasobject:
        raise InvalidArgument(f"dtype is {kind}, expected one without objects of Python's")
    if kind.subdtype is not None:
        raise InvalidArgument(f"dtype is {kind}, expected a record with it as a field")
    return kind
