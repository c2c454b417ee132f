"""Pairs of an operation and a reader of its result, which engines may fuse: results stay right."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

import msgspec
import pytest

from naive_graphs import evaluate_vector
from nnburst.hal import environment
from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.model import Model, Operation
from nnburst.hal.validation.operation import CONTROL_FLOW
from nnburst.testing.conformance.runners import LocalPrepared, LocalRunner
from nnburst.testing.models.random_graphs import PRIMARY
from nnburst.testing.models.random_graphs.builder import (
    B8,
    F16,
    F32,
    I32,
    Q8,
    Q8S,
    QPC,
    TEMPLATES,
    RandomGraph,
)
from nnburst.testing.models.random_graphs.chain_builder import SHAPES
from nnburst.testing.models.random_graphs.graphs import as_vector, cut
from nnburst.testing.models.random_graphs.pairs import (
    ONLY_READERS,
    OPERATIONS,
    Pair,
    chain,
    graph_of,
    pairs,
)
from nnburst.testing.pack.campaign import Joined, graphs_of, some_pairs, try_joined

_O = OperationType
ENGINES = {
    "litert": (F32, Q8, Q8S),
    "onnxruntime": (F32,),
    "openvino": (F32,),
    "reference": (F32, Q8, Q8S),
}
PACKAGES = {"litert": "ai_edge_litert", "onnxruntime": "onnxruntime", "openvino": "openvino"}
#: The others refuse IF and WHILE.
RUNS_GRAPHS = ("litert", "reference")
#: Types of a campaign: an engine refuses what it lacks.
KINDS = PRIMARY["single"]


def cases(kinds: Mapping[str, Sequence[OperandType]]) -> list[object]:
    return [
        pytest.param(
            engine,
            kind,
            id=f"{engine} {kind.name}",
            marks=pytest.mark.skipif(
                importlib.util.find_spec(PACKAGES.get(engine, "nnburst")) is None,
                reason=f"the engine of {engine} is not installed",
            ),
        )
        for engine, found in kinds.items()
        for kind in found
    ]


each_engine_and_type = pytest.mark.parametrize(("engine", "kind"), cases(ENGINES))
#: Unsigned values go the ways of signed ones: their graphs are drawn in the campaign.
every_day = pytest.mark.every_day(
    *(
        f"{engine} {kind.name}"
        for engine, kinds in ENGINES.items()
        for kind in kinds
        if kind is not Q8
    )
)
each_engine_and_every_type = pytest.mark.parametrize(
    ("engine", "kind"), cases(dict.fromkeys(ENGINES, KINDS))
)

#: A clamp of floats and of integers, and a sum of floats; sums of integers are drawn in the campaign, too.
clamps_every_day = pytest.mark.every_day(
    *(
        f"RELU6-{engine} {kind.name}"
        for engine, kinds in ENGINES.items()
        for kind in kinds
        if kind is not Q8
    ),
    *(f"ADD-{engine} {F32.name}" for engine in ENGINES),
)


def tried(engine: str, graphs: Iterable[RandomGraph | None]) -> Joined:
    with warnings.catch_warnings():  # random numbers leave float16's range
        warnings.filterwarnings("ignore", "overflow encountered", RuntimeWarning)
        return try_joined(graphs, LocalRunner(engine))


def reasons(found: Joined) -> dict[str, str]:
    return {failure.case: failure.reason for failure in found.failures}


# Engines get the same graphs. To draw them takes longer than to execute them.


@cache
def read_by(consumer: OperationType, kind: OperandType) -> list[RandomGraph | None]:
    # Each pair has another of the graphs; those whose tensors have no elements are among them.
    every = enumerate(pairs([kind], [consumer]))
    return [graph_of(pair, place % SHAPES) for place, pair in every]


@cache
def drawn_pairs(kind: OperandType) -> list[RandomGraph | None]:
    return list(graphs_of(some_pairs(kind, 10)))


@cache
def drawn_in_control_flow(kind: OperandType) -> list[RandomGraph | None]:
    return list(graphs_of(with_control_flow(kind)[:6]))


@cache
def drawn_chains(kind: OperandType) -> list[RandomGraph | None]:
    return [chain(kind, 3 + seed % 4, seed) for seed in range(20)]


@clamps_every_day
@each_engine_and_type
@pytest.mark.parametrize("consumer", [_O.RELU6, _O.ADD], ids=lambda o: o.name)
def test_every_operation_is_read_by_a_clamp_and_by_a_sum(
    engine: str, kind: OperandType, consumer: OperationType
) -> None:
    found = tried(engine, read_by(consumer, kind))
    assert reasons(found) == {}
    assert found.executed > 60


@every_day
@each_engine_and_type
def test_some_pairs_give_what_a_naive_evaluator_gives(engine: str, kind: OperandType) -> None:
    found = tried(engine, drawn_pairs(kind))
    assert reasons(found) == {}
    assert found.executed


@every_day
@each_engine_and_type
def test_some_graphs_that_an_if_or_a_while_runs_give_what_a_naive_evaluator_gives(
    engine: str, kind: OperandType
) -> None:
    found = tried(engine, drawn_in_control_flow(kind))
    assert reasons(found) == {}
    assert bool(found.executed) == (engine in RUNS_GRAPHS)


@every_day
@each_engine_and_type
def test_some_chains_give_what_a_naive_evaluator_gives(engine: str, kind: OperandType) -> None:
    found = tried(engine, drawn_chains(kind))
    assert reasons(found) == {}
    assert found.executed


@pytest.mark.campaign
@each_engine_and_every_type
def test_pairs_give_what_a_naive_evaluator_gives(engine: str, kind: OperandType) -> None:
    found = tried(engine, graphs_of(some_pairs(kind, environment.PAIRS.read())))
    assert reasons(found) == {}


@pytest.mark.campaign
@each_engine_and_every_type
def test_chains_give_what_a_naive_evaluator_gives(engine: str, kind: OperandType) -> None:
    seeds = range(20, 20 + min(2000, 10 * environment.PAIRS.read()))
    found = tried(engine, (chain(kind, 3 + seed % 4, seed) for seed in seeds))
    assert reasons(found) == {}


# -- What is drawn ---------------------------------------------------------------------------------


@pytest.mark.campaign
def test_no_hash_is_taken_of_what_engines_may_round() -> None:
    read = [graph_of(pair, 0) for pair in [*pairs([F32], [_O.LSH_PROJECTION])][::3]]
    graphs = [chain(F32, 6, 687), *read]  # by chance this chain's hash was the same five times
    hashes = [(g, o) for g in graphs if g for o in g.operations if o.kind is _O.LSH_PROJECTION]
    assert hashes
    assert [o for g, o in hashes if any(g.operands[i].slack for i in o.inputs)] == []


@pytest.mark.parametrize(
    ("kind", "length", "seed"),
    [
        pytest.param(Q8S, 6, 275619, id="a mean that is a step off is multiplied"),
        pytest.param(Q8S, 5, 276598, id="a selected step is multiplied"),
        pytest.param(Q8S, 3, 206120, id="a quantised step goes through softmax"),
        pytest.param(Q8S, 3, 261092, id="the greatest of two that are a step apart"),
        pytest.param(Q8S, 3, 280288, id="a cell state of two parts"),
        pytest.param(Q8, 6, 244031, id="a cell state of two parts, 16 bits"),
        pytest.param(Q8, 4, 335597, id="the least of two that are a step apart"),
        pytest.param(Q8, 3, 358272, id="the greatest of two that the first operation rounds"),
        pytest.param(F32, 5, 306858, id="a hash of 0, which NEG may give as 0 or -0"),
    ],
)
def test_rounding_that_a_result_may_have_does_not_make_a_later_one_wrong(
    kind: OperandType, length: int, seed: int
) -> None:
    pytest.importorskip(PACKAGES["litert"], reason="whose results were called wrong")
    found = tried("litert", [chain(kind, length, seed)])
    assert reasons(found) == {}


def test_boxes_of_equal_scores_are_picked_in_the_order_of_the_originals_list() -> None:
    found = tried("reference", [chain(Q8, 5, 1210)])
    assert (found.executed, reasons(found)) == (1, {})


def test_no_if_decides_by_a_result_of_open_extent() -> None:
    found = tried("reference", [chain(Q8, 6, 3035)])
    assert (found.executed, reasons(found)) == (1, {})


@pytest.mark.campaign
def test_the_second_operation_reads_the_result_of_the_first() -> None:
    for kind in (F32, I32, Q8):
        for graph in filter(None, graphs_of(some_pairs(kind, 5, seed=1))):
            first, second = graph.operations[-2:]
            assert set(first.outputs) & set(second.inputs)


def test_graphs_of_a_pair_differ_in_rank_inputs_constants_and_what_is_seen() -> None:
    pair = Pair(_O.CONCATENATION, F32, 0, _O.ADD)
    *graphs, empty = [graph for number in range(SHAPES) if (graph := graph_of(pair, number))]
    assert len(graphs) == SHAPES - 1
    assert [o.kind for o in empty.operations] == [_O.SLICE, _O.CONCATENATION, _O.ADD]
    assert 0 in empty.operands[empty.operations[0].outputs[0]].value.dimensions
    tensors = [graph.operations[0].inputs[:-1] for graph in graphs]
    assert {len(each) for each in tensors} >= {1, 2, 3, 4, 5, 6}
    ranks = {
        len(g.operands[i].value.dimensions)
        for g, each in zip(graphs, tensors, strict=True)
        for i in each
    }
    assert ranks == {1, 2, 3, 4}
    sources = [{g.operands[i].source for i in g.operations[1].inputs[:2]} for g in graphs]
    assert any("constant" in each for each in sources)
    assert any("input" in each for each in sources)
    seen = [len(graph.outputs) for graph in graphs]
    assert sorted(seen) == [1, 1, 1, 1, 1, 2]


@pytest.mark.parametrize("kind", [F32, F16, Q8S])
def test_no_graph_has_images_without_pixels(kind: OperandType) -> None:
    windows = [
        _O.RESIZE_BILINEAR, _O.RESIZE_NEAREST_NEIGHBOR, _O.TRANSPOSE_CONV_2D, _O.CONV_2D, _O.MAX_POOL_2D,
        _O.AVERAGE_POOL_2D, _O.L2_POOL_2D, _O.DEPTHWISE_CONV_2D,
    ]  # fmt: skip
    empty = [graph_of(Pair(_O.TRANSPOSE, kind, 0, window), SHAPES - 1) for window in windows]
    assert reasons(tried("reference", empty)) == {}


def test_rank_is_read_as_a_number_of_no_dimension() -> None:
    graph = graph_of(Pair(_O.RANK, F32, 0, _O.FILL), 0)
    assert graph is not None
    rank, fill = graph.operations
    assert fill.inputs[1:] == rank.outputs
    assert graph.operands[rank.outputs[0]].value.dimensions == ()


def test_every_operation_without_graphs_of_its_own_is_in_pairs() -> None:
    assert set(OperationType) - set(OPERATIONS) == {_O.OEM_OPERATION}
    assert set(TEMPLATES) < set(OPERATIONS)


def test_the_same_pair_is_the_same_graph_each_time() -> None:
    pair = Pair(_O.CONV_2D, Q8, 3, _O.DEQUANTIZE)
    assert repr(graph_of(pair, 2)) == repr(graph_of(pair, 2))


def test_pairs_have_every_operation_on_both_sides_and_every_activation() -> None:
    found = list(pairs(tuple(OperandType)))
    assert {pair.producer for pair in found} == set(OPERATIONS) - ONLY_READERS
    assert {pair.consumer for pair in found} == set(OPERATIONS)
    assert {pair.activation for pair in found if pair.producer == _O.CONV_2D} == {0, 1, 2, 3}
    assert {pair.activation for pair in found if pair.producer == _O.RESHAPE} == {0}


class Careless(LocalRunner):
    """Takes a clamp to 0 to 6 for one to 0 and above."""

    def prepare(self, model: Model, pools: Sequence[bytes]) -> LocalPrepared:
        operations = tuple(
            msgspec.structs.replace(o, type=_O.RELU) if o.type == _O.RELU6 else o
            for o in model.main.operations
        )
        main = msgspec.structs.replace(model.main, operations=operations)
        return super().prepare(msgspec.structs.replace(model, main=main), pools)


def test_a_clamp_that_is_lost_is_found() -> None:
    pair = Pair(_O.MUL, F32, 0, _O.RELU6)
    graphs = [graph_of(pair, number) for number in range(SHAPES)]
    assert try_joined(graphs, LocalRunner("reference")).failures == ()
    assert try_joined(graphs, Careless("reference")).failures


# -- IF and WHILE ----------------------------------------------------------------------------------


def with_control_flow(kind: OperandType) -> list[Pair]:
    """The pairs that have an IF or a WHILE, in a random order."""
    return [p for p in some_pairs(kind, 10**9) if CONTROL_FLOW & {p.producer, p.consumer}]


@pytest.mark.parametrize("kind", [F32, I32, B8])
def test_what_an_if_or_a_while_gives_is_known_without_running_it(kind: OperandType) -> None:
    for graph in filter(None, graphs_of(with_control_flow(kind)[:4])):
        if any(o.kind is QPC for each in (graph, *graph.referenced) for o in each.operands):
            continue  # a vector has no scales of the bias that belongs to such weights
        outputs = cut(graph, range(len(graph.operations))).outputs
        for index, ran in zip(outputs, evaluate_vector(as_vector(graph)), strict=True):
            known = graph.operands[index].value
            assert known.array.tobytes() == ran.array.tobytes()
            assert known.dimensions == ran.dimensions


@pytest.mark.parametrize("which", sorted(CONTROL_FLOW), ids=lambda o: o.name)
def test_branches_and_bodies_get_all_kinds_of_operands(which: OperationType) -> None:
    around = [
        Pair(_O.RANK, F32, 0, which),
        Pair(which, F32, 0, _O.TANH),
        Pair(_O.ADD, F32, 1, which),
    ]
    graphs = list(filter(None, graphs_of(around)))
    found = [(g, o) for g in graphs for o in g.operations if o.kind == which]
    given = [g.operands[i] for g, o in found for i in o.inputs]
    assert {"input", "constant", "computed", "subgraph"} <= {o.source for o in given}
    shapes = [o.value.dimensions for o in given]
    assert {len(shape) for shape in shapes} == {0, 1, 2, 3, 4}
    assert any(0 in shape for shape in shapes)
    assert len({o.kind for g in graphs for each in g.referenced for o in each.operations}) > 8
    if which == _O.IF:
        assert {bool(g.operands[o.inputs[0]].value.array) for g, o in found} == {False, True}


def test_an_if_decides_by_a_result_and_takes_that_of_rank() -> None:
    read = Pair(_O.LESS, F32, 0, _O.IF)
    graphs = [g for number in range(SHAPES - 1) for g in [graph_of(read, number)] if g]
    assert all(set(g.operations[1].inputs) & set(g.operations[0].outputs) for g in graphs)
    for consumer in (_O.IF, _O.WHILE):
        graph = graph_of(Pair(_O.RANK, F32, 0, consumer), 0)
        assert graph is not None
        rank, reader = graph.operations
        assert graph.operands[rank.outputs[0]].value.dimensions == ()
        assert set(rank.outputs) <= set(reader.inputs)


class Stubborn(LocalRunner):
    """Takes the other branch."""

    def prepare(self, model: Model, pools: Sequence[bytes]) -> LocalPrepared:
        def turned(o: Operation) -> Operation:
            condition, then, otherwise, *rest = o.inputs
            return msgspec.structs.replace(o, inputs=(condition, otherwise, then, *rest))

        operations = tuple(turned(o) if o.type == _O.IF else o for o in model.main.operations)
        main = msgspec.structs.replace(model.main, operations=operations)
        return super().prepare(msgspec.structs.replace(model, main=main), pools)


def test_a_branch_that_is_wrong_is_found() -> None:
    pair = Pair(_O.IF, F32, 0, _O.TANH)
    graphs = [graph_of(pair, number) for number in range(SHAPES)]
    assert try_joined(graphs, LocalRunner("reference")).failures == ()
    assert try_joined(graphs, Stubborn("reference")).failures
