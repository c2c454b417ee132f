"""VM18 to VM21: an operation with one operand less or more."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from nnburst.hal.enums import OperandLifeTime, OperandType, OperationType
from nnburst.hal.model import (
    Model,
    Operand,
    Operation,
)
from nnburst.testing.fuzzing.model_mutators.edit import (
    ModelMutation,
    Mutations,
    added,
    recounted,
    with_operation,
)

_L = OperandLifeTime
_T = OperandType
_O = OperationType


def operand_counts(model: Model) -> Mutations:
    """VM18 to VM21: an operation with one input or output less or more."""
    for n, operation in enumerate(model.main.operations):
        for position in range(len(operation.inputs)):
            if not optional_input(operation, position):
                inputs = operation.inputs[:position] + operation.inputs[position + 1 :]
                changed = with_operation(model, n, replace(operation, inputs=inputs))
                yield ModelMutation(f"VM18 operation {n}, input {position}", recounted(changed))
        for position in range(len(operation.outputs)):
            outputs = operation.outputs[:position] + operation.outputs[position + 1 :]
            changed = with_operation(model, n, replace(operation, outputs=outputs))
            yield ModelMutation(f"VM19 operation {n}, output {position}", changed)
        extra = Operand(_T.INT32, lifetime=_L.SUBGRAPH_INPUT)
        if not _takes_more(operation):
            mutated, new = added(model, extra)
            changed = with_operation(
                mutated, n, replace(operation, inputs=(*operation.inputs, new))
            )
            yield ModelMutation(f"VM20 operation {n}", recounted(changed))
        mutated, new = added(model, replace(extra, lifetime=_L.SUBGRAPH_OUTPUT))
        outputs = (*operation.outputs, new)
        changed = with_operation(mutated, n, replace(operation, outputs=outputs))
        yield ModelMutation(f"VM21 operation {n}", changed)


#: (operation, inputs, position) of inputs that may be left out.
_OPTIONAL: Final = frozenset(
    {
        *((kind, *at) for kind in (_O.CONV_2D, _O.AVERAGE_POOL_2D, _O.MAX_POOL_2D, _O.L2_POOL_2D)
          for at in ((11, 10), (8, 7))),
        (_O.DEPTHWISE_CONV_2D, 12, 11),
        (_O.DEPTHWISE_CONV_2D, 9, 8),
        *((kind, 3, 2) for kind in (_O.SPACE_TO_DEPTH, _O.DEPTH_TO_SPACE, _O.BATCH_TO_SPACE_ND)),
        (_O.SPACE_TO_BATCH_ND, 4, 3),
        (_O.L2_NORMALIZATION, 2, 1),
        (_O.LOCAL_RESPONSE_NORMALIZATION, 6, 5),
        (_O.SOFTMAX, 3, 2),
    }
)  # fmt: skip
_MORE: Final = frozenset(
    {(_O.L2_NORMALIZATION, 1), (_O.LOCAL_RESPONSE_NORMALIZATION, 5), (_O.SOFTMAX, 2)}
)


def optional_input(operation: Operation, position: int) -> bool:
    """Whether the operation is valid without its input at `position`, too."""
    count = len(operation.inputs)
    match operation.type:
        case _O.CONCATENATION:
            return count > 2 and position < count - 1
        case _O.PACK:
            return count > 2 and position > 0
        case _O.RESIZE_BILINEAR:
            return count >= 4 and position >= 3
        case _O.RESIZE_NEAREST_NEIGHBOR:
            return count >= 5 and position >= 3
    return (operation.type, count, position) in _OPTIONAL


def _takes_more(operation: Operation) -> bool:
    count = len(operation.inputs)
    resizes = operation.type in (_O.RESIZE_BILINEAR, _O.RESIZE_NEAREST_NEIGHBOR)
    return (operation.type, count) in _MORE or (resizes and count < 6)
