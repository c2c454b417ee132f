"""Models that the engine and the reference executor run together."""

from __future__ import annotations

import numpy as np
import pytest

from executor.litert.networks import F32, I32, aligned, bind, largest_doubled, needs_engine
from nnburst.executor.base import Argument
from nnburst.executor.built_in import litert
from nnburst.executor.litert.network import survey
from nnburst.executor.litert.split import SplitPrepared, cut
from nnburst.hal.enums import ErrorStatus, OperandType, OperationType
from nnburst.hal.model import Model
from nnburst.hal.model_builder import ModelBuilder

pytestmark = needs_engine


def reshaped_by_an_input() -> Model:
    """Extents of the result depend on data."""
    builder = ModelBuilder()
    x, shape = builder.input(F32, (4,)), builder.input(I32, (2,))
    doubled, y = builder.temporary(F32, (4,)), builder.output(F32, (0, 0))
    builder.operation(OperationType.ADD, [x, x, builder.scalar(0)], [doubled])
    builder.operation(OperationType.RESHAPE, [doubled, shape], [y])
    return builder.build()


def test_parts_follow_who_can_run_them() -> None:
    model = largest_doubled()
    assert [part.lowered for part in cut(model, survey(model, []))] == [True, False, True]


def test_parts_together_compute_the_model(route: str) -> None:
    model = largest_doubled()
    prepared = litert().prepare(model, [])
    assert isinstance(prepared, SplitPrepared)
    memory = [aligned(16), aligned(16), aligned(8), aligned(8)]
    execution = bind(prepared, model, memory)
    for _ in range(2):
        memory[0].view(np.float32)[...] = [1, 4, 3, 2]
        assert execution.run().status is ErrorStatus.NONE
        assert memory[1].view(np.float32).tolist() == [2, 8, 6, 4]
        assert memory[2].view(np.int32).tolist() == [1, 2]
        assert memory[3].view(np.float32).tolist() == [16, 12]
    execution.close()
    assert execution.run().status is ErrorStatus.INVALID_ARGUMENT


def test_output_that_another_part_reads_is_computed_in_private_memory() -> None:
    model = largest_doubled()
    prepared = litert().prepare(model, [])
    memory = [aligned(16), aligned(16), aligned(8), aligned(8)]
    execution = bind(prepared, model, memory)
    assert [target is not private for target, private in execution._copies] == [True]  # type: ignore[attr-defined]


@pytest.mark.parametrize(("room", "status"), [(16, "NONE"), (15, "OUTPUT_INSUFFICIENT_SIZE")])
def test_output_whose_extents_depend_on_data_is_reported(room: int, status: str) -> None:
    model = reshaped_by_an_input()
    prepared = litert().prepare(model, [])
    given, shape = aligned(16), aligned(8)
    shape.view(np.int32)[...] = [2, 2]
    execution = prepared.bind(
        [Argument(given, (4,)), Argument(shape, (2,))], [Argument(aligned(room), (0, 0))]
    )
    outcome = execution.run()
    assert outcome.status is ErrorStatus[status]
    assert [s.dimensions for s in outcome.output_shapes] == [(2, 2)]


def test_small_buffer_of_one_part_leaves_the_other_outputs_right() -> None:
    model = largest_doubled()
    prepared = litert().prepare(model, [])
    given, last = aligned(16), aligned(8)
    given.view(np.float32)[...] = [1, 4, 3, 2]
    outputs = [Argument(aligned(15), (4,)), Argument(aligned(8), (2,)), Argument(last, (2,))]
    outcome = prepared.bind([Argument(given, (4,))], outputs).run()
    assert outcome.status is ErrorStatus.OUTPUT_INSUFFICIENT_SIZE
    assert [s.is_sufficient for s in outcome.output_shapes] == [False, True, True]
    assert last.view(np.float32).tolist() == [16, 12]


def test_model_without_anything_for_the_engine_goes_to_the_reference_executor() -> None:
    builder = ModelBuilder()
    x, y = (
        builder.input(OperandType.TENSOR_FLOAT16, (4,)),
        builder.output(OperandType.TENSOR_FLOAT16, (4,)),
    )
    builder.operation(OperationType.RELU, [x], [y])
    model = builder.build()
    given, taken = aligned(8), aligned(8)
    given.view(np.float16)[...] = [-1, 0, 1, 2]
    prepared = litert().prepare(model, [])
    assert bind(prepared, model, [given, taken]).run().status is ErrorStatus.NONE
    assert taken.view(np.float16).tolist() == [0, 0, 1, 2]
