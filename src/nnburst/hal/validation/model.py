"""Rules M1 to M9, and every rule of operands, operations and graphs over a whole model.

NNAPI: Validation.cpp validateModel (canonical), ValidateHal.cpp validateModel. If the two
differ, the canonical reading counts. Not rules: M2 (models without inputs or outputs pass in
both), M7 (any value of the relaxed flag), M8 and O20 (the 1.3 layout cannot break them).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from nnburst.hal.enums import FeatureLevel, OperationType
from nnburst.hal.model import Model, Subgraph
from nnburst.hal.validation.broken import Broken, check_range
from nnburst.hal.validation.control_flow import ControlFlow
from nnburst.hal.validation.graph import validate_graph
from nnburst.hal.validation.nesting import validate_nesting
from nnburst.hal.validation.operand import Surroundings, validate_operand
from nnburst.hal.validation.operation import CONTROL_FLOW, Signatures, validate_operation
from nnburst.hal.validation.values import validate_extension_prefixes

#: Largest pool: the control channel's sizes are signed 64-bit numbers.
_POOL_MAX = 2**63 - 1


def validate_model(
    model: Model,
    signatures: Signatures,
    *,
    feature_level: FeatureLevel = FeatureLevel.AIDL_V4,
    known_sizes: Collection[OperationType] = (),
) -> None:
    """Check a model from anywhere.

    Args:
        model: the model; sizes of its pools must have been compared with the real ones.
        signatures: of the core operations (P4). An operation that has none here is not checked
            beyond P1 and P2: nothing is known about it, and it cannot be run.
        feature_level: the version it is written for; newer types and operations are refused.
        known_sizes: control-flow operations that must not have operands of unknown size (P12):
            none by default, because executors here handle them; {WHILE} is the canonical rule for
            drivers, {IF, WHILE} the older one.

    Raises:
        InvalidArgument: a rule is broken; the message begins with its id and names the place
            ("validation:O16: operand 3 of main: …").
    """
    around = _surroundings(model, feature_level)
    for name, graph in _subgraphs(model):
        _validate_subgraph(name, graph, signatures, around)
    _located("model", validate_nesting, model)
    control_flow = ControlFlow(model, known_sizes)
    for name, graph in _subgraphs(model):
        for number, operation in enumerate(graph.operations):
            if operation.type in CONTROL_FLOW:
                where = f"operation {number} of {name}"
                _located(where, control_flow.validate, operation, graph)


def _subgraphs(model: Model) -> Iterator[tuple[str, Subgraph]]:
    yield "main", model.main
    for index, graph in enumerate(model.referenced):
        yield f"referenced[{index}]", graph


def _surroundings(model: Model, feature_level: FeatureLevel) -> Surroundings:
    if model.referenced and feature_level < FeatureLevel.V1_3:
        raise Broken("M8", "referenced subgraphs need version 1.3").at("model")
    for index, pool in enumerate(model.pools):
        _located(f"pools[{index}]", check_range, "M4", "size", pool.size, 1, _POOL_MAX)
        _located(f"pools[{index}]", check_range, "M3", "fd_index", pool.fd_index, 0, _POOL_MAX)
    validate_extension_prefixes(model.extension_name_to_prefix)
    return Surroundings(
        len(model.operand_values),
        tuple(pool.size for pool in model.pools),
        len(model.referenced),
        frozenset(entry.prefix for entry in model.extension_name_to_prefix),
        feature_level,
    )


def _validate_subgraph(
    name: str, graph: Subgraph, signatures: Signatures, around: Surroundings
) -> None:
    if not graph.operations or not graph.operands:
        message = f"{len(graph.operations)} operations and {len(graph.operands)} operands"
        raise Broken("M1", f"{message}, expected at least one of each").at(name)
    for index, operand in enumerate(graph.operands):
        try:
            validate_operand(operand, around)
        except Broken as broken:
            raise broken.at(f"operand {index} of {name}") from None
    for number, operation in enumerate(graph.operations):
        try:
            validate_operation(operation, graph, signatures, around)
        except Broken as broken:
            raise broken.at(f"operation {number} of {name}") from None
    _located(name, validate_graph, graph)


def _located(where: str, check: Callable[..., None], *arguments: object) -> None:
    try:
        check(*arguments)
    except Broken as broken:
        raise broken.at(where) from None
