"""Makes small models of LSTMs with random weights, and compares executors on them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nnburst.executor.base import Argument, Executor
from nnburst.executor.built_in import BUILT_IN
from nnburst.executor.operations.lstm import GATES
from nnburst.hal.enums import ErrorStatus, OperandType, OperationType
from nnburst.hal.model import Model
from nnburst.hal.model_builder import ModelBuilder
from nnburst.hal.validation import validate_model
from nnburst.testing.conformance.runners import SIGNATURES

F32 = OperandType.TENSOR_FLOAT32
BATCH, INPUTS, CELLS = 2, 3, 5


def step(
    activation: int = 4,
    clip: float = 0.0,
    *,
    peephole: bool = False,
    coupled: bool = False,
    normalised: bool = False,
    constant: bool = True,
    steered: bool = False,
) -> Model:
    """One step of an LSTM with random weights; gives both states and the output without what is below 0."""
    random, builder = np.random.default_rng(1), ModelBuilder()
    x, *states = (builder.input(F32, (BATCH, n)) for n in (INPUTS, CELLS, CELLS))

    def weights(*dimensions: int, given: bool = True) -> int:
        if not given:
            return builder.no_value(F32)
        if not constant:
            return builder.input(F32, dimensions)
        return builder.constant(F32, random.normal(0, 0.7, dimensions).astype(np.float32))

    kept = [gate != "input" or not coupled for gate in GATES]
    operands = [weights(CELLS, n, given=g) for n in (INPUTS, CELLS) for g in kept]
    operands += [weights(CELLS, given=peephole) for _ in range(3)]
    operands += [weights(CELLS, given=g) for g in kept]
    operands += [weights(given=False) for _ in range(2)]  # no projection
    chosen = builder.input(OperandType.INT32, ()) if steered else builder.scalar(activation)
    settings = [chosen, builder.scalar(clip), builder.scalar(0.0)]
    norms = [weights(CELLS, given=normalised) for _ in GATES]
    width = sum(kept) * CELLS
    outputs = [builder.temporary(F32, (BATCH, width))]
    outputs += [builder.output(F32, (BATCH, CELLS)) for _ in range(2)]
    outputs += [builder.temporary(F32, (BATCH, CELLS))]
    builder.operation(OperationType.LSTM, [x, *operands, *states, *settings, *norms], outputs)
    builder.operation(OperationType.RELU, [outputs[-1]], [builder.output(F32, (BATCH, CELLS))])
    return builder.build()


def sequence(
    steps: int, *, time_major: bool = True, states: bool = True, normalised: bool = False
) -> Model:
    """Steps of an LSTM with random weights; gives the output of each, and both states if asked for."""
    random, builder = np.random.default_rng(1), ModelBuilder()
    order = (steps, BATCH) if time_major else (BATCH, steps)
    x = builder.input(F32, (*order, INPUTS))
    given = [builder.input(F32, (BATCH, CELLS)) for _ in range(2)]

    def weights(*dimensions: int) -> int:
        return builder.constant(F32, random.normal(0, 0.7, dimensions).astype(np.float32))

    operands = [weights(CELLS, n) for n in (INPUTS, CELLS) for _ in GATES]
    operands += [builder.no_value(F32) for _ in range(3)]  # no peepholes
    operands += [weights(CELLS) for _ in GATES]
    operands += [builder.no_value(F32) for _ in range(2)]  # no projection
    settings = [builder.scalar(n) for n in (4, 0.0, 0.0)]
    settings.append(builder.scalar(time_major))
    norms = [weights(CELLS) if normalised else builder.no_value(F32) for _ in GATES]
    outputs = [builder.output(F32, (*order, CELLS))]
    outputs += [builder.output(F32, (BATCH, CELLS)) for _ in range(2 if states else 0)]
    operands = [x, *operands, *given, *settings, *norms]
    builder.operation(OperationType.UNIDIRECTIONAL_SEQUENCE_LSTM, operands, outputs)
    return builder.build()


def executed(executor: Executor, model: Model) -> list[npt.NDArray[np.float32]]:
    random, main = np.random.default_rng(2), model.main
    given = [
        random.normal(0, 1, main.operands[index].dimensions).astype(np.float32)
        for index in main.input_indexes
    ]
    found = [
        np.zeros(model.main.operands[index].dimensions, np.float32)
        for index in model.main.output_indexes
    ]
    arguments = [
        [Argument(a.reshape(-1).view(np.uint8), a.shape) for a in arrays]
        for arrays in (given, found)
    ]
    prepared = executor.prepare(model, [])
    execution = prepared.bind(*arguments)
    assert execution.run().status is ErrorStatus.NONE
    execution.close()
    prepared.close()
    return found


def assert_equal_to_reference(executor: str, model: Model) -> None:
    """Check that the named executor gives the reference executor's results, which are not all 0."""
    validate_model(model, SIGNATURES)
    pairs = zip(
        executed(BUILT_IN[executor](), model), executed(BUILT_IN["reference"](), model), strict=True
    )
    for found, expected in pairs:
        assert np.abs(expected).max() > 0.01
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
