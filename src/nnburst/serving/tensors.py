"""Converts requests of KServe v2 to arrays and arrays to responses, and checks every field.

KServe's data types are mapped to NNAPI's. Quantised tensors are sent as their integers; scale and zero point
are in the model's configuration. INT64, UINT64, FP64 and BF16 are types of whole graphs; BYTES has no
counterpart and is refused by name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nnburst.hal.errors import InvalidArgument
from nnburst.serving.regions import UserRegions, required


@dataclass(frozen=True)
class DataType:
    """A data type of KServe that tensors of models can have.

    Attributes:
        name: name of the type in requests.
        dtype: dtype of arrays, little-endian.
        contents: field of `InferTensorContents`; empty for types that are sent only as raw bytes.
    """

    name: str
    dtype: np.dtype[Any]
    contents: str


_ALL: Final = (
    DataType("BOOL", np.dtype(np.bool_), "bool_contents"),
    DataType("UINT8", np.dtype("u1"), "uint_contents"),
    DataType("INT8", np.dtype("i1"), "int_contents"),
    DataType("UINT16", np.dtype("<u2"), "uint_contents"),
    DataType("INT16", np.dtype("<i2"), "int_contents"),
    DataType("UINT32", np.dtype("<u4"), "uint_contents"),
    DataType("INT32", np.dtype("<i4"), "int_contents"),
    DataType("UINT64", np.dtype("<u8"), "uint64_contents"),
    DataType("INT64", np.dtype("<i8"), "int64_contents"),
    DataType("FP16", np.dtype("<f2"), ""),
    DataType("FP32", np.dtype("<f4"), "fp32_contents"),
    DataType("FP64", np.dtype("<f8"), "fp64_contents"),
)
_BY_DTYPE: Final[Mapping[np.dtype[Any], DataType]] = {kind.dtype: kind for kind in _ALL}


#: The dtype of JSON's numbers, by KServe's type names; BF16 is converted from FP32.
DATA_TYPES: Final[Mapping[str, np.dtype[Any]]] = {
    **{kind.name: kind.dtype for kind in _ALL},
    "BF16": np.dtype("<f4"),
}


def data_type(dtype: np.dtype[Any], element: str = "") -> DataType:
    """KServe's type for arrays of `dtype`; `element` is the element type of `Parameter`.

    Raises:
        InvalidArgument: there is no such type, as for most types of extensions.
    """
    if element == "bfloat16":
        return DataType("BF16", dtype, "")
    if dtype not in _BY_DTYPE:
        raise InvalidArgument(f"tensors of {dtype} cannot be served: KServe has no such type")
    return _BY_DTYPE[dtype]


Message = Any


Array = npt.NDArray[Any]
#: Shape and bytes of an output.
Value = tuple[tuple[int, ...], bytes]
#: Parameters of tensors that change the answer. Unknown ones are ignored, as the protocol requires.
_REFUSED: Final = ("classification",)


@dataclass(frozen=True)
class Tensor:
    """One input or output of a served model.

    Attributes:
        name: name in requests.
        kind: data type.
        shape: extents; -1 is open. Empty is a scalar, for which requests have shape [] or [1]; None is any
            shape.
        scale: scale of quantised tensors; 0 for others.
        zero_point: zero point of quantised tensors; 0 for others.
    """

    name: str
    kind: DataType
    shape: tuple[int, ...] | None
    scale: float = 0.0
    zero_point: int = 0

    @property
    def is_open(self) -> bool:
        """Whether requests choose extents."""
        return self.shape is None or -1 in self.shape

    @property
    def described(self) -> list[int]:
        """The shape for descriptions: a scalar has [1], a tensor of any shape [-1]."""
        return [-1] if self.shape is None else list(self.shape) or [1]

    def check_shape(self, given: Sequence[int]) -> tuple[int, ...]:
        """The shape of the array for a tensor that is sent with shape `given`.

        Raises:
            InvalidArgument: the shape does not fit this tensor.
        """
        shape = tuple(given)
        if self.shape == () and shape in ((), (1,)):
            return ()
        wanted = (-1,) * max(1, len(shape)) if self.shape is None else self.shape
        if len(shape) != len(wanted) or any(
            extent <= 0 or each not in (-1, extent)
            for extent, each in zip(shape, wanted, strict=True)
        ):
            raise InvalidArgument(
                f"input {self.name!r} has shape {list(shape)}, expected {list(wanted)}"
                + (", with 1 or more for each -1" if -1 in wanted else "")
            )
        return shape

    def check_size(self, shape: tuple[int, ...], size: int) -> None:
        """Check that `size` is the number of bytes of a tensor of this shape.

        Raises:
            InvalidArgument: there are more or fewer bytes.
        """
        wanted = math.prod(shape) * self.kind.dtype.itemsize
        if size != wanted:
            raise InvalidArgument(f"input {self.name!r} has {size} bytes, expected {wanted}")

    def array(self, shape: tuple[int, ...], raw: bytes) -> Array:
        """Make an array from little-endian bytes in row-major order.

        Raises:
            InvalidArgument: there are more or fewer bytes than the shape has.
        """
        self.check_size(shape, len(raw))
        if self.kind.name == "BOOL":  # any byte other than 0 is true
            return np.not_equal(np.frombuffer(raw, np.uint8), 0).reshape(shape)
        return np.frombuffer(raw, self.kind.dtype).reshape(shape)

    def typed(self, shape: tuple[int, ...], contents: Message) -> Array:
        """Make an array from an `InferTensorContents`.

        Raises:
            InvalidArgument: another field than this type's is filled, or values do not fit.
        """
        if not self.kind.contents:
            raise InvalidArgument(
                f"input {self.name!r}: {self.kind.name} is accepted as raw contents only"
            )
        others = [
            field.name for field, _ in contents.ListFields() if field.name != self.kind.contents
        ]
        values = getattr(contents, self.kind.contents)
        if others or len(values) != math.prod(shape):
            raise InvalidArgument(
                f"input {self.name!r} has {len(values)} {self.kind.contents} and {others},"
                f" expected {math.prod(shape)} {self.kind.contents}"
            )
        whole = self.kind.dtype.kind in "iu" and self.kind.dtype.itemsize < 8
        wide = np.array(values, np.int64 if whole else self.kind.dtype)
        array = wide.astype(self.kind.dtype)
        if whole and not np.array_equal(array, wide):
            raise InvalidArgument(
                f"input {self.name!r} has values outside the range of {self.kind.name}"
            )
        return array.reshape(shape)


@dataclass(frozen=True)
class Wanted:
    """An output that a request asks for.

    Attributes:
        index: index among the model's outputs.
        region: name of the shared memory for the output; empty to send it by value.
        offset: offset in bytes.
        size: size of the room in bytes.
    """

    index: int
    region: str = ""
    offset: int = 0
    size: int = 0


def value_of(array: Array) -> Value:
    """An output as shape and bytes; a copy, so the array may change afterwards."""
    return array.shape, array.tobytes()


def read_inputs(
    request: Message, tensors: Sequence[Tensor], regions: UserRegions | None
) -> list[Array]:
    """Read the inputs of a ModelInferRequest, in the model's order.

    Args:
        request: the received message.
        tensors: the model's inputs.
        regions: registered shared memory; None if the caller may not use any.

    Raises:
        InvalidArgument: the message names the input and the rule.
    """
    arrays: dict[str, Array] = {}
    by_name = {tensor.name: tensor for tensor in tensors}
    raw = iter(request.raw_input_contents)
    has_raw = bool(request.raw_input_contents)
    for given in request.inputs:
        tensor = by_name.get(given.name)
        if tensor is None or given.name in arrays:
            raise InvalidArgument(
                f"input {given.name!r} comes twice or is not one of {list(by_name)}"
            )
        if given.datatype != tensor.kind.name:
            raise InvalidArgument(
                f"input {given.name!r} has datatype {given.datatype!r}, expected {tensor.kind.name}"
            )
        shape = tensor.check_shape(given.shape)
        placed = _place(given, regions)
        if placed is not None and regions is not None:
            # Before memory of that size is filled: a region may be sparse and of any size.
            tensor.check_size(shape, placed[2])
            if tensor.is_open:
                regions.check_open_size(placed[2])
            arrays[given.name] = tensor.array(shape, regions.read(*placed))
        elif has_raw:
            data = next(raw, None)
            if data is None or given.HasField("contents"):
                raise InvalidArgument(
                    f"input {given.name!r}: raw contents must be given for all inputs or none"
                )
            arrays[given.name] = tensor.array(shape, data)
        else:
            arrays[given.name] = tensor.typed(shape, given.contents)
    if next(raw, None) is not None:
        raise InvalidArgument("raw_input_contents: more entries than inputs")
    if missing := [name for name in by_name if name not in arrays]:
        raise InvalidArgument(f"inputs: {missing} are missing")
    return [arrays[tensor.name] for tensor in tensors]


def wanted_outputs(
    request: Message, tensors: Sequence[Tensor], regions: UserRegions | None
) -> list[Wanted]:
    """The outputs that a request asks for: all, unless it names some.

    Raises:
        InvalidArgument: an output is unknown, listed twice, or asks for something unsupported.
    """
    if not request.outputs:
        return [Wanted(index) for index in range(len(tensors))]
    indexes = {tensor.name: index for index, tensor in enumerate(tensors)}
    found: list[Wanted] = []
    for given in request.outputs:
        if given.name not in indexes:
            raise InvalidArgument(f"output {given.name!r} comes twice or is not one of the model's")
        placed = _place(given, regions)
        for name in _REFUSED:
            if name in given.parameters:
                raise InvalidArgument(f"output {given.name!r}: {name} is not supported")
        found.append(Wanted(indexes.pop(given.name), *(placed or ())))
    return found


def write_outputs(
    response: Message,
    wanted: Sequence[Wanted],
    tensors: Sequence[Tensor],
    values: Mapping[int, Value],
    regions: UserRegions | None,
) -> None:
    """Add outputs to a response, by value or into their regions.

    Raises:
        InvalidArgument: a region has not enough room, or two outputs have the same bytes of one.
    """
    written = sorted(
        (
            each.region,
            each.offset,
            each.offset + len(values[each.index][1]),
            tensors[each.index].name,
        )
        for each in wanted
        if each.region
    )
    for (region, _, end, name), (other, start, _, next_name) in pairwise(written):
        if region == other and start < end:
            raise InvalidArgument(
                f"outputs {name!r} and {next_name!r} overlap in {region!r}, expected places of their own"
            )
    for each in wanted:
        shape, data = values[each.index]
        output = response.outputs.add()
        output.name = tensors[each.index].name
        output.datatype = tensors[each.index].kind.name
        output.shape.extend(shape)
        if each.region and regions is not None:
            if len(data) > each.size:
                raise InvalidArgument(
                    f"output {output.name!r} has {len(data)} bytes, its region has room for {each.size}"
                )
            regions.write(each.region, each.offset, data)
            output.parameters["shared_memory_region"].string_param = each.region
            output.parameters["shared_memory_byte_size"].int64_param = len(data)
            output.parameters["shared_memory_offset"].int64_param = each.offset
        else:
            response.raw_output_contents.append(data)


def _place(given: Message, regions: UserRegions | None) -> tuple[str, int, int] | None:
    """Region, offset and size that a tensor names; None for a tensor by value."""
    if not given.parameters or "shared_memory_region" not in given.parameters:
        return None
    required(regions, given.name)
    parameters = given.parameters
    kind = parameters["shared_memory_region"].WhichOneof("parameter_choice")
    region: Any = getattr(parameters["shared_memory_region"], kind) if kind else None
    if kind != "string_param" or not region:
        raise InvalidArgument(
            f"{given.name!r}: shared_memory_region: {region!r}, expected the name of a region"
        )
    if "shared_memory_byte_size" not in parameters:
        raise InvalidArgument(f"{given.name!r}: shared_memory_byte_size is missing")
    offset = whole_number(parameters, "shared_memory_offset", given.name)
    size = whole_number(parameters, "shared_memory_byte_size", given.name)
    return region, offset, size


def whole_number(parameters: Message, name: str, tensor: str = "") -> int:
    """The integer of a parameter; 0 without the parameter.

    Args:
        parameters: the parameters of a request or of a tensor.
        name: name of the parameter.
        tensor: name of the tensor, for the message; empty for parameters of a request.

    Raises:
        InvalidArgument: the parameter is not an integer.
    """
    if name not in parameters:  # reading a missing key would add it
        return 0
    kind = parameters[name].WhichOneof("parameter_choice")
    word: Any = getattr(parameters[name], kind) if kind else None
    if kind not in ("int64_param", "uint64_param"):
        where = f"{tensor!r}: " if tensor else ""
        raise InvalidArgument(f"{where}{name}: {word!r}, expected an integer")
    return int(word)
