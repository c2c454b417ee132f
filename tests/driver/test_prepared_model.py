"""A driver's prepared model in this process: its calls of an executor, and its use of the answers."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from nnburst.driver.model.device import Device
from nnburst.driver.model.pools import Pool
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
from nnburst.hal.errors import GeneralFailure, InvalidArgument, MissedDeadline, NnburstError
from nnburst.hal.limits import MAX_LOOP_TIMEOUT_NS, NO_TIMING
from nnburst.hal.model import DataLocation, Model
from nnburst.hal.model_builder import ModelBuilder
from nnburst.hal.types import OutputShape, Request, RequestArgument


class Spy(Executor, Prepared, Execution):
    """An executor that records its calls and gives the answers of a test."""

    name = "spy"
    native: NativeCall | None = None

    def __init__(self) -> None:
        self.outcome = Outcome()
        self.arguments: tuple[Sequence[Argument], Sequence[Argument]] = ((), ())
        self.deadlines: tuple[int | None, int] = (None, 0)
        self.supports = True
        self.closed = 0

    def supported(self, model: Model) -> list[bool]:
        return [self.supports] * len(model.main.operations)

    def prepare(self, *_: object) -> Spy:
        return self

    def bind(self, inputs: Sequence[Argument], outputs: Sequence[Argument]) -> Spy:
        self.arguments = inputs, outputs
        return self

    def run(self, deadline_ns: int | None = None, loop_timeout_ns: int = 0) -> Outcome:
        self.deadlines = deadline_ns, loop_timeout_ns
        return self.outcome

    def close(self) -> None:
        self.closed += 1


def relu(dimensions: Sequence[int] = (4,), output: Sequence[int] | None = None) -> Model:
    builder = ModelBuilder()
    kind = OperandType.TENSOR_FLOAT32
    x = builder.input(kind, dimensions)
    y = builder.output(kind, dimensions if output is None else output)
    builder.operation(OperationType.RELU, [x], [y])
    return builder.build()


def prepare(spy: Spy, model: Model) -> PreparedModel:
    return Device("spy", spy).prepare(model, [], PrepareOptions())


def request(length: int = 16, *, at: int = 64, pool: int = 0) -> Request:
    return Request(
        (RequestArgument(location=DataLocation(0, 0, 16)),),
        (RequestArgument(location=DataLocation(pool, at, length)),),
    )


@pytest.fixture
def spy() -> Spy:
    return Spy()


@pytest.fixture
def pool() -> Pool:
    return Pool(SharedMemory.create(256))


def test_inputs_are_read_only_views_and_outputs_write_to_the_pool(spy: Spy, pool: Pool) -> None:
    pool.writable[:4] = bytes([1, 2, 3, 4])
    prepare(spy, relu()).execute_synchronously(request(), [pool])
    ((source,), (target,)) = spy.arguments
    assert source.buffer is not None
    assert target.buffer is not None
    assert source.buffer[:4].tolist() == [1, 2, 3, 4]
    assert not source.buffer.flags.writeable
    target.buffer[:] = 9
    assert pool.readable[64:80].tolist() == [9] * 16
    assert pool.readable[80] == 0


def test_dimensions_of_model_and_request_are_merged(spy: Spy, pool: Pool) -> None:
    argument = RequestArgument(location=DataLocation(0, 0, 16), dimensions=(2, 2))
    output = RequestArgument(location=DataLocation(0, 64, 16))
    prepared = prepare(spy, relu((0, 2), (2, 0)))
    prepared.execute_synchronously(Request((argument,), (output,)), [pool])
    ((source,), (target,)) = spy.arguments
    assert (source.dimensions, target.dimensions) == ((2, 2), (2, 0))


def test_omitted_argument_has_no_buffer(spy: Spy, pool: Pool) -> None:
    omitted = Request((RequestArgument(has_no_value=True),), request().outputs)
    prepare(spy, relu()).execute_synchronously(omitted, [pool])
    assert spy.arguments[0][0].buffer is None


@pytest.mark.parametrize("bad", [request(15), request(at=241), request(pool=1), Request((), ())])
def test_request_that_breaks_a_rule_never_reaches_the_executor(
    spy: Spy, pool: Pool, bad: Request
) -> None:
    with pytest.raises(InvalidArgument, match=r"^validation:R\d+: "):
        prepare(spy, relu()).execute_synchronously(bad, [pool])
    assert spy.arguments == ((), ())


def test_declared_size_counts_and_not_what_the_pool_has(spy: Spy) -> None:
    pool = Pool(SharedMemory.create(256), 79)
    with pytest.raises(InvalidArgument, match="R5"):
        prepare(spy, relu()).execute_synchronously(request(), [pool])


@pytest.mark.parametrize("measure", [False, True])
def test_timing_is_reported_only_where_asked_for(spy: Spy, pool: Pool, measure: bool) -> None:
    timing = prepare(spy, relu()).execute_synchronously(request(), [pool], measure=measure).timing
    assert timing.measured == measure
    assert (timing.time_on_device == NO_TIMING) != measure
    if measure:
        assert timing.time_on_device <= timing.time_in_driver


@pytest.mark.parametrize("status", [s for s in ErrorStatus if 0 < s < ErrorStatus.DEAD_OBJECT])
def test_status_of_the_executor_is_raised_with_shapes_only_for_insufficient_size(
    spy: Spy, pool: Pool, status: ErrorStatus
) -> None:
    shapes = (OutputShape((4,), False),)
    spy.outcome = Outcome(status, shapes, "because")
    with pytest.raises(NnburstError, match="because") as caught:
        prepare(spy, relu()).execute_synchronously(request(), [pool], measure=True)
    assert caught.value.status == status
    kept = status == ErrorStatus.OUTPUT_INSUFFICIENT_SIZE
    assert caught.value.output_shapes == (shapes if kept else ())
    assert spy.closed == 1


def test_passed_deadline_is_missed_before_anything_runs(spy: Spy, pool: Pool) -> None:
    now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    with pytest.raises(MissedDeadline, match="E4") as caught:
        prepare(spy, relu()).execute_synchronously(request(), [pool], deadline_ns=now - 1)
    assert caught.value.status == ErrorStatus.MISSED_DEADLINE_PERSISTENT
    assert spy.deadlines == (None, 0)


def test_deadlines_reach_the_executor_and_loops_are_capped(spy: Spy, pool: Pool) -> None:
    later = time.clock_gettime_ns(time.CLOCK_BOOTTIME) + 10**12
    prepare(spy, relu()).execute_synchronously(
        request(), [pool], deadline_ns=later, loop_timeout_ns=10**15
    )
    assert spy.deadlines == (later, MAX_LOOP_TIMEOUT_NS)


def test_pool_that_cannot_be_mapped_is_a_general_failure(spy: Spy) -> None:
    memory = SharedMemory.create(256)
    memory.close()
    with pytest.raises(GeneralFailure, match="E5"):
        prepare(spy, relu()).execute_synchronously(request(), [Pool(memory)])


def test_operation_that_is_not_supported_is_named(spy: Spy) -> None:
    spy.supports = False
    with pytest.raises(InvalidArgument, match=r"P8: operation 0 \(RELU\)"):
        prepare(spy, relu())
    assert Device("spy", spy).supported_operations(relu(), []) == [False]


@pytest.mark.parametrize(("output", "vary"), [((4,), False), ((0,), True), ((), True)])
def test_model_reports_whether_its_output_shapes_vary(
    spy: Spy, output: tuple[int, ...], vary: bool
) -> None:
    assert prepare(spy, relu(output=output)).shapes_vary is vary


def test_closing_frees_what_the_executor_holds(spy: Spy) -> None:
    prepare(spy, relu()).close()
    assert spy.closed == 1


def test_view_outlives_its_pool(pool: Pool) -> None:
    view = pool.writable
    pool.close()
    view[:] = bytes([5]) * len(view)
    assert bytes(view) == bytes([5]) * len(view)
