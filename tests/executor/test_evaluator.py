"""Models of several operations: static and dynamic steps, buffers, hostile memory, deadlines."""

from __future__ import annotations

import threading
import time
import tracemalloc
from collections.abc import Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import pytest

from executor.run_operation import omitted, output, run, scalar, tensor
from nnburst.executor.base import Argument, Outcome
from nnburst.executor.graph.operation import REGISTRY, Node, OperationDefinition
from nnburst.executor.reference.execution import ReferenceExecution
from nnburst.executor.reference.executor import ReferenceExecutor
from nnburst.hal.enums import ErrorStatus, OperandType, OperationType
from nnburst.hal.errors import InvalidArgument, NnburstError, ResourceExhausted
from nnburst.hal.model import DataLocation, MemoryPool, Model, Operand
from nnburst.hal.model_builder import ModelBuilder

F32, F16, I32 = (
    OperandType.TENSOR_FLOAT32,
    OperandType.TENSOR_FLOAT16,
    OperandType.TENSOR_INT32,
)
Array = npt.NDArray[np.generic]


def argument(array: Array | None, dimensions: Sequence[int] | None = None) -> Argument:
    if array is None:
        return Argument(None, tuple(dimensions or ()))
    dims = array.shape if dimensions is None else tuple(dimensions)
    return Argument(array.reshape(-1).view(np.uint8), dims)


def bound(
    model: Model,
    inputs: Sequence[Array | None],
    outputs: Sequence[Array],
    pools: Sequence[Array] = (),
) -> ReferenceExecution:
    dims = [model.main.operands[i].dimensions for i in model.main.output_indexes]
    prepared = ReferenceExecutor().prepare(model, [p.view(np.uint8) for p in pools])
    return prepared.bind(
        [argument(a) for a in inputs],
        [argument(a, d) for a, d in zip(outputs, dims, strict=True)],
    )


def add_chain(length: int, kind: OperandType = F32, *, known: bool = True) -> Model:
    """y = x + 1 + 1 + ...; every sum but the last is a temporary."""
    builder = ModelBuilder()
    value = builder.input(kind, (2, 3))
    one, none = builder.constant(kind, [1.0]), builder.scalar(0)
    for number in range(length):
        make = builder.output if number == length - 1 else builder.temporary
        result = make(kind, (2, 3) if known else ())
        builder.operation(OperationType.ADD, [value, one, none], [result])
        value = result
    return builder.build()


def reshape_model(*, shape_is_input: bool = True) -> Model:
    """y = reshape(x + 0, shape), the shape a model input."""
    builder = ModelBuilder()
    x = builder.input(F32, (2, 3))
    shape = builder.input(I32, (2,)) if shape_is_input else builder.constant(I32, np.array([3, 2]))
    moved, y = builder.temporary(F32, (2, 3)), builder.output(F32, (0, 0))
    zero, none = builder.constant(F32, [0.0]), builder.scalar(0)
    builder.operation(OperationType.ADD, [x, zero, none], [moved])
    builder.operation(OperationType.RESHAPE, [moved, shape], [y])
    return builder.build()


X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize("kind", [F32, F16])
@pytest.mark.parametrize("known", [True, False])
def test_chain_of_operations_computes_through_reused_temporaries(
    kind: OperandType, known: bool
) -> None:
    x = X.astype(np.float32 if kind is F32 else np.float16)
    y = np.zeros_like(x)
    execution = bound(add_chain(5, kind, known=known), [x], [y])
    assert execution.run().status is ErrorStatus.NONE
    assert (y == x + 5).all()


def test_bound_execution_sees_new_inputs() -> None:
    x, y = X.copy(), np.zeros_like(X)
    execution = bound(add_chain(2), [x], [y])
    for value in (1, 7):
        x[...] = value
        execution.run()
        assert (y == value + 2).all()


def test_static_run_does_not_allocate() -> None:
    x = np.zeros((2, 3), np.float32)
    execution = bound(add_chain(5), [x], [np.zeros_like(x)])
    execution.run()
    tracemalloc.start()
    before = tracemalloc.take_snapshot()
    for _ in range(20):
        execution.run()
    grown = tracemalloc.take_snapshot().compare_to(before, "filename")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sum(d.size_diff for d in grown if "nnburst/executor" in d.traceback[0].filename) <= 0
    assert peak < 200_000


def test_dynamic_step_follows_control_values_given_at_run_time() -> None:
    shape, y = np.array([3, 2], np.int32), np.zeros(6, np.float32)
    execution = bound(reshape_model(), [X, shape], [y])
    assert execution.run().output_shapes[0].dimensions == (3, 2)
    shape[...] = [1, 6]
    assert execution.run().output_shapes[0].dimensions == (1, 6)
    assert y.tolist() == X.ravel().tolist()
    shape[...] = [4, 2]
    outcome = execution.run()
    assert outcome.status is ErrorStatus.GENERAL_FAILURE
    assert outcome.output_shapes == ()
    assert "RESHAPE" in outcome.message


@pytest.mark.parametrize("shape_is_input", [True, False])
def test_small_output_buffer_reports_the_shape_and_stays_untouched(shape_is_input: bool) -> None:
    y = np.zeros(5, np.float32)
    given = [X, np.array([3, 2], np.int32)] if shape_is_input else [X]
    outcome = bound(reshape_model(shape_is_input=shape_is_input), given, [y]).run()
    assert outcome.status is ErrorStatus.OUTPUT_INSUFFICIENT_SIZE
    assert outcome.output_shapes[0].dimensions == (3, 2)
    assert not outcome.output_shapes[0].is_sufficient
    assert not y.any()


def test_sufficient_outputs_are_distinguished_from_insufficient_ones() -> None:
    builder = ModelBuilder()
    x = builder.input(F32, (4,))
    axis, parts = builder.scalar(0), builder.scalar(2)
    outputs = [builder.output(F32, (0,)) for _ in range(2)]
    builder.operation(OperationType.SPLIT, [x, axis, parts], outputs)
    values = np.arange(4, dtype=np.float32)
    buffers = [np.zeros(1, np.float32), np.zeros(2, np.float32)]
    outcome = bound(builder.build(), [values], buffers).run()
    assert outcome.status is ErrorStatus.OUTPUT_INSUFFICIENT_SIZE
    assert [(s.dimensions, s.is_sufficient) for s in outcome.output_shapes] == [
        ((2,), False),
        ((2,), True),
    ]


@pytest.mark.parametrize("is_constant", [True, False])
def test_result_without_room_takes_no_memory(is_constant: bool) -> None:
    builder = ModelBuilder()
    huge = np.array([2**14, 2**14], np.int32)
    dims = builder.constant(I32, huge) if is_constant else builder.input(I32, (2,))
    y = builder.output(F32, (0, 0))
    builder.operation(OperationType.FILL, [dims, builder.scalar(1.0)], [y])
    execution = bound(builder.build(), [] if is_constant else [huge], [np.zeros(1, np.float32)])
    tracemalloc.start()
    outcome = execution.run()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert outcome.status is ErrorStatus.OUTPUT_INSUFFICIENT_SIZE
    assert outcome.output_shapes[0].dimensions == (2**14, 2**14)
    assert peak < 1_000_000


def test_too_small_output_that_is_read_again_is_computed() -> None:
    builder = ModelBuilder()
    x = builder.input(F32, (3,))
    first, second = builder.output(F32, (0,)), builder.output(F32, (3,))
    one, none = builder.constant(F32, [1.0]), builder.scalar(0)
    builder.operation(OperationType.ADD, [x, one, none], [first])
    builder.operation(OperationType.ADD, [first, one, none], [second])
    b = np.zeros(3, np.float32)
    outcome = bound(builder.build(), [np.zeros(3, np.float32)], [np.zeros(2, np.float32), b]).run()
    assert outcome.status is ErrorStatus.OUTPUT_INSUFFICIENT_SIZE
    assert [s.is_sufficient for s in outcome.output_shapes] == [False, True]
    assert b.tolist() == [2, 2, 2]


def test_output_that_is_read_again_is_computed_privately_and_copied() -> None:
    builder = ModelBuilder()
    x = builder.input(F32, (3,))
    first, second = builder.output(F32, (3,)), builder.output(F32, (3,))
    one, none = builder.constant(F32, [1.0]), builder.scalar(0)
    builder.operation(OperationType.ADD, [x, one, none], [first])
    builder.operation(OperationType.ADD, [first, one, none], [second])
    values = np.zeros(3, np.float32)
    a, b = np.zeros(3, np.float32), np.zeros(3, np.float32)
    execution = bound(builder.build(), [values], [a, b])
    assert execution.run().status is ErrorStatus.NONE
    assert a.tolist() == [1, 1, 1]
    assert b.tolist() == [2, 2, 2]
    # Both outputs in one buffer: the second result cannot reach the first operation's consumer.
    shared = np.zeros(3, np.float32)
    bound(builder.build(), [values], [shared, shared]).run()
    assert set(shared.tolist()) <= {1.0, 2.0}


def test_declared_dimensions_that_contradict_the_computed_ones_fail_the_request() -> None:
    with pytest.raises(NnburstError, match=r"ADD: computes dimensions \[3\], declared are \[4\]"):
        run(OperationType.ADD, [tensor(F32, [1, 2, 3]), tensor(F32, [1]), scalar(0)],
            [output(F32, (4,))])  # fmt: skip


def test_declared_rank_that_contradicts_the_computed_one_fails_the_request() -> None:
    with pytest.raises(NnburstError, match="ADD: computes dimensions"):
        run(OperationType.ADD, [tensor(F32, [1, 2, 3]), tensor(F32, [1]), scalar(0)],
            [output(F32, (0, 0))])  # fmt: skip


def test_model_output_must_declare_a_forced_quantisation() -> None:
    q8 = OperandType.TENSOR_QUANT8_ASYMM
    given = [tensor(q8, [1, 2], 0.5, 3)]
    [y] = run(OperationType.LOGISTIC, given, [output(q8, (2,), 1 / 256, 0)])
    assert y.shape == (2,)
    with pytest.raises(NnburstError, match=r"declared are 0\.5 and 0") as caught:
        run(OperationType.LOGISTIC, given, [output(q8, (2,), 0.5, 0)])
    assert caught.value.status is ErrorStatus.GENERAL_FAILURE


def test_omitted_operand_that_is_not_optional_fails_the_request() -> None:
    with pytest.raises(NnburstError, match="ADD: operand 'input1' is omitted"):
        run(OperationType.ADD, [tensor(F32, [1]), omitted(F32), scalar(0)], [output(F32)])


def test_deadline_in_the_past_is_missed_and_one_ahead_is_met() -> None:
    y = np.zeros_like(X)
    execution = bound(add_chain(3), [X], [y])
    now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    outcome = execution.run(deadline_ns=now)
    assert outcome.status is ErrorStatus.MISSED_DEADLINE_TRANSIENT
    assert outcome.output_shapes == ()
    assert not y.any()
    assert execution.run(deadline_ns=now + 10**12).status is ErrorStatus.NONE


def test_deadline_is_checked_before_dynamic_steps() -> None:
    execution = bound(reshape_model(), [X, np.array([3, 2], np.int32)], [np.zeros(6, np.float32)])
    assert execution.run(deadline_ns=1).status is ErrorStatus.MISSED_DEADLINE_TRANSIENT


def test_constants_are_kept_when_their_pool_changes() -> None:
    pool = np.ones(4, np.float32)
    builder = ModelBuilder()
    x = builder.input(F32, (4,))
    weights = builder.operand(
        Operand(
            type=F32,
            dimensions=(4,),
            lifetime=4,  # type: ignore[arg-type]
            location=DataLocation(0, 0, 16),
        )
    )
    y = builder.output(F32, (4,))
    builder.operation(OperationType.ADD, [x, weights, builder.scalar(0)], [y])
    model = builder.build(pools=[MemoryPool(16)])
    result = np.zeros(4, np.float32)
    execution = bound(model, [np.zeros(4, np.float32)], [result], [pool])
    pool[...] = 99
    execution.run()
    assert result.tolist() == [1, 1, 1, 1]


def test_inputs_that_are_indexes_are_copied_before_an_operation_checks_them() -> None:
    """The kernel must see the values that it checked, whatever another process writes meanwhile."""
    indexes = np.array([0, 1], np.int32)
    builder = ModelBuilder()
    x, at = builder.input(F32, (3,)), builder.input(I32, (2,))
    y = builder.output(F32, (2,))
    builder.operation(OperationType.GATHER, [x, builder.scalar(0), at], [y])
    result = np.zeros(2, np.float32)
    values = np.array([5, 6, 7], np.float32)
    execution = bound(builder.build(), [values, indexes], [result])
    node_input = execution._frame.values[at]
    assert node_input is not None
    assert not np.shares_memory(node_input.array, indexes)
    execution.run()
    assert result.tolist() == [5, 6]
    indexes[...] = [2, 2]
    execution.run()
    assert result.tolist() == [7, 7]
    indexes[...] = [0, 3]
    assert execution.run().status is ErrorStatus.GENERAL_FAILURE


def test_data_inputs_are_read_in_place_and_cannot_be_written() -> None:
    x = X.copy()
    execution = bound(add_chain(1), [x], [np.zeros_like(x)])
    node_input = execution._frame.values[0]
    assert node_input is not None
    assert np.shares_memory(node_input.array, x)
    assert not node_input.array.flags.writeable


def test_kernel_that_raises_anything_ends_as_general_failure(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def kernel(node: Node) -> object:
        def fail() -> None:
            raise ZeroDivisionError("a bug")

        return fail

    old = REGISTRY[OperationType.ADD]
    broken = OperationDefinition(old.signature, old.shape, kernel)
    monkeypatch.setitem(REGISTRY, OperationType.ADD, broken)
    outcome = bound(add_chain(1), [X], [np.zeros_like(X)]).run()
    assert outcome == Outcome(ErrorStatus.GENERAL_FAILURE, (), "ZeroDivisionError: a bug")
    assert "an execution raised" in caplog.text


def without_memory(_: Node) -> object:
    raise MemoryError


def test_execution_without_memory_is_exhausted_and_no_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old = REGISTRY[OperationType.ADD]
    starved = OperationDefinition(old.signature, old.shape, lambda _: partial(without_memory, None))
    monkeypatch.setitem(REGISTRY, OperationType.ADD, starved)
    outcome = bound(add_chain(1), [X], [np.zeros_like(X)]).run()
    assert outcome == Outcome(ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT, (), "out of memory")


@pytest.mark.parametrize("stage", ["prepare", "bind"])
def test_model_or_request_without_memory_is_exhausted(
    monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    old = REGISTRY[OperationType.ADD]
    shape = without_memory if stage == "prepare" else old.shape
    starved = OperationDefinition(old.signature, shape, without_memory)
    monkeypatch.setitem(REGISTRY, OperationType.ADD, starved)
    executor, model = ReferenceExecutor(), add_chain(1)
    if stage == "prepare":
        with pytest.raises(ResourceExhausted) as caught:
            executor.prepare(model, [])
    else:
        prepared = executor.prepare(model, [])
        with pytest.raises(ResourceExhausted) as caught:
            prepared.bind([argument(X)], [argument(np.zeros_like(X))])
    assert caught.value.status is ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT


def test_not_a_number_and_overflow_raise_nothing() -> None:
    big = np.array([np.inf, np.nan, 3e38], np.float32)
    [y] = run(OperationType.EXP, [tensor(F32, big)], [output(F32)])
    assert np.isinf(y[0])
    assert np.isnan(y[1])
    assert np.isinf(y[2])


def test_closed_execution_does_not_run() -> None:
    y = np.zeros_like(X)
    execution = bound(add_chain(1), [X], [y])
    execution.close()
    execution.close()
    assert execution.run().status is ErrorStatus.INVALID_ARGUMENT
    assert not y.any()


def test_executions_of_one_model_run_in_parallel() -> None:
    prepared = ReferenceExecutor().prepare(add_chain(6), [])
    wrong: list[int] = []

    def work(value: int) -> None:
        x, y = np.full((2, 3), value, np.float32), np.zeros((2, 3), np.float32)
        execution = prepared.bind([argument(x)], [argument(y)])
        ended = [execution.run().status for _ in range(200)]
        if set(ended) != {ErrorStatus.NONE} or (y != value + 6).any():
            wrong.append(value)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_request_with_the_wrong_number_of_arguments_is_refused() -> None:
    prepared = ReferenceExecutor().prepare(add_chain(1), [])
    with pytest.raises(InvalidArgument, match="R1"):
        prepared.bind([], [argument(X)])


def test_input_buffer_that_is_too_short_is_refused() -> None:
    prepared = ReferenceExecutor().prepare(add_chain(1), [])
    short = Argument(np.zeros(23, np.uint8), (2, 3))
    with pytest.raises(InvalidArgument, match="R11"):
        prepared.bind([short], [argument(X)])


def test_unknown_and_mistyped_operations_are_unsupported_and_refused() -> None:
    builder = ModelBuilder()
    x, y = builder.input(F32, (1,)), builder.output(I32, (1,))
    builder.operation(OperationType.FLOOR, [x], [y])
    builder.operation(OperationType.OEM_OPERATION, [x], [builder.output(F32, (1,))])
    builder.operation(0x10000, [x], [builder.output(F32, (1,))])
    model = builder.build()
    executor = ReferenceExecutor()
    assert executor.supported(model) == [False, False, False]
    with pytest.raises(InvalidArgument, match="FLOOR"):
        executor.prepare(model, [])


def test_contradicting_shapes_let_a_model_be_prepared_but_not_executed() -> None:
    builder = ModelBuilder()
    x, y = builder.input(F32, (2,)), builder.output(F32, (2,))
    builder.operation(
        OperationType.ADD, [x, builder.constant(F32, [1, 2, 3]), builder.scalar(0)], [y]
    )
    prepared = ReferenceExecutor().prepare(builder.build(), [])
    ones = np.ones(2, np.float32)
    with pytest.raises(NnburstError, match="ADD"):
        prepared.bind([argument(ones)], [argument(ones.copy())])


def counting_kernel(built: list[str]) -> OperationDefinition:
    """ADD whose kernel keeps its constant operand doubled."""
    old = REGISTRY[OperationType.ADD]

    def kernel(node: Node) -> object:
        def build() -> Array:
            built.append("once")
            return node.tensor("input1").array * 2

        is_constant = node.is_constant("input1")
        y = node.constant("doubled", build) if is_constant else node.tensor("input1").array
        x, out = node.tensor("input0").array, node.output().array
        return lambda: np.add(x, y, out=out)

    return OperationDefinition(old.signature, old.shape, kernel)


@pytest.mark.parametrize("kind", [F32, F16])
def test_prepared_constants_are_shared_by_bindings(
    monkeypatch: pytest.MonkeyPatch, kind: OperandType
) -> None:
    built: list[str] = []
    monkeypatch.setitem(REGISTRY, OperationType.ADD, counting_kernel(built))
    x = X.astype(np.float32 if kind is F32 else np.float16)
    y = np.zeros_like(x)
    prepared = ReferenceExecutor().prepare(add_chain(1, kind), [])
    for _ in range(3):
        prepared.bind([argument(x)], [argument(y)]).run()
    assert (y == x + 2).all()
    assert built == ["once"]
    ReferenceExecutor().prepare(add_chain(1, kind), []).bind([argument(x)], [argument(y)])
    assert built == ["once"] * 2


def test_inputs_of_the_request_are_not_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []
    monkeypatch.setitem(REGISTRY, OperationType.ADD, counting_kernel(built))
    [y] = run(OperationType.ADD, [tensor(F32, [1]), tensor(F32, [3]), scalar(0)], [output(F32)])
    assert y.tolist() == [4]
    assert built == []
