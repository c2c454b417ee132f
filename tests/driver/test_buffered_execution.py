"""Executions that use buffers: what is checked before, and what has changed after."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from nnburst.control.service import Reference
from nnburst.driver.model.buffers import DeviceBuffer
from nnburst.driver.model.device import Device
from nnburst.driver.model.execution import run_in_time
from nnburst.driver.model.pools import BufferPool, Pool
from nnburst.driver.model.prepared_model import PreparedModel
from nnburst.executor.base import (
    Argument,
    Execution,
    Executor,
    NativeCall,
    Outcome,
    Prepared,
    PrepareOptions,
)
from nnburst.fmq.shared_memory import SharedMemory
from nnburst.hal.enums import (
    ErrorStatus,
    OperandType,
    OperationType,
)
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import DataLocation, Model, Operand
from nnburst.hal.model_builder import ModelBuilder
from nnburst.hal.types import OutputShape, Request, RequestArgument

_FLOATS = OperandType.TENSOR_FLOAT32
_NONE, _FAILURE, _SHORT = (
    ErrorStatus.NONE,
    ErrorStatus.GENERAL_FAILURE,
    ErrorStatus.OUTPUT_INSUFFICIENT_SIZE,
)


class Adder(Executor, Prepared, Execution):
    """An executor that adds 1 to its input, if its output's room is enough, and can be set to fail."""

    name = "adder"
    native: NativeCall | None = None

    def __init__(self) -> None:
        self.fail: ErrorStatus | None = None
        self.shapes: tuple[OutputShape, ...] | None = None
        self.runs = 0
        self.during: Callable[[], Any] = lambda: None

    def prepare(self, *_: object) -> Adder:
        return self

    def bind(self, inputs: Sequence[Argument], outputs: Sequence[Argument]) -> Adder:
        self.arguments = inputs, outputs
        return self

    def run(self, *_: object) -> Outcome:
        self.runs += 1
        self.during()
        if self.fail is not None:
            return Outcome(self.fail, (), "told to")
        ((source, *_rest), targets) = self.arguments
        assert source.buffer is not None
        shapes = []
        for target in targets:
            if target.buffer is None:
                shapes.append(OutputShape(source.dimensions, True))
                continue
            enough = target.buffer.size >= source.buffer.size
            if enough:
                sum_ = source.buffer.view(np.float32) + 1
                target.buffer[: source.buffer.size] = sum_.view(np.uint8)
            shapes.append(OutputShape(source.dimensions, enough))
        if self.shapes is not None:
            return Outcome(_NONE, self.shapes)
        return Outcome(_NONE if all(s.is_sufficient for s in shapes) else _SHORT, tuple(shapes))

    def close(self) -> None:
        pass


def sums(
    dimensions: Sequence[int] = (4,), outputs: int = 1, output: Sequence[int] | None = None
) -> Model:
    """RELU for each output; the executor ignores it."""
    builder = ModelBuilder()
    x = builder.input(_FLOATS, dimensions)
    for _ in range(outputs):
        y = builder.output(_FLOATS, dimensions if output is None else output)
        builder.operation(OperationType.RELU, [x], [y])
    return builder.build()


@pytest.fixture
def adder() -> Adder:
    return Adder()


def prepare(adder: Adder, model: Model) -> PreparedModel:
    return Device("adder", adder).prepare(model, [], PrepareOptions())


def buffer_for(
    model: PreparedModel,
    *roles: tuple[str, int],
    dimensions: tuple[int, ...] = (4,),
    values: Sequence[float] | None = None,
) -> DeviceBuffer:
    uses = frozenset((weakref.ref(model), kind, index) for kind, index in roles)
    buffer = DeviceBuffer(7, Operand(_FLOATS, dimensions), uses, lambda: None)
    if values is not None:
        fill(buffer, values)
    return buffer


def fill(buffer: DeviceBuffer, values: Sequence[float]) -> None:
    data = np.asarray(values, np.float32)
    buffer.copy_from(lambda: data.view(np.uint8), data.nbytes, data.shape)


def values(buffer: DeviceBuffer, count: int = 4) -> list[float]:
    target = np.zeros(count, np.float32)
    buffer.copy_to(lambda: target.view(np.uint8), target.nbytes)
    return target.tolist()


def bind(
    model: PreparedModel,
    inputs: Sequence[DeviceBuffer | None],
    outputs: Sequence[DeviceBuffer | None],
    *,
    dimensions: tuple[int, ...] = (),
    output_dimensions: tuple[int, ...] = (),
    **options: Any,
) -> Execution:
    """Bind buffers; None stands for 16 bytes of one memory pool: zeros."""
    pools: list[Pool | BufferPool] = []

    def argument(buffer: DeviceBuffer | None, extents: tuple[int, ...]) -> RequestArgument:
        pools.append(
            Pool(SharedMemory.create(16))
            if buffer is None
            else BufferPool(Reference(buffer, lambda: None))
        )
        location = DataLocation(len(pools) - 1, 0, 16 if buffer is None else 0)
        return RequestArgument(location=location, dimensions=extents)

    request = Request(
        tuple(argument(b, dimensions) for b in inputs),
        tuple(argument(b, output_dimensions) for b in outputs),
    )
    return model.bind(request, pools, **options)


def test_output_of_one_execution_is_the_input_of_the_next(adder: Adder) -> None:
    model = prepare(adder, sums())
    a, b = (buffer_for(model, ("input", 0), ("output", 0)) for _ in range(2))
    fill(a, [1, 2, 3, 4])
    assert run_in_time(bind(model, [a], [b])).status == _NONE
    assert run_in_time(bind(model, [b], [a])).status == _NONE
    assert values(a) == [3, 4, 5, 6]
    assert values(b) == [2, 3, 4, 5]


def test_uninitialised_input_is_a_general_failure_and_nothing_runs(adder: Adder) -> None:
    model = prepare(adder, sums())
    outcome = run_in_time(bind(model, [buffer_for(model, ("input", 0))], [None]))
    assert (outcome.status, outcome.message) == (_FAILURE, "device:E6: buffer 7 is not initialised")
    assert adder.runs == 0


@pytest.mark.parametrize(
    ("inputs", "outputs"), [([("output", 0)], [None]), ([None], [("input", 0)])]
)
def test_use_that_was_not_declared_is_refused(
    adder: Adder, inputs: list[Any], outputs: list[Any]
) -> None:
    model = prepare(adder, sums())
    given, taken = (
        [None if role is None else buffer_for(model, role) for role in roles]
        for roles in (inputs, outputs)
    )
    with pytest.raises(InvalidArgument, match=r"^device:E6: (input|output) 0: .*not allocated for"):
        bind(model, given, taken)


def test_use_by_another_model_is_refused(adder: Adder) -> None:
    model, other = prepare(adder, sums()), prepare(adder, sums())
    buffer = buffer_for(other, ("input", 0), values=[1, 2, 3, 4])
    with pytest.raises(InvalidArgument, match="E6"):
        bind(model, [buffer], [None])


def test_buffer_cannot_be_read_and_written_by_one_request(adder: Adder) -> None:
    model = prepare(adder, sums())
    buffer = buffer_for(model, ("input", 0), ("output", 0), values=[1, 2, 3, 4])
    with pytest.raises(InvalidArgument, match="an output and also something else"):
        bind(model, [buffer], [buffer])


def test_buffer_cannot_be_two_outputs(adder: Adder) -> None:
    model = prepare(adder, sums(outputs=2))
    buffer = buffer_for(model, ("output", 0), ("output", 1))
    with pytest.raises(InvalidArgument, match="an output and also something else"):
        bind(model, [None], [buffer, buffer])


def test_several_inputs_may_share_a_buffer(adder: Adder) -> None:
    builder = ModelBuilder()
    a, b = builder.input(_FLOATS, (4,)), builder.input(_FLOATS, (4,))
    builder.operation(OperationType.ADD, [a, b, builder.scalar(0)], [builder.output(_FLOATS, (4,))])
    model = prepare(adder, builder.build())
    buffer = buffer_for(model, ("input", 0), ("input", 1), values=[1, 2, 3, 4])
    assert run_in_time(bind(model, [buffer, buffer], [None])).status == _NONE


@pytest.mark.parametrize("status", [_FAILURE, ErrorStatus.MISSED_DEADLINE_TRANSIENT, _SHORT])
def test_failed_execution_leaves_its_output_uninitialised(
    adder: Adder, status: ErrorStatus
) -> None:
    model = prepare(adder, sums())
    buffer = buffer_for(model, ("output", 0), values=[1, 2, 3, 4])
    adder.fail = status
    assert run_in_time(bind(model, [None], [buffer])).status == status
    assert not buffer._initialised


def test_failed_execution_leaves_its_input_as_it_was(adder: Adder) -> None:
    model = prepare(adder, sums())
    buffer = buffer_for(model, ("input", 0), values=[1, 2, 3, 4])
    adder.fail = _FAILURE
    run_in_time(bind(model, [buffer], [None]))
    assert values(buffer) == [1, 2, 3, 4]


def test_refused_request_leaves_the_buffers_uninitialised_that_it_was_to_write(
    adder: Adder,
) -> None:
    model = prepare(adder, sums())
    buffer = buffer_for(model, ("output", 0), values=[1, 2, 3, 4])
    with pytest.raises(InvalidArgument, match="R8"):
        bind(model, [None], [buffer], dimensions=(5,))
    assert not buffer._initialised


def test_execution_past_its_deadline_leaves_its_output_uninitialised(adder: Adder) -> None:
    model = prepare(adder, sums())
    buffer = buffer_for(model, ("output", 0), values=[1, 2, 3, 4])
    execution = bind(model, [None], [buffer])
    outcome = run_in_time(execution, time.clock_gettime_ns(time.CLOCK_BOOTTIME) - 1)
    assert outcome.status == ErrorStatus.MISSED_DEADLINE_PERSISTENT
    assert (adder.runs, buffer._initialised) == (0, False)


def test_executor_that_raises_what_it_should_not_leaves_its_output_uninitialised(
    adder: Adder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> Adder:
        raise KeyError("oops")

    model = prepare(adder, sums())
    buffer = buffer_for(model, ("output", 0), values=[1, 2, 3, 4])
    execution = bind(model, [None], [buffer])
    monkeypatch.setattr(adder, "bind", broken)
    outcome = run_in_time(execution)
    assert (outcome.status, outcome.message) == (_FAILURE, "KeyError: 'oops'")
    assert not buffer._initialised


def test_output_is_not_initialised_while_it_is_being_written(adder: Adder) -> None:
    model = prepare(adder, sums())
    buffer = buffer_for(model, ("output", 0), values=[1, 2, 3, 4])
    seen: list[bool] = []
    adder.during = lambda: seen.append(buffer._initialised)
    run_in_time(bind(model, [None], [buffer]))
    assert (seen, buffer._initialised) == ([False], True)


def test_bound_request_looks_at_the_state_each_time_it_runs(adder: Adder) -> None:
    model = prepare(adder, sums())
    source = buffer_for(model, ("input", 0))
    execution = bind(model, [source], [None])
    assert run_in_time(execution).status == _FAILURE
    fill(source, [1, 2, 3, 4])
    assert run_in_time(execution).status == _NONE


def test_input_must_have_the_shape_that_the_last_output_had(adder: Adder) -> None:
    model = prepare(adder, sums((0,)))
    source = buffer_for(model, ("input", 0), dimensions=(0,), values=[1, 2, 3])
    outcome = run_in_time(bind(model, [source], [None], dimensions=(4,)))
    assert outcome.status == ErrorStatus.INVALID_ARGUMENT
    assert "contradict" in outcome.message
    assert run_in_time(bind(model, [source], [None], dimensions=(3,))).status == _NONE


def test_output_must_have_the_shape_that_the_buffer_was_allocated_with(adder: Adder) -> None:
    model = prepare(adder, sums((0,)))
    target = buffer_for(model, ("output", 0), dimensions=(4,))
    execution = bind(model, [None], [target], dimensions=(4,), output_dimensions=(5,))
    assert run_in_time(execution).status == ErrorStatus.INVALID_ARGUMENT
    assert adder.runs == 0


def test_buffer_of_unknown_size_grows_with_what_is_written(adder: Adder) -> None:
    model = prepare(adder, sums((0,)))
    target = buffer_for(model, ("output", 0), dimensions=(0,))
    outcome = run_in_time(bind(model, [None], [target], dimensions=(4,)))
    assert outcome.status == _NONE
    assert adder.runs == 2
    assert values(target) == [1, 1, 1, 1]


def test_output_too_small_is_a_general_failure_without_shapes(adder: Adder) -> None:
    model = prepare(adder, sums((0,)))
    target = buffer_for(model, ("output", 0), dimensions=(3,))
    outcome = run_in_time(bind(model, [None], [target], dimensions=(4,)))
    assert (outcome.status, outcome.output_shapes) == (_FAILURE, ())
    assert not target._initialised


def test_memory_too_small_beside_a_buffer_is_reported_with_shapes(adder: Adder) -> None:
    model = prepare(adder, sums((0,), outputs=2))
    source = buffer_for(model, ("input", 0), dimensions=(0,), values=[1, 2, 3, 4, 5])
    target = buffer_for(model, ("output", 0), dimensions=(0,))
    outcome = run_in_time(bind(model, [source], [target, None], dimensions=(5,)))
    assert outcome.status == _SHORT
    assert [shape.is_sufficient for shape in outcome.output_shapes] == [True, False]
    assert not target._initialised


@pytest.mark.parametrize("shape", [(5,), (2, 2), (10**9,)])
def test_reported_shape_that_the_buffer_cannot_have_is_a_general_failure(
    adder: Adder, shape: tuple[int, ...]
) -> None:
    model = prepare(adder, sums((0,)))
    target = buffer_for(model, ("output", 0))
    adder.shapes = (OutputShape(shape, True),)
    outcome = run_in_time(bind(model, [None], [target], dimensions=(4,)))
    assert outcome.status == _FAILURE
    assert "E9" in outcome.message
    assert not target._initialised


def test_unspecified_outputs_can_be_forbidden(adder: Adder) -> None:
    model = prepare(adder, sums((0,)))
    target = buffer_for(model, ("output", 0), dimensions=(4,))
    with pytest.raises(InvalidArgument, match="R10"):
        bind(model, [None], [target], dimensions=(4,), allow_unspecified_output=False)


def test_omitted_output_is_not_a_use_of_the_first_pool(adder: Adder) -> None:
    model = prepare(adder, sums(outputs=2))
    buffer = buffer_for(model, ("output", 1))
    source = RequestArgument(location=DataLocation(1, 0, 16))
    outputs = (RequestArgument(has_no_value=True), RequestArgument(location=DataLocation(0)))
    pools: list[Pool | BufferPool] = [
        BufferPool(Reference(buffer, lambda: None)),
        Pool(SharedMemory.create(16)),
    ]
    assert run_in_time(model.bind(Request((source,), outputs), pools)).status == _NONE
    assert values(buffer) == [1, 1, 1, 1]
    with pytest.raises(InvalidArgument, match="R1"):
        model.bind(Request((), (outputs[0],)), pools)
    assert buffer._initialised  # the request that was refused does not write it


def test_offset_and_length_of_a_buffer_must_be_0(adder: Adder) -> None:
    model = prepare(adder, sums())
    pool = BufferPool(Reference(buffer_for(model, ("input", 0)), lambda: None))
    whole = RequestArgument(location=DataLocation(0, 0, 16))
    with pytest.raises(InvalidArgument, match="R5"):
        model.bind(Request((whole,), (whole,)), [pool])
