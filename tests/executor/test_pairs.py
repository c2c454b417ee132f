"""An operation and what reads its result: engines join them if they can, and the results stay right."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import pytest

from nnburst.hal import environment
from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.model import Model
from nnburst.testing.conformance.runners import LocalPrepared, LocalRunner
from nnburst.testing.models.random_graphs import PRIMARY
from nnburst.testing.models.random_graphs.builder import (
    F32,
    I32,
    JOINED,
    Q8,
    Q8S,
    TEMPLATES,
    RandomGraph,
)
from nnburst.testing.models.random_graphs.chain_builder import SHAPES
from nnburst.testing.models.random_graphs.pairs import (
    ONLY_READERS,
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
each_engine_and_every_type = pytest.mark.parametrize(
    ("engine", "kind"), cases(dict.fromkeys(ENGINES, KINDS))
)


def tried(engine: str, graphs: Iterable[RandomGraph | None]) -> Joined:
    with warnings.catch_warnings():  # random numbers leave float16's range
        warnings.filterwarnings("ignore", "overflow encountered", RuntimeWarning)
        return try_joined(graphs, LocalRunner(engine))


def reasons(found: Joined) -> dict[str, str]:
    return {failure.case: failure.reason for failure in found.failures}


@each_engine_and_type
@pytest.mark.parametrize("consumer", [_O.RELU6, _O.ADD], ids=lambda o: o.name)
def test_every_operation_is_read_by_a_clamp_and_by_a_sum(
    engine: str, kind: OperandType, consumer: OperationType
) -> None:
    every = enumerate(pairs([kind], [consumer]))
    # Each pair has another of the graphs whose tensors have elements, and the one whose tensors have none.
    numbered = [(p, n) for place, p in every for n in (place % (SHAPES - 1), SHAPES - 1)]
    found = tried(engine, (graph_of(pair, number) for pair, number in numbered))
    assert reasons(found) == {}
    assert found.executed > 60


@each_engine_and_type
def test_some_pairs_give_what_a_naive_evaluator_gives(engine: str, kind: OperandType) -> None:
    found = tried(engine, graphs_of(some_pairs(kind, 10)))
    assert reasons(found) == {}
    assert found.executed


@each_engine_and_type
def test_some_chains_give_what_a_naive_evaluator_gives(engine: str, kind: OperandType) -> None:
    found = tried(engine, (chain(kind, 3 + seed % 4, seed) for seed in range(20)))
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


def test_rank_is_read_as_a_number_of_no_dimension() -> None:
    graph = graph_of(Pair(_O.RANK, F32, 0, _O.FILL), 0)
    assert graph is not None
    rank, fill = graph.operations
    assert fill.inputs[1:] == rank.outputs
    assert graph.operands[rank.outputs[0]].value.dimensions == ()


def test_every_operation_without_graphs_of_its_own_is_in_pairs() -> None:
    assert set(OperationType) - set(JOINED) == {_O.IF, _O.WHILE, _O.OEM_OPERATION}
    assert set(TEMPLATES) < set(JOINED)


def test_the_same_pair_is_the_same_graph_each_time() -> None:
    pair = Pair(_O.CONV_2D, Q8, 3, _O.DEQUANTIZE)
    assert repr(graph_of(pair, 2)) == repr(graph_of(pair, 2))


def test_pairs_have_every_operation_on_both_sides_and_every_activation() -> None:
    found = list(pairs(tuple(OperandType)))
    assert {pair.producer for pair in found} == set(JOINED) - ONLY_READERS
    assert {pair.consumer for pair in found} == set(JOINED)
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
