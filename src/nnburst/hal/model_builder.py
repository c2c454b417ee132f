"""Builds a `Model` step by step, so that callers need not count indexes.

builder = ModelBuilder()
x = builder.input(OperandType.TENSOR_FLOAT32, (1, 4))
w = builder.constant(OperandType.TENSOR_FLOAT32, numpy.ones(4, "f4"))
act = builder.scalar(0)
y = builder.output(OperandType.TENSOR_FLOAT32, (1, 4))
builder.operation(OperationType.ADD, [x, w, act], [y])
model = builder.build()
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from nnburst.hal.enums import OperandLifeTime, OperandType
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.extensions import extension_code, is_extension_name
from nnburst.hal.limits import UINT16_MAX
from nnburst.hal.model import (
    DTYPES,
    DataLocation,
    ExtensionNameAndPrefix,
    ExtraParams,
    MemoryPool,
    Model,
    Operand,
    Operation,
    Subgraph,
    refuse_masked,
)
from nnburst.hal.utils import as_float, check_integer, check_integers, is_number

#: Constants start at multiples of this in `operand_values`, so that their arrays are aligned.
_ALIGNMENT = 16


def _scale(scale: float) -> float:
    if not is_number(scale):
        raise InvalidArgument(f"scale is {scale!r}, expected a number")
    return as_float(scale)


def _fits(given: npt.NDArray[Any], dtype: np.dtype[Any]) -> bool:
    """Whether no number of an array is beyond an integer type, which numpy would wrap around."""
    if dtype.kind not in "iu" or given.dtype.kind not in "iuf" or not given.size:
        return True
    if np.can_cast(given.dtype, dtype):
        return True
    kept = np.iinfo(dtype)
    # Fractions are cut off, so every number below the integer behind the greatest one fits; NaN does not.
    return bool(kept.min - 1 < given.min().item() and given.max().item() < kept.max + 1)


def _elements(name: str, values: object, kind: int) -> npt.NDArray[Any]:
    """The elements of a constant, cast to the type of an operand.

    Raises:
        InvalidArgument: `kind` has no elements, or the values are no array of real numbers that fit it.
    """
    dtype = DTYPES.get(OperandType(kind)) if kind in tuple(OperandType) else None
    if dtype is None:
        raise InvalidArgument(f"kind is {kind!r}, expected an OperandType with elements")
    refuse_masked(name, values)
    try:
        given = np.asarray(values)
        is_whole = given.dtype != object or not any(each is None for each in given.flat)
        if given.dtype.kind in "USMmc" or not is_whole:
            reason = f"expected real numbers, not {given.dtype}"
        elif _fits(given, dtype):
            return np.asarray(values, dtype=dtype)
        else:
            reason = f"numbers from {given.min()} to {given.max()} do not fit {dtype}"
    except (TypeError, ValueError, OverflowError) as error:
        reason = str(error)
    raise InvalidArgument(f"{name} is {values!r}: {reason}")


class SubgraphBuilder:
    """Collects the operands and operations of one subgraph. Not thread-safe."""

    def __init__(self, values: bytearray) -> None:
        """Create an empty subgraph; `values` receives constants, and all subgraphs of a model share it."""
        self._values = values
        self._operands: list[Operand] = []
        self._operations: list[Operation] = []
        self._inputs: list[int] = []
        self._outputs: list[int] = []

    def __repr__(self) -> str:
        counts = f"{len(self._operands)} operands, {len(self._operations)} operations"
        return f"<nnburst {type(self).__name__}: {counts}>"

    def operand(self, operand: Operand) -> int:
        """Add an operand without a change, and return its index."""
        self._operands.append(operand)
        index = len(self._operands) - 1
        if operand.lifetime == OperandLifeTime.SUBGRAPH_INPUT:
            self._inputs.append(index)
        elif operand.lifetime == OperandLifeTime.SUBGRAPH_OUTPUT:
            self._outputs.append(index)
        return index

    def _typed(
        self,
        lifetime: OperandLifeTime,
        kind: int,
        dimensions: Sequence[int],
        scale: float,
        zero_point: int,
        extra_params: ExtraParams,
    ) -> int:
        return self.operand(
            Operand(
                type=check_integer("kind", kind),
                dimensions=check_integers("dimensions", dimensions),
                scale=_scale(scale),
                zero_point=check_integer("zero_point", zero_point),
                lifetime=lifetime,
                extra_params=extra_params,
            )
        )

    def input(
        self,
        kind: int,
        dimensions: Sequence[int] = (),
        scale: float = 0.0,
        zero_point: int = 0,
        extra_params: ExtraParams = None,
    ) -> int:
        """Add a subgraph input and return its operand index."""
        return self._typed(
            OperandLifeTime.SUBGRAPH_INPUT, kind, dimensions, scale, zero_point, extra_params
        )

    def output(
        self,
        kind: int,
        dimensions: Sequence[int] = (),
        scale: float = 0.0,
        zero_point: int = 0,
        extra_params: ExtraParams = None,
    ) -> int:
        """Add a subgraph output and return its operand index."""
        return self._typed(
            OperandLifeTime.SUBGRAPH_OUTPUT, kind, dimensions, scale, zero_point, extra_params
        )

    def temporary(
        self,
        kind: int,
        dimensions: Sequence[int] = (),
        scale: float = 0.0,
        zero_point: int = 0,
        extra_params: ExtraParams = None,
    ) -> int:
        """Add a temporary and return its operand index."""
        return self._typed(
            OperandLifeTime.TEMPORARY_VARIABLE, kind, dimensions, scale, zero_point, extra_params
        )

    def constant(
        self,
        kind: int,
        values: npt.ArrayLike,
        scale: float = 0.0,
        zero_point: int = 0,
        extra_params: ExtraParams = None,
    ) -> int:
        """Add a CONSTANT_COPY tensor and return its operand index.

        Args:
            kind: a tensor type; `values` is cast to its element type, its shape is the dimensions.
            values: the elements.
            scale: quantisation step.
            zero_point: stored value of 0.
            extra_params: per-channel scales.

        Raises:
            InvalidArgument: `values` are no array of real numbers, or one does not fit the type.
        """
        array = np.ascontiguousarray(_elements("values", values, kind))
        return self._constant(
            kind, tuple(array.shape), array.tobytes(), scale, zero_point, extra_params
        )

    def scalar(self, value: float | bool, kind: int | None = None) -> int:
        """Add a constant scalar and return its operand index.

        Args:
            value: its value.
            kind: a scalar type; BOOL, INT32 or FLOAT32 by the value's type unless given.

        Raises:
            InvalidArgument: `value` is no real number, or does not fit the type.
        """
        if kind is None:
            kind = (
                OperandType.BOOL
                if isinstance(value, bool | np.bool_)
                else OperandType.INT32
                if isinstance(value, int | np.integer)
                else OperandType.FLOAT32
            )
        element = _elements("value", value, kind)
        if element.size != 1:
            raise InvalidArgument(f"value has {element.size} elements, expected one")
        return self._constant(kind, (), element.tobytes(), 0.0, 0, None)

    def extension_constant(
        self,
        kind: int,
        values: npt.ArrayLike | np.generic,
        extra_params: ExtraParams = None,
        *,
        is_tensor: bool = True,
    ) -> int:
        """Add a CONSTANT_COPY operand of an extension's type and return its operand index.

        Args:
            kind: code of the type (`UsedExtension.operand_type`).
            values: the elements, in their own dtype.
            extra_params: opaque bytes (`ExtensionParams`).
            is_tensor: whether the shape of `values` is the operand's; a scalar has no dimensions.

        Raises:
            InvalidArgument: `values` are no array, or have elements that are objects of Python.
        """
        refuse_masked("values", values)
        try:
            array = np.ascontiguousarray(values)
        except ValueError as error:  # a list of lists of different lengths
            raise InvalidArgument(f"values is {values!r}: {error}") from None
        if array.dtype.hasobject:
            raise InvalidArgument(f"values is {values!r}, expected elements of a fixed size")
        dimensions = tuple(array.shape) if is_tensor else ()
        return self._constant(kind, dimensions, array.tobytes(), 0.0, 0, extra_params)

    def _constant(
        self,
        kind: int,
        dimensions: tuple[int, ...],
        data: bytes,
        scale: float,
        zero_point: int,
        extra_params: ExtraParams,
    ) -> int:
        self._values.extend(b"\0" * (-len(self._values) % _ALIGNMENT))
        location = DataLocation(offset=len(self._values), length=len(data))
        self._values.extend(data)
        return self.operand(
            Operand(
                type=check_integer("kind", kind),
                dimensions=dimensions,
                scale=_scale(scale),
                zero_point=check_integer("zero_point", zero_point),
                lifetime=OperandLifeTime.CONSTANT_COPY,
                location=location,
                extra_params=extra_params,
            )
        )

    def no_value(self, kind: int, dimensions: Sequence[int] = ()) -> int:
        """Add an omitted optional operand and return its index."""
        return self._typed(OperandLifeTime.NO_VALUE, kind, dimensions, 0.0, 0, None)

    def subgraph(self, index: int) -> int:
        """Add an operand that names referenced subgraph `index` and return its operand index."""
        return self.operand(
            Operand(
                type=OperandType.SUBGRAPH,
                lifetime=OperandLifeTime.SUBGRAPH,
                location=DataLocation(offset=check_integer("index", index)),
            )
        )

    def operation(self, kind: int, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Add an operation.

        Args:
            kind: an `OperationType`, or the code of an extension's operation.
            inputs: indexes of the operands that it reads.
            outputs: indexes of the operands that it writes.
        """
        self._operations.append(
            Operation(
                check_integer("kind", kind),
                check_integers("inputs", inputs),
                check_integers("outputs", outputs),
            )
        )

    def identify(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Set inputs and outputs by operand index, instead of all added ones in their order."""
        self._inputs = [*check_integers("inputs", inputs)]
        self._outputs = [*check_integers("outputs", outputs)]

    def finish(self) -> Subgraph:
        """Return the subgraph, with the consumers of each operand counted.

        Raises:
            InvalidArgument: validation:P2: an operation reads an operand that is not defined.
        """
        uses = [0] * len(self._operands)
        for operation in self._operations:
            for index in operation.inputs:
                if not 0 <= index < len(uses):
                    raise InvalidArgument(
                        f"validation:P2: operand index {index} of an operation is not defined"
                    )
                uses[index] += 1
        operands = tuple(
            replace(operand, number_of_consumers=count)
            for operand, count in zip(self._operands, uses, strict=True)
        )
        return Subgraph(
            operands, tuple(self._operations), tuple(self._inputs), tuple(self._outputs)
        )


class UsedExtension(NamedTuple):
    """An extension in one model: makes the codes of its types and operations.

    Attributes:
        name: "vendor.extension".
        prefix: the number of the extension in this model.
    """

    name: str
    prefix: int

    def operand_type(self, number: int) -> int:
        """Code of operand type `number` (NNAPI: ANeuralNetworksModel_getExtensionOperandType).

        Raises:
            InvalidArgument: `number` is no integer of 16 bits.
        """
        return extension_code(self.prefix, check_integer("number", number, 0, UINT16_MAX))

    def operation_type(self, number: int) -> int:
        """Code of operation `number` (NNAPI: ANeuralNetworksModel_getExtensionOperationType).

        Raises:
            InvalidArgument: `number` is no integer of 16 bits.
        """
        return extension_code(self.prefix, check_integer("number", number, 0, UINT16_MAX))


class ModelBuilder(SubgraphBuilder):
    """Builds a model and its main subgraph; `add_subgraph` adds referenced subgraphs.

    Not thread-safe.
    """

    def __init__(self) -> None:
        super().__init__(bytearray())
        self._referenced: list[SubgraphBuilder] = []
        self._extensions: dict[str, UsedExtension] = {}

    def extension(self, name: str) -> UsedExtension:
        """Use the extension called `name`, which the driver must have (NNAPI: TypeManager).

        Prefixes are numbered in order of first use.

        Raises:
            InvalidArgument: `name` is not of the form vendor.extension.
        """
        if not is_extension_name(name):
            raise InvalidArgument(f"name is {name!r}, expected vendor.extension")
        return self._extensions.setdefault(name, UsedExtension(name, len(self._extensions) + 1))

    def add_subgraph(self) -> tuple[int, SubgraphBuilder]:
        """Add a referenced subgraph; returns its index (for `subgraph`) and its builder."""
        builder = SubgraphBuilder(self._values)
        self._referenced.append(builder)
        return len(self._referenced) - 1, builder

    def build(
        self,
        *,
        relax_computation_float32_to_float16: bool = False,
        pools: Sequence[MemoryPool] = (),
        extension_name_to_prefix: Sequence[ExtensionNameAndPrefix] = (),
    ) -> Model:
        """Return the finished model, without validation: the driver validates it.

        Args:
            relax_computation_float32_to_float16: see `Model`.
            pools: see `Model`.
            extension_name_to_prefix: replaces the extensions that were added by `extension`.

        Raises:
            InvalidArgument: validation:P2: an operation reads an operand that is not defined.
        """
        used = (ExtensionNameAndPrefix(e.name, e.prefix) for e in self._extensions.values())
        return Model(
            main=self.finish(),
            referenced=tuple(b.finish() for b in self._referenced),
            operand_values=bytes(self._values),
            pools=tuple(pools),
            relax_computation_float32_to_float16=relax_computation_float32_to_float16,
            extension_name_to_prefix=tuple(extension_name_to_prefix) or tuple(used),
        )
