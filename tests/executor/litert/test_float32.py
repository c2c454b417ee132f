"""float32 stays float32 on a processor that is quicker with float16, unless the model is relaxed."""

from __future__ import annotations

from typing import Final

import numpy as np
import pytest

from executor.litert.networks import F32, Array, aligned, bind, needs_engine
from nnburst.executor.base import Executor
from nnburst.executor.built_in import litert
from nnburst.executor.reference.executor import ReferenceExecutor
from nnburst.hal.enums import ErrorStatus, OperationType
from nnburst.hal.model import Model
from nnburst.hal.model_builder import ModelBuilder

pytestmark = needs_engine

_O = OperationType
_IMAGE: Final = (1, 8, 8, 16)
#: Largest difference from the reference executor's result, as a share of its range.
CLOSE: Final = 1e-6
#: What rounding the inputs to float16 changes at least.
ROUGH: Final = 2e-5
#: Operations with the shapes of what they read, tensors first, and the shape of what they write.
OPERATIONS: Final[dict[OperationType, tuple[list[object], tuple[int, ...]]]] = {
    _O.ADD: ([_IMAGE, _IMAGE, 0], _IMAGE),
    _O.SUB: ([_IMAGE, _IMAGE, 0], _IMAGE),
    _O.MUL: ([_IMAGE, _IMAGE, 0], _IMAGE),
    _O.MAXIMUM: ([_IMAGE, _IMAGE], _IMAGE),
    _O.PRELU: ([_IMAGE, (16,)], _IMAGE),
    _O.AVERAGE_POOL_2D: ([_IMAGE, 2, 1, 1, 3, 3, 0], (1, 6, 6, 16)),
    _O.MAX_POOL_2D: ([_IMAGE, 2, 1, 1, 3, 3, 0], (1, 6, 6, 16)),
    _O.CONV_2D: ([_IMAGE, (8, 3, 3, 16), (8,), 1, 1, 1, 0], (1, 8, 8, 8)),
    _O.DEPTHWISE_CONV_2D: ([_IMAGE, (1, 3, 3, 16), (16,), 1, 1, 1, 1, 0], _IMAGE),
    _O.FULLY_CONNECTED: ([(5, 64), (40, 64), (40,), 0], (5, 40)),
    _O.BATCH_MATMUL: ([(2, 5, 64), (2, 64, 40), False, False], (2, 5, 40)),
    _O.LOGISTIC: ([_IMAGE], _IMAGE),
    _O.TANH: ([_IMAGE], _IMAGE),
    _O.HARD_SWISH: ([_IMAGE], _IMAGE),
    _O.SOFTMAX: ([(5, 40), 1.0], (5, 40)),
    _O.ABS: ([_IMAGE], _IMAGE),
}
#: Their second and third tensors are constants.
WEIGHTED: Final = {_O.PRELU, _O.CONV_2D, _O.DEPTHWISE_CONV_2D, _O.FULLY_CONNECTED}


def of_one_operation(operation: OperationType) -> tuple[Model, list[Array]]:
    """A model that is not relaxed, and values that float16 cannot hold for its inputs."""
    read, made = OPERATIONS[operation]
    random = np.random.default_rng(11)
    builder = ModelBuilder()
    operands, inputs = [], []
    for each in read:
        if not isinstance(each, tuple):
            operands.append(builder.scalar(each))
        elif operands and operation in WEIGHTED:
            operands.append(builder.constant(F32, random.standard_normal(each)))
        else:
            operands.append(builder.input(F32, each))
            inputs.append(random.standard_normal(each).astype(np.float32))
    builder.operation(operation, operands, [builder.output(F32, made)])
    return builder.build(), inputs


def computed(executor: Executor, model: Model, inputs: list[Array]) -> Array:
    graph = model.main
    memory = []
    for values in inputs:
        memory.append(aligned(values.nbytes))
        memory[-1][...] = values.reshape(-1).view(np.uint8)
    memory.append(aligned(4 * int(np.prod(graph.operands[graph.output_indexes[0]].dimensions))))
    assert bind(executor.prepare(model, []), model, memory).run().status is ErrorStatus.NONE
    return memory[-1].view(np.float32)


def distance(found: Array, expected: Array) -> float:
    return float(np.abs(found.astype(float) - expected).max() / np.ptp(expected))


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_float32_is_not_computed_as_float16(operation: OperationType, route: str) -> None:
    model, inputs = of_one_operation(operation)
    assert not model.relax_computation_float32_to_float16
    expected = computed(ReferenceExecutor(), model, inputs)
    rounded = [values.astype(np.float16).astype(np.float32) for values in inputs]
    assert distance(computed(ReferenceExecutor(), model, rounded), expected) > ROUGH
    assert distance(computed(litert(), model, inputs), expected) < CLOSE
