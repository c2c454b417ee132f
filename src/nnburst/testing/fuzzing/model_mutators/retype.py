"""VM11: one operand of another type."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.model import (
    Model,
    Operand,
    Operation,
    SymmPerChannelQuantParams,
)
from nnburst.hal.operand_types import SCALARS
from nnburst.testing.fuzzing.model_mutators.edit import (
    ModelMutation,
    Mutations,
    with_operand,
)

_T = OperandType
_O = OperationType

#: Quantised types; the others have scale 0.
_SCALED: Final = frozenset({
    _T.TENSOR_QUANT8_ASYMM, _T.TENSOR_QUANT8_ASYMM_SIGNED, _T.TENSOR_QUANT8_SYMM,
    _T.TENSOR_QUANT16_ASYMM, _T.TENSOR_QUANT16_SYMM,
})  # fmt: skip


def operand_retypes(model: Model) -> Mutations:
    """VM11: an operand that is used gets every other type, if no operation takes that, too."""
    for index, operand in enumerate(model.main.operands):
        users = [o for o in model.main.operations if index in (*o.inputs, *o.outputs)]
        for kind in _T:
            if kind in (operand.type, _T.OEM, _T.TENSOR_OEM_BYTE) or not users:
                continue
            if not any(_takes_either(operation, index, kind) for operation in users):
                changed = with_operand(model, index, _retyped(operand, kind))
                yield ModelMutation(f"VM11 operand {index} as {kind.name}", changed)


_CASTABLE: Final = frozenset(
    {
        _T.TENSOR_FLOAT16, _T.TENSOR_FLOAT32, _T.TENSOR_INT32, _T.TENSOR_QUANT8_ASYMM,
        _T.TENSOR_QUANT8_ASYMM_SIGNED,
    }
)  # fmt: skip
_FLOATS: Final = frozenset({_T.TENSOR_FLOAT16, _T.TENSOR_FLOAT32})
_BYTES: Final = frozenset({_T.TENSOR_QUANT8_ASYMM, _T.TENSOR_QUANT8_ASYMM_SIGNED})
_PER_CHANNEL: Final = _T.TENSOR_QUANT8_SYMM_PER_CHANNEL
_FILTERS: Final = _BYTES | {_PER_CHANNEL}
_ANY_TENSOR: Final = frozenset(kind for kind in _T if kind not in SCALARS)
#: (operation, "inputs" or "outputs", position) -> types that the operation takes there beside the
#: one in use; position -1 is any.
_ALTERNATIVES: Final = {
    (_O.LSH_PROJECTION, "inputs", 1): _ANY_TENSOR,
    (_O.RANK, "inputs", 0): _ANY_TENSOR,
    (_O.QUANTIZE, "inputs", 0): _FLOATS,
    (_O.QUANTIZE, "outputs", 0): _BYTES,
    (_O.DEQUANTIZE, "inputs", 0): _BYTES | {_T.TENSOR_QUANT8_SYMM, _PER_CHANNEL},
    (_O.DEQUANTIZE, "outputs", 0): _FLOATS,
    (_O.RANDOM_MULTINOMIAL, "inputs", 0): _FLOATS,
    (_O.AXIS_ALIGNED_BBOX_TRANSFORM, "inputs", 1): _BYTES,
    **{
        (kind, "inputs", 1): _FILTERS
        for kind in (
            _O.CONV_2D, _O.DEPTHWISE_CONV_2D, _O.GROUPED_CONV_2D, _O.TRANSPOSE_CONV_2D,
        )
    },
    **{
        (kind, field, -1): _CASTABLE
        for kind in (_O.CAST, _O.ARGMAX, _O.ARGMIN)
        for field in ("inputs", "outputs")
    },
}  # fmt: skip


def _takes_either(operation: Operation, index: int, kind: OperandType) -> bool:
    for (code, field, position), kinds in _ALTERNATIVES.items():
        indexes: tuple[int, ...] = getattr(operation, field)
        at = indexes if position < 0 else indexes[position : position + 1]
        if operation.type == code and kind in kinds and index in at:
            return True
    return False


def _retyped(operand: Operand, kind: OperandType) -> Operand:
    """The operand with another type, and with dimensions and quantisation that this type allows."""
    dimensions = () if kind in SCALARS else operand.dimensions or (1,)
    params = None
    if kind == _PER_CHANNEL:
        dimensions = (dimensions[0] or 1, *dimensions[1:])
        params = SymmPerChannelQuantParams((1.0,) * dimensions[0], 0)
    return replace(
        operand,
        type=int(kind),
        dimensions=dimensions,
        scale=1.0 if kind in _SCALED else 0.0,
        zero_point=0,
        extra_params=params,
    )
