"""Rewrites models that store float16 or 8-bit integers over the real numbers that these stand for.

The rewritten model has float32 in their place, so the lowerings of float32 serve for it. The graph reads and
writes what the model stores, and rounds where an operation stores 8-bit integers: results differ from the
operation's by a step of the output at most. Float16 is rounded at the border of the graph only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace

from nnburst.executor.base import Bytes, memory_of
from nnburst.executor.graph.plan import match_operation
from nnburst.executor.graph.tensor import Array, Tensor, TensorType
from nnburst.executor.graph.translation import real_numbers
from nnburst.hal.enums import OperandLifeTime, OperandType, OperationType
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import (
    DataLocation,
    Model,
    Operand,
    Operation,
    Subgraph,
    SymmPerChannelQuantParams,
)

_T, _O = OperandType, OperationType
_HALF: Final = {_T.FLOAT16: _T.FLOAT32, _T.TENSOR_FLOAT16: _T.TENSOR_FLOAT32}
_QUANTISED: Final = frozenset(
    {
        _T.TENSOR_QUANT8_ASYMM,
        _T.TENSOR_QUANT8_ASYMM_SIGNED,
        _T.TENSOR_QUANT8_SYMM,
        _T.TENSOR_QUANT8_SYMM_PER_CHANNEL,
    }
)
#: Positions of filter and bias, whose integers have the product of the steps of image and filter.
_BIASED: Final = dict.fromkeys(
    (
        _O.CONV_2D,
        _O.DEPTHWISE_CONV_2D,
        _O.GROUPED_CONV_2D,
        _O.TRANSPOSE_CONV_2D,
        _O.FULLY_CONNECTED,
    ),
    (1, 2),
)
_COMPARISONS: Final = frozenset(
    {_O.EQUAL, _O.NOT_EQUAL, _O.LESS, _O.LESS_EQUAL, _O.GREATER, _O.GREATER_EQUAL}
)
#: Operations on the integers themselves, and those whose result a rounding error may change altogether. A
#: zero point need not be exactly 0 as a real number, and division by its norm makes it large.
_NOT_REAL: Final = _COMPARISONS | {_O.CAST, _O.L2_NORMALIZATION}
#: Operations whose result jumps where float16 that an operation has computed would be rounded.
_JUMPING: Final = _COMPARISONS | {_O.CAST, _O.FLOOR}
_FLOATS: Final = frozenset({_T.TENSOR_FLOAT16, _T.TENSOR_FLOAT32})
_COMPUTED: Final = frozenset({OperandLifeTime.TEMPORARY_VARIABLE, OperandLifeTime.SUBGRAPH_OUTPUT})
_CONVERSIONS: Final = (_O.QUANTIZE, _O.DEQUANTIZE)


class RealModel(msgspec.Struct, frozen=True):
    """A model over real numbers.

    Attributes:
        model: the model over real numbers.
        stored: the original types of operands that the original model stores in another type, by operand
            index.
        refused: numbers of operations whose results would differ from the original's.
    """

    model: Model
    stored: Mapping[int, TensorType]
    refused: frozenset[int]


def over_reals(model: Model, pools: Sequence[Bytes] | None) -> RealModel | None:
    """Rewrite a model over real numbers; None if it has only those, or an operation cannot be rewritten.

    Args:
        model: a validated model.
        pools: bytes of its pools; None if they are not known.
    """
    main = model.main
    is_stored = [o.type in _HALF or o.type in _QUANTISED for o in main.operands]
    if model.referenced or not any(
        stored and not operand.is_constant
        for stored, operand in zip(is_stored, main.operands, strict=True)
    ):
        return None
    rewriting = _Rewriting(model, pools)
    for index, stored in enumerate(is_stored):
        if stored:
            rewriting.change(index)
    try:
        operations = tuple(map(rewriting.operation, main.operations))
        changed = Subgraph(
            tuple(rewriting.operands), operations, main.input_indexes, main.output_indexes
        )
        for operation in operations:
            match_operation(changed, operation)
    except InvalidArgument:
        return None
    refused = frozenset(
        number for number, each in enumerate(main.operations) if _is_refused(main, each)
    )
    values = model.operand_values + bytes(rewriting.values)
    made = replace(model, main=changed, operand_values=values)
    return RealModel(made, rewriting.stored, refused)


def _is_refused(main: Subgraph, operation: Operation) -> bool:
    """Whether the result of an operation over real numbers would differ from the operation's."""
    given = [main.operands[i] for i in operation.inputs]
    taken = [main.operands[i] for i in operation.outputs]
    if operation.type in _NOT_REAL and any(o.type in _QUANTISED for o in (*given, *taken)):
        return True
    is_conversion = (
        operation.type == _O.CAST and taken[0].type in _FLOATS
    )  # takes any number as it is
    return (
        operation.type in _JUMPING
        and not is_conversion
        and any(o.type in _HALF and o.lifetime in _COMPUTED for o in given)
    )


class _Rewriting:
    """The operands of a model that is being rewritten, with the values of changed constants."""

    def __init__(self, model: Model, pools: Sequence[Bytes] | None) -> None:
        self.operands = list(model.main.operands)
        self.stored: dict[int, TensorType] = {}
        self.values = bytearray()
        self._model = model
        self._pools = pools

    def change(self, index: int, scales: Array | None = None) -> None:
        """Change operand `index` to real numbers.

        Args:
            index: the operand's index; each operand is changed once.
            scales: scales of its integers, if the operand itself has none.
        """
        before = self.operands[index]
        kind = OperandType(before.type)
        is_scalar = kind in (_T.INT32, _T.FLOAT16)
        after = replace(
            before,
            type=_T.FLOAT32 if is_scalar else _T.TENSOR_FLOAT32,
            scale=0.0,
            zero_point=0,
            extra_params=None,
        )
        meta = TensorType(
            kind, before.dimensions, before.scale, before.zero_point, before.extra_params
        )
        if before.is_constant:
            after = self._with_value(after, before, meta, scales)
        else:
            self.stored[index] = meta
        self.operands[index] = after

    def _with_value(
        self, after: Operand, before: Operand, meta: TensorType, scales: Array | None
    ) -> Operand:
        place = before.location
        if before.lifetime == OperandLifeTime.CONSTANT_COPY:
            stored = memoryview(self._model.operand_values)
        elif self._pools is None:
            return replace(
                after, location=replace(place, length=4 * meta.byte_size // meta.element_bytes)
            )
        else:
            stored = memory_of(self._pools, place.pool_index)
        # Another process may change a pool at any time: one copy is converted.
        given = Tensor.of_stored(meta, bytes(stored[place.offset : place.offset + place.length]))
        if meta.type in _HALF:
            numbers = given.array.astype(np.float32)
        elif scales is not None:
            numbers = given.array.astype(np.float32) * scales
        else:
            numbers = real_numbers(given)
        self.values += bytes(-len(self.values) % 4)
        offset = len(self._model.operand_values) + len(self.values)
        content = np.ascontiguousarray(numbers, np.float32).tobytes()
        self.values += content
        return replace(
            after,
            lifetime=OperandLifeTime.CONSTANT_COPY,
            location=DataLocation(0, offset, len(content)),
        )

    def operation(self, operation: Operation) -> Operation:
        """Rewrite an operation over real numbers.

        Raises:
            InvalidArgument: the operation cannot be rewritten.
        """
        given = [self._model.main.operands[i] for i in operation.inputs]
        if operation.type in _CONVERSIONS:
            return replace(operation, type=_O.CAST)
        if not given or given[0].type not in _QUANTISED:
            return operation
        if operation.type in _BIASED:
            weights, bias = (given[at] for at in _BIASED[OperationType(operation.type)])
            self._change_once(operation.inputs[2], bias, _steps(given[0], weights))
        if operation.type == _O.PAD_V2:
            scale, zero_point = np.float32(given[0].scale), given[0].zero_point
            self._change_padding(operation.inputs[2], given[2], scale, zero_point)
        return operation

    def _change_once(self, index: int, operand: Operand, scales: Array) -> None:
        if not operand.is_constant or operand.number_of_consumers != 1:
            raise InvalidArgument("a bias that is computed, or that several operations read")
        self.change(index, scales)

    def _change_padding(
        self, index: int, operand: Operand, scale: np.float32, zero_point: int
    ) -> None:
        if operand.lifetime != OperandLifeTime.CONSTANT_COPY or operand.number_of_consumers != 1:
            raise InvalidArgument(
                "a value of padding that is computed, or that several operations read"
            )
        offset = operand.location.offset
        stored = np.frombuffer(self._model.operand_values[offset : offset + 4], "<i4")
        self.values += bytes(-len(self.values) % 4)
        place = DataLocation(0, len(self._model.operand_values) + len(self.values), 4)
        self.values += ((stored - zero_point).astype(np.float32) * scale).tobytes()
        self.operands[index] = replace(operand, type=_T.FLOAT32, location=place)


def _steps(image: Operand, weights: Operand) -> Array:
    """Scales of a bias: one, or one for each channel."""
    if isinstance(weights.extra_params, SymmPerChannelQuantParams):
        return np.array(weights.extra_params.scales, np.float32) * np.float32(image.scale)
    return np.float32(image.scale) * np.float32(weights.scale) * np.ones(1, np.float32)
