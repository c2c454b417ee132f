"""A bound convolution follows its arguments from run to run, and keeps what it prepared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nnburst.executor.base import Argument
from nnburst.executor.graph.memory import LARGEST_INTERMEDIATE, Workspace, in_order
from nnburst.executor.graph.operation import Node, OperationFailed
from nnburst.executor.reference.executor import ReferenceExecutor
from nnburst.hal.enums import ErrorStatus, FeatureLevel, OperandType, OperationType
from nnburst.hal.model import DTYPES, Model
from nnburst.hal.model_builder import ModelBuilder
from nnburst.hal.signature import Form, Match

F32, Q8, I32 = (
    OperandType.TENSOR_FLOAT32,
    OperandType.TENSOR_QUANT8_ASYMM,
    OperandType.TENSOR_INT32,
)
#: Operation, dimensions of the filter, scalars, dimensions of the output.
KERNELS = [
    (OperationType.CONV_2D, (3, 3, 3, 2), [1, 1, 1, 0], (1, 4, 4, 3)),
    (OperationType.DEPTHWISE_CONV_2D, (1, 3, 3, 4), [1, 2, 2, 2, 0], (1, 2, 2, 4)),
    (OperationType.FULLY_CONNECTED, (3, 16), [0], (2, 3)),
]


def network(
    kind: OperationType,
    weights: tuple[int, ...],
    numbers: list[int],
    out: tuple[int, ...],
    quantised: bool,
) -> Model:
    """One operation whose image, filter and bias are model inputs."""
    tensor, bias = (Q8, I32) if quantised else (F32, F32)
    channels = weights[3] if kind is OperationType.DEPTHWISE_CONV_2D else weights[0]
    builder = ModelBuilder()
    x = builder.input(tensor, (1, 4, 4, 2), 0.5 * quantised, 9 * quantised)
    w = builder.input(tensor, weights, 0.5 * quantised, 7 * quantised)
    b = builder.input(bias, (channels,), 0.25 * quantised)
    y = builder.output(tensor, out, 40.0 * quantised, 100 * quantised)
    builder.operation(kind, [x, w, b, *(builder.scalar(n) for n in numbers)], [y])
    return builder.build()


def bound(model: Model, inputs: list[Any]) -> tuple[Callable[[], Any], Any]:
    """A function that runs the model and gives its output, and the output's memory."""
    operand = model.main.operands[model.main.output_indexes[0]]
    out = np.zeros(operand.dimensions, DTYPES[OperandType(operand.type)])
    execution = (
        ReferenceExecutor()
        .prepare(model, [])
        .bind(
            [Argument(x.reshape(-1).view(np.uint8), x.shape) for x in inputs],
            [Argument(out.reshape(-1).view(np.uint8), out.shape)],
        )
    )

    def run() -> Any:
        outcome = execution.run()
        assert outcome.status is ErrorStatus.NONE, outcome.message
        return out.copy()

    return run, out


def random_inputs(model: Model, seed: int) -> list[Any]:
    random = np.random.default_rng(seed)
    operands = [model.main.operands[i] for i in model.main.input_indexes]
    return [
        random.integers(0, 99, o.dimensions).astype(DTYPES[OperandType(o.type)]) for o in operands
    ]


@pytest.mark.parametrize("quantised", [False, True])
@pytest.mark.parametrize(("kind", "weights", "numbers", "out"), KERNELS)
def test_filters_that_are_model_inputs_are_read_in_every_run(
    kind: OperationType, weights: Any, numbers: Any, out: Any, quantised: bool
) -> None:
    model = network(kind, weights, numbers, out, quantised)
    inputs, others = random_inputs(model, 1), random_inputs(model, 2)
    run, _ = bound(model, inputs)
    first = run()
    for memory, values in zip(inputs, others, strict=True):
        memory[...] = values
    second = run()
    fresh, _ = bound(model, others)
    np.testing.assert_array_equal(second, fresh())
    assert (first != second).any()


def test_operations_that_share_scratch_memory_do_not_disturb_each_other() -> None:
    random = np.random.default_rng(3)
    builder = ModelBuilder()
    image = builder.input(Q8, (1, 5, 5, 2), 0.5, 9)
    current = image
    for zero_point in (200, 3, 77):
        w = builder.constant(Q8, random.integers(0, 255, (2, 3, 3, 2)), 0.5, 100)
        b = builder.constant(I32, random.integers(-999, 999, 2), 0.25)
        last = zero_point == 77
        make = builder.output if last else builder.temporary
        following = make(Q8, (1, 5, 5, 2), 0.5, zero_point)
        builder.operation(
            OperationType.CONV_2D, [current, w, b, *(builder.scalar(n) for n in (1, 1, 1, 0))],
            [following],
        )  # fmt: skip
        current = following
    run, _ = bound(builder.build(), [random.integers(0, 255, (1, 5, 5, 2), np.uint8)])
    first = run()
    assert first.std() > 0
    for _ in range(3):
        np.testing.assert_array_equal(run(), first)


def test_a_workspace_gives_the_same_memory_for_the_same_purpose_and_grows() -> None:
    node = Node(OperationType.CONV_2D, Match(Form((), ()), (), (), FeatureLevel.V1_0), [])
    workspace = Workspace(node)
    large = workspace.array("sums", (4, 5), np.float32)
    small = workspace.array("sums", (2, 3), np.float32)
    assert np.shares_memory(large, small)
    assert small.flags.c_contiguous
    assert not np.shares_memory(large, workspace.array("patches", (4, 5), np.float32))
    assert workspace.array("sums", (9, 9), np.float32).shape == (9, 9)
    with pytest.raises(OperationFailed, match="exceeds"):
        workspace.array("huge", (LARGEST_INTERMEDIATE,), np.uint8)


def test_steps_run_in_order() -> None:
    seen: list[int] = []
    in_order([lambda: seen.append(1), lambda: seen.append(2)])()
    in_order([lambda: seen.append(3)])()
    in_order([])()
    assert seen == [1, 2, 3]
