"""Checks a whole model: its subgraphs, how they nest, and their IF and WHILE operations.

NNAPI: Validation.cpp validateModel (canonical), ValidateHal.cpp validateModel. If the two
differ, the canonical reading counts. Not rules: M2 (models without inputs or outputs pass in
both), M7 (any value of the relaxed flag), M8 and O20 (the 1.3 layout cannot break them).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

from nnburst.hal.enums import FeatureLevel, OperandLifeTime, OperandType, OperationType
from nnburst.hal.model import SCALARS, Model, Operand, Operation, Subgraph, is_extension
from nnburst.hal.signature import type_name
from nnburst.hal.validation.operation import (
    CONTROL_FLOW,
    Signatures,
    Surroundings,
    validate_operand,
    validate_operation,
)
from nnburst.hal.validation.values import Broken, check_range, validate_extension_prefixes

_L = OperandLifeTime
_WRITABLE: Final = frozenset({_L.TEMPORARY_VARIABLE, _L.SUBGRAPH_OUTPUT})


# -- Rules O23 and P5 to P9: operations and operands of one subgraph fit together ------------------
# NNAPI: Validation.cpp validateModelSubgraph, ValidateHal.cpp validateModel.


def validate_graph(subgraph: Subgraph) -> None:
    """Check data flow, interface and consumer counts; operands and operations were checked before.

    Raises:
        Broken: O23, P5 to P9.
    """
    _check_flow(subgraph)
    _check_consumers(subgraph)
    _check_interface(subgraph, subgraph.input_indexes, _L.SUBGRAPH_INPUT, "input")
    _check_interface(subgraph, subgraph.output_indexes, _L.SUBGRAPH_OUTPUT, "output")


def _check_flow(subgraph: Subgraph) -> None:
    """Check that the operations' order writes every value once, before it is read."""
    known = [operand.lifetime not in _WRITABLE for operand in subgraph.operands]
    for number, operation in enumerate(subgraph.operations):
        for index in operation.inputs:
            if not known[index]:
                raise Broken("P6", f"operation {number} reads operand {index} before it is written")
        for index in operation.outputs:
            lifetime = subgraph.operands[index].lifetime
            if lifetime not in _WRITABLE:
                raise Broken("P5", f"operation {number} writes operand {index}, a {lifetime.name}")
            if known[index]:
                raise Broken("P7", f"operation {number} writes operand {index} a second time")
            known[index] = True
    if not all(known):
        raise Broken("P8", f"operand {known.index(False)} is never written")


def _check_consumers(subgraph: Subgraph) -> None:
    uses = [0] * len(subgraph.operands)
    for operation in subgraph.operations:
        for index in operation.inputs:
            uses[index] += 1
    for index, (operand, count) in enumerate(zip(subgraph.operands, uses, strict=True)):
        if operand.number_of_consumers != count:
            raise Broken(
                "O23",
                f"operand {index}: number_of_consumers is {operand.number_of_consumers},"
                f" {count} inputs read it",
            )


def _check_interface(
    subgraph: Subgraph, indexes: Sequence[int], lifetime: OperandLifeTime, name: str
) -> None:
    """Check that the list has exactly the operands with its lifetime, each once."""
    count = len(subgraph.operands)
    for position, index in enumerate(indexes):
        if not 0 <= index < count:
            raise Broken("P9", f"{name} {position} is operand {index} of {count}")
        found = subgraph.operands[index].lifetime
        if found != lifetime:
            raise Broken("P9", f"{name} {position} is operand {index}, a {found.name}")
    listed = set(indexes)
    if len(listed) != len(indexes):
        raise Broken("P9", f"an operand is listed twice among the {name}s")
    for index, operand in enumerate(subgraph.operands):
        if operand.lifetime == lifetime and index not in listed:
            raise Broken("P9", f"operand {index} is a {lifetime.name} but not among the {name}s")


#: Deepest nesting of subgraphs. DEVIATES: the original has no limit and overflows its stack; an executor
#: that evaluates subgraphs recursively needs one.
MAX_SUBGRAPH_DEPTH: Final = 64


# -- Rule M5: references of subgraphs form no cycle, and their nesting is limited ------------------
# NNAPI: Validation.cpp checkNoReferenceCycles.


def validate_nesting(model: Model) -> None:
    """Check the references of all subgraphs; their SUBGRAPH operands are valid (O19).

    Raises:
        Broken: M5.
    """
    uses = [_references(graph) for graph in (*model.referenced, model.main)]
    users: list[list[int]] = [[] for _ in uses]
    for user, used in enumerate(uses):
        for index in used:
            users[index].append(user)
    missing = [len(used) for used in uses]
    depths = [0] * len(uses)
    # A subgraph's depth is known after the depths of all subgraphs that it uses; in a cycle, never.
    order = [index for index, count in enumerate(missing) if not count]
    for index in order:
        for user in users[index]:
            depths[user] = max(depths[user], depths[index] + 1)
            missing[user] -= 1
            if not missing[user]:
                order.append(user)
    if len(order) < len(uses):
        raise Broken("M5", "subgraphs refer to each other in a cycle")
    if max(depths) > MAX_SUBGRAPH_DEPTH:
        raise Broken("M5", f"subgraphs nest {max(depths)} deep, at most {MAX_SUBGRAPH_DEPTH}")


def _references(graph: Subgraph) -> set[int]:
    return {o.location.offset for o in graph.operands if o.lifetime == OperandLifeTime.SUBGRAPH}


# -- Rules P10 to P12: IF and WHILE fit the subgraphs that they run --------------------------------
# NNAPI: Validation.cpp validateIfOperation, validateWhileOperation. All subgraphs are valid by
# themselves when these run (P13: the original aborts where a referenced one is not).


class ControlFlow:
    """Checks the control flow of one model."""

    def __init__(self, model: Model, known_sizes: Collection[OperationType]) -> None:
        """Prepare the checks.

        Args:
            model: the model with the referenced subgraphs.
            known_sizes: operations whose operands must have known dimensions (P12).
        """
        self._referenced = model.referenced
        self._known_sizes = known_sizes
        # Long lists of scales are compared once per pair, however many operations use them.
        self._same_params: dict[tuple[int, int], bool] = {}

    def validate(self, operation: Operation, subgraph: Subgraph) -> None:
        """Check one IF or WHILE of `subgraph`.

        Raises:
            Broken: P10, P11, P12.
        """
        inputs = [subgraph.operands[i] for i in operation.inputs]
        outputs = [subgraph.operands[i] for i in operation.outputs]
        kind = OperationType(operation.type)
        rule, check = (
            ("P10", self._check_if) if kind == OperationType.IF else ("P11", self._check_while)
        )
        if len(inputs) < 3 or not outputs:
            counts = f"{len(inputs)} inputs and {len(outputs)} outputs"
            raise Broken(rule, f"{counts}, expected at least 3 and 1")
        seen = check(inputs, outputs)
        if kind in self._known_sizes and any(map(_has_unknown_size, (*inputs, *outputs, *seen))):
            raise Broken("P12", f"{kind.name}: an operand has an unknown size")

    def _check_if(self, inputs: Sequence[Operand], outputs: Sequence[Operand]) -> list[Operand]:
        _check_boolean("P10", inputs[0], "the condition")
        seen = []
        for name, operand in (("then", inputs[1]), ("else", inputs[2])):
            ins, outs = self._interface("P10", operand, f"the {name} model")
            self._check_same("P10", ins, inputs[3:], f"inputs of the {name} model")
            self._check_same("P10", outs, outputs, f"outputs of the {name} model")
            seen += ins + outs
        return seen

    def _check_while(self, inputs: Sequence[Operand], outputs: Sequence[Operand]) -> list[Operand]:
        condition, decisions = self._interface("P11", inputs[0], "the condition model")
        self._check_same("P11", condition, inputs[2:], "inputs of the condition model")
        if len(decisions) != 1:
            raise Broken("P11", f"the condition model has {len(decisions)} outputs, expected 1")
        _check_boolean("P11", decisions[0], "the condition model's output")
        ins, outs = self._interface("P11", inputs[1], "the body model")
        self._check_same("P11", ins, inputs[2:], "inputs of the body model")
        if not len(ins) >= len(outs) >= len(outputs):
            raise Broken(
                "P11",
                f"the body model has {len(ins)} inputs and {len(outs)} outputs, the operation"
                f" {len(outputs)} outputs; expected no more of each than of the one before",
            )
        self._check_same("P11", outs, ins[: len(outs)], "outputs of the body model, as its inputs")
        self._check_same("P11", outs[: len(outputs)], outputs, "outputs of the body model")
        return condition + ins + outs

    def _interface(
        self, rule: str, operand: Operand, what: str
    ) -> tuple[list[Operand], list[Operand]]:
        """The inputs and outputs of the subgraph to which `operand` refers."""
        if operand.type != OperandType.SUBGRAPH:
            raise Broken(rule, f"{what} is {type_name(operand.type)}, expected SUBGRAPH")
        graph = self._referenced[operand.location.offset]
        return (
            [graph.operands[i] for i in graph.input_indexes],
            [graph.operands[i] for i in graph.output_indexes],
        )

    def _check_same(
        self, rule: str, inner: Sequence[Operand], outer: Sequence[Operand], what: str
    ) -> None:
        if len(inner) != len(outer):
            raise Broken(rule, f"{what}: {len(inner)}, expected {len(outer)}")
        for position, (a, b) in enumerate(zip(inner, outer, strict=True)):
            different = _difference(a, b) or self._different_params(a, b)
            if different:
                raise Broken(rule, f"{what}: number {position} differs in {different}")

    def _different_params(self, a: Operand, b: Operand) -> str:
        pair = id(a.extra_params), id(b.extra_params)
        if pair not in self._same_params:
            self._same_params[pair] = a.extra_params == b.extra_params
        return "" if self._same_params[pair] else "extra_params"


def _check_boolean(rule: str, operand: Operand, what: str) -> None:
    if operand.type != OperandType.TENSOR_BOOL8 or operand.dimensions != (1,):
        found = f"{type_name(operand.type)} {list(operand.dimensions)}"
        raise Broken(rule, f"{what} is {found}, expected TENSOR_BOOL8 [1]")


def _difference(a: Operand, b: Operand) -> str:
    """The first difference because of which two operands cannot replace each other; empty if they can."""
    for name in ("type", "scale", "zero_point"):
        if getattr(a, name) != getattr(b, name):
            return f"{name}: {getattr(a, name)} and {getattr(b, name)}"
    if a.dimensions and b.dimensions:
        pairs = zip(a.dimensions, b.dimensions, strict=False)
        if len(a.dimensions) != len(b.dimensions) or any(x != y and x and y for x, y in pairs):
            return f"dimensions: {list(a.dimensions)} and {list(b.dimensions)}"
    return ""


def _has_unknown_size(operand: Operand) -> bool:
    if is_extension(operand.type) or operand.type in SCALARS:
        return False
    return not operand.dimensions or 0 in operand.dimensions


#: Largest pool: the control channel's sizes are signed 64-bit numbers.
_POOL_MAX = 2**63 - 1


# -- The whole model -------------------------------------------------------------------------------


def validate_model(
    model: Model,
    signatures: Signatures,
    *,
    feature_level: FeatureLevel = FeatureLevel.AIDL_V4,
    known_sizes: Collection[OperationType] = (),
) -> None:
    """Check a model that may come from a hostile process.

    Args:
        model: the model; sizes of its pools must have been compared with the real ones.
        signatures: signatures of the core operations (P4). An operation without one is checked only by P1
            and P2, and cannot be run.
        feature_level: the version for which it is written; newer types and operations are refused.
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
