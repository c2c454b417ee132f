"""Builds an NNAPI subgraph while a file is translated: collects operands, operations and constants.

Equal constants become one operand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np

from nnburst.formats.budget import Budget
from nnburst.hal.enums import OperandLifeTime, OperandType, OperationType
from nnburst.hal.model import DTYPES, DataLocation, Operand, Subgraph
from nnburst.hal.model_builder import SubgraphBuilder
from nnburst.importer.tensors import (
    Constant,
    ConstantPool,
    Refused,
    TensorType,
    dequantized,
    integers,
)

_L = OperandLifeTime
_T = OperandType

#: Bytes charged for an operand, rounded up generously.
OPERAND_COST: Final = 1024
#: The most axes that the inputs of nearly every operation have.
MOST_AXES: Final = 4
_O = OperationType
#: NNAPI: operations that are invalid, or fail, if their first input (or the second of two) has more.
UP_TO_FOUR_AXES: Final = frozenset(
    {
        _O.ADD,
        _O.AVERAGE_POOL_2D,
        _O.BATCH_MATMUL,
        _O.CHANNEL_SHUFFLE,
        _O.CONCATENATION,
        _O.CONV_2D,
        _O.DEPTH_TO_SPACE,
        _O.DEQUANTIZE,
        _O.DIV,
        _O.FLOOR,
        _O.INSTANCE_NORMALIZATION,
        _O.L2_NORMALIZATION,
        _O.L2_POOL_2D,
        _O.LOCAL_RESPONSE_NORMALIZATION,
        _O.LOGISTIC,
        _O.MAX_POOL_2D,
        _O.MEAN,
        _O.MUL,
        _O.PAD,
        _O.PAD_V2,
        _O.REDUCE_ALL,
        _O.REDUCE_ANY,
        _O.REDUCE_MAX,
        _O.REDUCE_MIN,
        _O.REDUCE_PROD,
        _O.REDUCE_SUM,
        _O.RELU,
        _O.RELU1,
        _O.RELU6,
        _O.RESHAPE,
        _O.RESIZE_BILINEAR,
        _O.RESIZE_NEAREST_NEIGHBOR,
        _O.SOFTMAX,
        _O.SPACE_TO_DEPTH,
        _O.SQUEEZE,
        _O.STRIDED_SLICE,
        _O.SUB,
        _O.TANH,
        _O.TRANSPOSE,
    }
)
#: The largest quantised constant, in bytes, that is made real here and not by an operation.
_SMALL: Final = 128


@dataclass(frozen=True, slots=True)
class Value:
    """A value that an operation reads.

    Attributes:
        type: type of the operand.
        index: the operand's index in the subgraph; None for a constant that no operation reads yet.
        constant: the value, if the file holds it.
    """

    type: TensorType
    index: int | None = None
    constant: Constant | None = None


@dataclass(frozen=True, slots=True)
class Scalar:
    """A constant scalar operand of a given type."""

    value: float
    type: OperandType


@dataclass(frozen=True, slots=True)
class Missing:
    """An optional operand that is left out."""

    type: OperandType


@dataclass(frozen=True, slots=True)
class SubgraphIndex:
    """An operand that names a referenced subgraph."""

    index: int


@dataclass(frozen=True, slots=True)
class Opaque:
    """A constant whose operand type is an extension's; without bytes, the operand is omitted.

    Attributes:
        type: code of the operand type in the model.
        data: bytes of the value.
    """

    type: int
    data: bytes


Argument = Value | Constant | Scalar | Missing | SubgraphIndex | Opaque | bool | int | float


class SubgraphWriter:
    """The NNAPI subgraph that grows while a file is translated. Not thread-safe.

    Attributes:
        budget: counts the memory and work that additions cost.
        constants: takes the constants.
        origins: for each operation so far, the operator of the file that it comes from.
    """

    def __init__(self, budget: Budget, constants: ConstantPool) -> None:
        self.budget = budget
        self.constants = constants
        self.origins: list[str] = []
        self._builder = SubgraphBuilder(constants.values)
        self._known: dict[object, int] = {}
        self._inputs: dict[int, None] = {}  # operand indexes in order
        self._real: dict[int, Value] = {}  # real numbers of constants, by their operand

    def add_input(self, kind: TensorType) -> Value:
        """Add an input to the NNAPI subgraph."""
        index = self._operand(kind, _L.SUBGRAPH_INPUT)
        self._inputs[index] = None
        return Value(kind, index)

    def temporary(self, kind: TensorType) -> Value:
        """Add an operand that an operation is to write."""
        self.budget.spend(OPERAND_COST)
        return Value(kind, self._operand(kind, _L.TEMPORARY_VARIABLE))

    def _operand(
        self, kind: TensorType, lifetime: OperandLifeTime, location: DataLocation | None = None
    ) -> int:
        return self._builder.operand(
            Operand(
                type=kind.type,
                dimensions=kind.dimensions,
                scale=kind.scale,
                zero_point=kind.zero_point,
                lifetime=lifetime,
                location=location or DataLocation(),
                extra_params=kind.extra_params,
            )
        )

    def add(
        self, kind: int, inputs: Sequence[Argument], outputs: Sequence[Value], origin: str
    ) -> None:
        """Add an operation that writes `outputs`.

        Raises:
            Refused: an input has more axes than NNAPI's operation takes.
        """
        for given in inputs[:2] if kind in UP_TO_FOUR_AXES else ():
            dims = given.type.dimensions if isinstance(given, Value | Constant) else ()
            if len(dims) > MOST_AXES:
                raise Refused(
                    f"NNAPI's {OperationType(kind).name} takes up to {MOST_AXES} axes, its input has"
                    f" {len(dims)}: {list(dims)}"
                )
        written = [value.index for value in outputs if value.index is not None]
        self._builder.operation(kind, [self._argument(value) for value in inputs], written)
        self.origins.append(origin)

    def _argument(self, argument: Argument) -> int:
        """Index of the operand that an argument is; constants and scalars are added once."""
        match argument:
            case Value(index=int(index)):
                return index
            case Value(constant=Constant() as constant) | (Constant() as constant):
                return self._constant(constant)
            case bool():
                return self._scalar(Scalar(argument, _T.BOOL))
            case int():
                return self._scalar(Scalar(argument, _T.INT32))
            case float():
                return self._scalar(Scalar(argument, _T.FLOAT32))
            case Scalar():
                return self._scalar(argument)
            case Missing(kind):
                return self._once(argument, lambda: self._builder.no_value(kind))
            case SubgraphIndex(index):
                return self._once(argument, lambda: self._builder.subgraph(index))
            case Opaque():
                return self._once(argument, lambda: self._opaque(argument))
            case _:
                raise TypeError(argument)

    def _opaque(self, given: Opaque) -> int:
        if not given.data:
            return self._builder.no_value(given.type)
        self.budget.spend(len(given.data))
        return self._builder.operand(
            Operand(
                type=given.type,
                dimensions=(len(given.data),),
                lifetime=_L.CONSTANT_COPY,
                location=self.constants.copy(given.data),
            )
        )

    def _scalar(self, scalar: Scalar) -> int:
        def add() -> int:
            location = self.constants.copy(np.asarray(scalar.value, DTYPES[scalar.type]).tobytes())
            return self._builder.operand(
                Operand(type=scalar.type, lifetime=_L.CONSTANT_COPY, location=location)
            )

        return self._once((scalar.type, repr(scalar.value)), add)

    def _constant(self, constant: Constant) -> int:
        key = object() if constant.key is None else (constant.key, constant.type)
        return self._once(
            key, lambda: self._operand(constant.type, *self.constants.place(constant))
        )

    def _once(self, key: object, add: Callable[[], int]) -> int:
        if key not in self._known:
            self.budget.spend(OPERAND_COST)
            self._known[key] = add()
        return self._known[key]

    def real_constant(self, constant: Constant, origin: str, *, weights: bool) -> Value:
        """The float32 numbers of a quantised or float16 constant: 8-bit ones by DEQUANTIZE in the model.

        Float16 numbers are converted here, and so are small 8-bit constants unless they are `weights`.
        """
        if constant.type.type == _T.TENSOR_FLOAT32:
            return Value(constant.type, None, constant)
        if constant.type.is_float or (constant.size <= _SMALL and not weights):
            folded = dequantized(constant)
            return Value(folded.type, None, folded)
        index = self._argument(constant)  # equal bytes share an operand
        if index not in self._real:
            stored = Value(constant.type, index)
            self._real[index] = self.temporary(
                TensorType(_T.TENSOR_FLOAT32, constant.type.dimensions)
            )
            self.add(OperationType.DEQUANTIZE, [stored], [self._real[index]], origin)
        return self._real[index]

    def finish(self, outputs: Sequence[Value]) -> Subgraph:
        """Finish the NNAPI subgraph with these outputs, each of which gets an operand of its own."""
        chosen: dict[int, None] = {}  # operand indexes in order
        for value in outputs:
            index = value.index
            if index is None or index in self._inputs or index in chosen:
                index = self._copy(value)
            chosen[index] = None
        self._builder.identify(list(self._inputs), list(chosen))
        finished = self._builder.finish()
        operands = list(finished.operands)
        for index in chosen:
            operands[index] = msgspec.structs.replace(operands[index], lifetime=_L.SUBGRAPH_OUTPUT)
        return msgspec.structs.replace(finished, operands=tuple(operands))

    def _copy(self, value: Value) -> int:
        """Copy a value to an operand of its own: an input or a constant cannot be an output (P9)."""
        copied = self.temporary(value.type)
        assert copied.index is not None
        if value.type.type == _T.TENSOR_BOOL8:
            self.add(OperationType.LOGICAL_AND, [value, value], [copied], "output")
        elif value.type.type == _T.TENSOR_INT32 or len(value.type.dimensions) > MOST_AXES:
            self.add(OperationType.CAST, [value], [copied], "output")
        elif value.type.type in _RESHAPED:
            shape = integers(value.type.dimensions)
            self.add(OperationType.RESHAPE, [value, shape], [copied], "output")
        else:
            raise Refused(f"an output of type {value.type.type.name} that no operation computes")
        return copied.index


_RESHAPED: Final = frozenset(
    {
        _T.TENSOR_FLOAT32,
        _T.TENSOR_FLOAT16,
        _T.TENSOR_QUANT8_ASYMM,
        _T.TENSOR_QUANT8_ASYMM_SIGNED,
    }
)
