"""IF and WHILE: branches, loops, nesting, shapes that grow, time limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pytest
from msgspec.structs import replace

from nnburst.executor.base import Argument, Outcome
from nnburst.executor.graph.operation import REGISTRY, Node, Run
from nnburst.executor.reference.executor import ReferenceExecutor
from nnburst.hal import vlog
from nnburst.hal.enums import ErrorStatus, OperandType, OperationType
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import Model
from nnburst.hal.model_builder import ModelBuilder, SubgraphBuilder
from nnburst.hal.validation import validate_model

F32, F16, I32, B8 = (
    OperandType.TENSOR_FLOAT32,
    OperandType.TENSOR_FLOAT16,
    OperandType.TENSOR_INT32,
    OperandType.TENSOR_BOOL8,
)
Array = npt.NDArray[np.generic]


def execute(
    model: Model, inputs: Sequence[Array | None], outputs: Sequence[Array], **limits: int
) -> Outcome:
    operands = [model.main.operands[i] for i in model.main.output_indexes]
    prepared = ReferenceExecutor().prepare(model, [])
    execution = prepared.bind(
        [
            Argument(None, ()) if a is None else Argument(a.reshape(-1).view(np.uint8), a.shape)
            for a in inputs
        ],
        [
            Argument(a.reshape(-1).view(np.uint8), o.dimensions)
            for a, o in zip(outputs, operands, strict=True)
        ],
    )
    return execution.run(**limits)


def binary_graph(
    builder: ModelBuilder,
    kind: OperationType,
    operand: float,
    dims: tuple[int, ...] = (2,),
    element: OperandType = F32,
) -> int:
    """A subgraph y = kind(x, operand)."""
    index, graph = builder.add_subgraph()
    x, y = graph.input(element, dims), graph.output(element, dims)
    graph.operation(kind, [x, graph.constant(element, [operand]), graph.scalar(0)], [y])
    return index


def if_model(element: OperandType = F32) -> Model:
    """y = x + 10 if condition else x * 3."""
    builder = ModelBuilder()
    then = binary_graph(builder, OperationType.ADD, 10, element=element)
    otherwise = binary_graph(builder, OperationType.MUL, 3, element=element)
    condition, x = builder.input(B8, (1,)), builder.input(element, (2,))
    y = builder.output(element, (2,))
    branches = [builder.subgraph(then), builder.subgraph(otherwise)]
    builder.operation(OperationType.IF, [condition, *branches, x], [y])
    return builder.build()


@pytest.mark.parametrize(("condition", "expected"), [(1, [11, 12]), (0, [3, 6]), (200, [11, 12])])
@pytest.mark.parametrize("element", [F32, F16])
def test_if_runs_the_chosen_branch(
    condition: int, expected: list[float], element: OperandType
) -> None:
    dtype = np.float32 if element is F32 else np.float16
    x, y = np.array([1, 2], dtype), np.zeros(2, dtype)
    outcome = execute(if_model(element), [np.array([condition], np.uint8), x], [y])
    assert outcome.status is ErrorStatus.NONE
    assert y.tolist() == expected


@pytest.fixture
def verbose() -> Iterator[None]:
    vlog.set_tags("cpuexe")
    yield
    vlog.set_tags("")


@pytest.mark.usefixtures("verbose")
def test_verbose_log_names_subgraphs_and_not_what_conditions_were(
    capsys: pytest.CaptureFixture[str],
) -> None:
    x, y = np.ones(2, np.float32), np.zeros(2, np.float32)
    for condition in (1, 0):
        execute(if_model(), [np.array([condition], np.uint8), x], [y])
    execute(while_model(3), [np.ones(1, np.float32)], [np.zeros(1, np.float32)])
    lines = [line.partition(": ")[2] for line in capsys.readouterr().err.splitlines()]
    assert lines.count("IF: subgraph 0 or 1 by a condition") == 2
    assert lines.count("WHILE: subgraph 1 as long as 0 gives true") == 1


def test_if_without_a_condition_fails_the_execution() -> None:
    x, y = np.ones(2, np.float32), np.zeros(2, np.float32)
    outcome = execute(if_model(), [None, x], [y])
    assert outcome.status is ErrorStatus.GENERAL_FAILURE
    assert "condition" in outcome.message


def test_if_output_takes_the_shape_of_the_branch_that_ran() -> None:
    builder = ModelBuilder()
    indexes = []
    for dims in ((2, 1), (1, 2)):
        index, graph = builder.add_subgraph()
        x, y = graph.input(F32, (2,)), graph.output(F32, (0, 0))
        shape = graph.constant(I32, np.array(dims))
        graph.operation(OperationType.RESHAPE, [x, shape], [y])
        indexes.append(builder.subgraph(index))
    condition, x = builder.input(B8, (1,)), builder.input(F32, (2,))
    builder.operation(OperationType.IF, [condition, *indexes, x], [builder.output(F32, (0, 0))])
    model = builder.build()
    for value, dims in ((1, (2, 1)), (0, (1, 2))):
        given = [np.array([value], np.uint8), np.ones(2, np.float32)]
        outcome = execute(model, given, [np.zeros(2, np.float32)])
        assert outcome.output_shapes[0].dimensions == dims


def test_branch_that_is_not_taken_may_be_impossible() -> None:
    builder = ModelBuilder()
    good = binary_graph(builder, OperationType.ADD, 1)
    index, graph = builder.add_subgraph()
    x, y = graph.input(F32, (2,)), graph.output(F32, (2,))
    graph.operation(OperationType.ADD, [x, graph.constant(F32, [1, 2, 3]), graph.scalar(0)], [y])
    condition, x = builder.input(B8, (1,)), builder.input(F32, (2,))
    branches = [builder.subgraph(good), builder.subgraph(index)]
    builder.operation(OperationType.IF, [condition, *branches, x], [builder.output(F32, (2,))])
    model = builder.build()
    x, y = np.ones(2, np.float32), np.zeros(2, np.float32)
    assert execute(model, [np.array([1], np.uint8), x], [y]).status is ErrorStatus.NONE
    outcome = execute(model, [np.array([0], np.uint8), x], [y])
    assert outcome.status is ErrorStatus.GENERAL_FAILURE


def test_if_condition_must_have_the_dimensions_1() -> None:
    builder = ModelBuilder()
    branch = builder.subgraph(binary_graph(builder, OperationType.ADD, 1))
    condition, x = builder.input(B8, (0,)), builder.input(F32, (2,))
    builder.operation(OperationType.IF, [condition, branch, branch, x], [builder.output(F32, (2,))])
    with pytest.raises(InvalidArgument, match="P10"):
        ReferenceExecutor().prepare(builder.build(), [])


def less_than(builder: ModelBuilder, limit: float, dims: tuple[int, ...] = (1,)) -> int:
    """A subgraph: is the second input below `limit`? The first is ignored but for its place."""
    index, graph = builder.add_subgraph()
    graph.input(F32, dims)
    counter, result = graph.input(I32, (1,)), graph.output(B8, (1,))
    graph.operation(OperationType.LESS, [counter, graph.constant(I32, [limit])], [result])
    return index


def counting(
    builder: ModelBuilder,
    step: Callable[[SubgraphBuilder, int], None],
    dims: tuple[int, ...] = (1,),
) -> int:
    """A loop body: value = step(value), counter += 1."""
    index, graph = builder.add_subgraph()
    value, counter = graph.input(F32, dims), graph.input(I32, (1,))
    step(graph, value)
    next_counter = graph.output(I32, (1,))
    graph.operation(
        OperationType.ADD, [counter, graph.constant(I32, [1]), graph.scalar(0)], [next_counter]
    )
    return index


def doubled(graph: SubgraphBuilder, value: int) -> None:
    result = graph.output(F32, (1,))
    graph.operation(OperationType.ADD, [value, value, graph.scalar(0)], [result])


def grown(graph: SubgraphBuilder, value: int) -> None:
    result = graph.output(F32, (0,))
    graph.operation(OperationType.CONCATENATION, [value, value, graph.scalar(0)], [result])


def while_model(limit: int, *, grows: bool = False) -> Model:
    """(value, counter) = body(value, counter) while counter < limit; gives the value."""
    builder = ModelBuilder()
    dims = (0,) if grows else (1,)
    condition = less_than(builder, limit, dims)
    body = counting(builder, grown if grows else doubled, dims)
    value, counter = builder.input(F32, (1,)), builder.constant(I32, [0])
    result = builder.output(F32, dims)
    operands = [builder.subgraph(condition), builder.subgraph(body), value, counter]
    builder.operation(OperationType.WHILE, operands, [result])
    return builder.build()


@pytest.mark.parametrize(("limit", "expected"), [(0, 3), (1, 6), (5, 96)])
def test_while_loops_until_its_condition_is_false(limit: int, expected: float) -> None:
    y = np.zeros(1, np.float32)
    outcome = execute(while_model(limit), [np.array([3], np.float32)], [y])
    assert outcome.status is ErrorStatus.NONE
    assert y.tolist() == [expected]


def test_while_values_may_grow() -> None:
    y = np.zeros(8, np.float32)
    outcome = execute(while_model(3, grows=True), [np.array([7], np.float32)], [y])
    assert outcome.output_shapes[0].dimensions == (8,)
    assert y.tolist() == [7] * 8


def test_while_output_buffer_that_is_too_small_reports_the_final_shape() -> None:
    y = np.zeros(4, np.float32)
    outcome = execute(while_model(3, grows=True), [np.array([7], np.float32)], [y])
    assert outcome.status is ErrorStatus.OUTPUT_INSUFFICIENT_SIZE
    assert outcome.output_shapes[0].dimensions == (8,)


def test_endless_loop_ends_by_the_loop_timeout() -> None:
    outcome = execute(
        while_model(2**31 - 1),
        [np.zeros(1, np.float32)],
        [np.zeros(1, np.float32)],
        loop_timeout_ns=1_000_000,
    )
    assert outcome.status is ErrorStatus.MISSED_DEADLINE_TRANSIENT
    assert outcome.output_shapes == ()
    assert "WHILE" in outcome.message


def test_loop_that_never_begins_cannot_time_out() -> None:
    y = np.zeros(1, np.float32)
    outcome = execute(while_model(0), [np.ones(1, np.float32)], [y], loop_timeout_ns=0)
    assert outcome.status is ErrorStatus.NONE
    assert y.tolist() == [1]


def test_while_inside_if_runs() -> None:
    builder = ModelBuilder()
    condition = less_than(builder, 4)
    body = counting(builder, doubled)
    index, graph = builder.add_subgraph()
    value = graph.input(F32, (1,))
    operands = [graph.subgraph(condition), graph.subgraph(body), value, graph.constant(I32, [0])]
    graph.operation(OperationType.WHILE, operands, [graph.output(F32, (1,))])
    other = binary_graph(builder, OperationType.ADD, 1, (1,))
    chosen, x = builder.input(B8, (1,)), builder.input(F32, (1,))
    branches = [builder.subgraph(index), builder.subgraph(other)]
    builder.operation(OperationType.IF, [chosen, *branches, x], [builder.output(F32, (1,))])
    y = np.zeros(1, np.float32)
    execute(builder.build(), [np.array([1], np.uint8), np.ones(1, np.float32)], [y])
    assert y.tolist() == [16]


def test_control_flow_is_supported_only_with_supported_subgraphs() -> None:
    executor = ReferenceExecutor()
    assert executor.supported(while_model(1)) == [True]
    builder = ModelBuilder()
    index, graph = builder.add_subgraph()
    x, y = graph.input(F32, (1,)), graph.output(F32, (1,))
    graph.operation(OperationType.OEM_OPERATION, [x], [y])
    branch = builder.subgraph(index)
    condition, x = builder.input(B8, (1,)), builder.input(F32, (1,))
    builder.operation(OperationType.IF, [condition, branch, branch, x], [builder.output(F32, (1,))])
    assert executor.supported(builder.build()) == [False]


def nested(depth: int) -> Model:
    """IF in IF in IF: both branches of each level are the next level."""
    builder = ModelBuilder()
    inner = binary_graph(builder, OperationType.ADD, 1, (1,))
    for _ in range(depth):
        index, graph = builder.add_subgraph()
        condition, x = graph.input(B8, (1,)), graph.input(F32, (1,))
        operands = [graph.subgraph(inner), graph.subgraph(inner)]
        inputs = [x] if inner == 0 else [condition, x]
        graph.operation(
            OperationType.IF, [condition, *operands, *inputs], [graph.output(F32, (1,))]
        )
        inner = index
    condition, x = builder.input(B8, (1,)), builder.input(F32, (1,))
    branches = [builder.subgraph(inner), builder.subgraph(inner)]
    builder.operation(
        OperationType.IF, [condition, *branches, condition, x], [builder.output(F32, (1,))]
    )
    return builder.build()


def test_deeply_nested_subgraphs_cost_no_more_than_their_number() -> None:
    model = nested(62)
    validate_model(model, {})
    assert ReferenceExecutor().supported(model) == [True]
    y = np.zeros(1, np.float32)
    outcome = execute(model, [np.array([1], np.uint8), np.ones(1, np.float32)], [y])
    assert outcome.status is ErrorStatus.NONE
    assert y.tolist() == [2]


def test_branch_is_bound_once_for_the_same_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    bound = []
    old = REGISTRY[OperationType.MUL]

    def kernel(node: Node) -> Run:
        bound.append(node.type)
        run: Run = old.kernel(node)
        return run

    monkeypatch.setitem(REGISTRY, OperationType.MUL, replace(old, kernel=kernel))
    condition, x = np.array([0], np.uint8), np.array([1, 2], np.float32)
    y = np.zeros(2, np.float32)
    prepared = ReferenceExecutor().prepare(if_model(), [])
    inputs = [Argument(condition, (1,)), Argument(x.view(np.uint8), (2,))]
    execution = prepared.bind(inputs, [Argument(y.view(np.uint8), (2,))])
    for value in (1, 2, 3):
        x[...] = value
        assert execution.run().status is ErrorStatus.NONE
        assert y.tolist() == [3 * value] * 2
    assert len(bound) == 1


def test_loop_state_passes_through_while_the_body_writes_its_own_results() -> None:
    """Values of one iteration are the inputs of the next, in memory that the body writes again."""
    builder = ModelBuilder()
    condition = less_than(builder, 3, (2,))

    def swapped(graph: SubgraphBuilder, value: int) -> None:
        axis = graph.constant(I32, [0])
        graph.operation(OperationType.REVERSE, [value, axis], [graph.output(F32, (2,))])

    body = counting(builder, swapped, (2,))
    value, counter = builder.input(F32, (2,)), builder.constant(I32, [0])
    operands = [builder.subgraph(condition), builder.subgraph(body), value, counter]
    builder.operation(OperationType.WHILE, operands, [builder.output(F32, (2,))])
    y = np.zeros(2, np.float32)
    execute(builder.build(), [np.array([1, 2], np.float32)], [y])
    assert y.tolist() == [2, 1]


def not_graph(builder: ModelBuilder) -> int:
    """A subgraph y = not x, which can be a condition as well as a body."""
    index, graph = builder.add_subgraph()
    graph.operation(OperationType.LOGICAL_NOT, [graph.input(B8, (1,))], [graph.output(B8, (1,))])
    return index


def chosen_anyway(builder: ModelBuilder, branch: int) -> int:
    """A subgraph that runs `branch`, whatever its input is."""
    index, graph = builder.add_subgraph()
    x, branches = graph.input(B8, (1,)), [graph.subgraph(branch), graph.subgraph(branch)]
    graph.operation(OperationType.IF, [x, *branches, x], [graph.output(B8, (1,))])
    return index


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("begin", [0, 1])
def test_while_condition_may_run_the_subgraph_of_the_body(depth: int, begin: int) -> None:
    builder = ModelBuilder()
    body = condition = not_graph(builder)
    for _ in range(depth):
        condition = chosen_anyway(builder, condition)
    x, y = builder.input(B8, (1,)), builder.output(B8, (1,))
    graphs = [builder.subgraph(condition), builder.subgraph(body)]
    builder.operation(OperationType.WHILE, [*graphs, x], [y])
    model = builder.build()
    validate_model(model, {key: entry.signature for key, entry in REGISTRY.items()})
    result = np.full(1, 9, np.uint8)
    assert execute(model, [np.array([begin], np.uint8)], [result]).status is ErrorStatus.NONE
    assert result.tolist() == [1]  # not 1 is false: the loop ends if its value is 1
