"""Optional operands of recurrent operations may be omitted by the model as well as by the request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from executor.lstm_case import DIRECTION, GATES, LAYER_NORM, STATES, operands, random_lstm
from executor.qlstm_case import random_qlstm
from executor.run_operation import Given, Wanted, omitted, output, run, scalar, tensor
from nnburst.executor.base import Argument
from nnburst.executor.graph.declarations import F32, Q8S, Q16S
from nnburst.executor.reference.executor import ReferenceExecutor
from nnburst.hal.enums import ErrorStatus, OperandLifeTime, OperationType
from nnburst.hal.model import DTYPES, Operand, is_scalar
from nnburst.hal.model_builder import ModelBuilder

Case = tuple[OperationType, list[Given], list[Wanted]]


def run_without_values(case: Case, expected: Sequence[Any]) -> list[Any]:
    """Run a model whose omitted operands have lifetime NO_VALUE and whose others are constants."""
    kind, inputs, outputs = case
    builder = ModelBuilder()
    indexes = []
    for given in inputs:
        meta = (given.scale, given.zero_point)
        if given.array is None:
            operand = Operand(given.type, (), *meta, lifetime=OperandLifeTime.NO_VALUE)
            indexes.append(builder.operand(operand))
        elif is_scalar(given.type):
            indexes.append(builder.scalar(given.array.item(), given.type))
        else:
            indexes.append(builder.constant(given.type, given.array, *meta))
    results = [builder.output(o.type, o.dimensions, o.scale, o.zero_point) for o in outputs]
    builder.operation(kind, indexes, results)
    arrays = [np.zeros(e.shape, DTYPES[o.type]) for e, o in zip(expected, outputs, strict=True)]
    memory = [Argument(a.reshape(-1).view(np.uint8), a.shape) for a in arrays]
    outcome = ReferenceExecutor().prepare(builder.build(), []).bind([], memory).run()
    assert outcome.status is ErrorStatus.NONE, outcome.message
    return arrays


def lstm_case() -> Case:
    rng = np.random.default_rng(1)
    values = random_lstm(rng, (2, 3, 4, 4), cifg=True)
    inputs = [tensor(F32, rng.uniform(-1, 1, (2, 3))), *operands(values, DIRECTION, F32)]
    inputs += [*operands(values, STATES, F32), scalar(4), scalar(0.0), scalar(0.0)]
    inputs += operands(values, LAYER_NORM, F32)
    return OperationType.LSTM, inputs, [output(F32)] * 4


def bidirectional_lstm_case() -> Case:
    rng = np.random.default_rng(2)
    forward, backward = (random_lstm(rng, (2, 3, 4, 4), peephole=True) for _ in range(2))
    both = (forward, backward)
    inputs = [tensor(F32, rng.uniform(-1, 1, (3, 2, 3)))]
    for names in (DIRECTION, STATES):
        inputs += [given for values in both for given in operands(values, names, F32)]
    inputs += [omitted(F32)] * (1 + 2 * len(GATES))
    inputs += [scalar(4), scalar(0.0), scalar(0.0), scalar(True), scalar(True)]
    inputs += [given for values in both for given in operands(values, LAYER_NORM, F32)]
    return OperationType.BIDIRECTIONAL_SEQUENCE_LSTM, inputs, [output(F32)]


def bidirectional_rnn_case() -> Case:
    rng = np.random.default_rng(3)
    direction = [tensor(F32, rng.uniform(-1, 1, s)) for s in ((4, 3), (4, 4), (4,), (2, 4))]
    inputs = [tensor(F32, rng.uniform(-1, 1, (3, 2, 3))), *direction, *direction]
    inputs += [*[omitted(F32)] * 3, scalar(4), scalar(True), scalar(False)]
    return OperationType.BIDIRECTIONAL_SEQUENCE_RNN, inputs, [output(F32)] * 2


def quantized_lstm_case() -> Case:
    q = random_qlstm(np.random.default_rng(4), (2, 3, 4, 4), cifg=True)
    outputs = [output(Q8S, (), *q.h_quantisation), output(Q16S, (), 2.0**q.cell_exponent, 0)]
    return OperationType.QUANTIZED_LSTM, q.inputs(), [*outputs, outputs[0]]


@pytest.mark.parametrize(
    "case",
    [lstm_case(), bidirectional_lstm_case(), bidirectional_rnn_case(), quantized_lstm_case()],
    ids=lambda case: case[0].name,
)
def test_an_operand_without_value_is_an_omitted_one(case: Case) -> None:
    expected = run(*case)
    for found, wanted in zip(run_without_values(case, expected), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
