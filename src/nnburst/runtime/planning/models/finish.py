"""Finishing a client's model: order, validity, hash, trailing arguments (RT:M10)."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from nnburst.executor.operations import SIGNATURES
from nnburst.hal.enums import FeatureLevel
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import Model, Operand, Operation, Subgraph
from nnburst.hal.validation import validate_model
from nnburst.runtime.planning.models.architecture_hash import architecture_hash
from nnburst.runtime.planning.models.finished_model import FinishedModel
from nnburst.runtime.planning.models.run_order import run_order
from nnburst.runtime.planning.models.trailing_arguments import without_trailing_arguments


def finish(
    model: Model,
    *,
    relaxed: Sequence[bool] | None = None,
    feature_level: FeatureLevel = FeatureLevel.AIDL_V4,
) -> FinishedModel:
    """Finish a model whose large values already lie in its pools.

    Args:
        model: operations of each subgraph in any order.
        relaxed: for the main and each referenced subgraph whether float32 may be computed as float16;
            by default the model's own flag for all.
        feature_level: the runtime's (RT:D5).

    Raises:
        InvalidArgument: the operations have no order, the model is invalid, or newer than `feature_level`.
    """
    graphs = (model.main, *model.referenced)
    flags = (model.relax_computation_float32_to_float16,) * len(graphs)
    if relaxed is not None:
        if len(relaxed) != len(graphs):
            raise InvalidArgument(f"relaxed: {len(relaxed)} flags for {len(graphs)} subgraphs")
        flags = tuple(relaxed)
    orders = tuple(run_order(graph.operands, graph.operations) for graph in graphs)
    ordered = _with_graphs(model, list(map(_in_order, graphs, orders)))
    validate_model(ordered, SIGNATURES, feature_level=feature_level)
    shortened = [
        _recounted(graph, without_trailing_arguments(graph, model.operand_values))
        for graph in (ordered.main, *ordered.referenced)
    ]
    return FinishedModel(
        _with_graphs(ordered, shortened), orders, flags, architecture_hash(ordered)
    )


def _in_order(graph: Subgraph, order: Sequence[int]) -> Subgraph:
    operations = tuple(graph.operations[number] for number in order)
    return Subgraph(graph.operands, operations, graph.input_indexes, graph.output_indexes)


def _with_graphs(model: Model, graphs: Sequence[Subgraph]) -> Model:
    return replace(model, main=graphs[0], referenced=tuple(graphs[1:]))


def _recounted(graph: Subgraph, operations: tuple[Operation, ...]) -> Subgraph:
    """The subgraph with these operations, and its consumers counted anew."""
    uses = [0] * len(graph.operands)
    for operation in operations:
        for index in operation.inputs:
            uses[index] += 1
    operands = tuple(
        operand if operand.number_of_consumers == count else _consumed(operand, count)
        for operand, count in zip(graph.operands, uses, strict=True)
    )
    return Subgraph(operands, operations, graph.input_indexes, graph.output_indexes)


def _consumed(operand: Operand, count: int) -> Operand:
    return replace(operand, number_of_consumers=count)
