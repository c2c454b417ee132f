"""Prepares a model for an executor: finds the operations that can run, and how long each value is needed."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from copy import copy
from typing import Any

import msgspec

from nnburst.executor.base import Bytes, memory_of
from nnburst.executor.graph.extension import find_definition, find_operand_type, with_local_codes
from nnburst.executor.graph.operation import OperationDefinition
from nnburst.executor.graph.tensor import Tensor, TensorType, read_only
from nnburst.hal import late_numpy as np
from nnburst.hal.enums import OperandLifeTime, OperationType
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import Model, Operand, Operation, Subgraph
from nnburst.hal.signature import Match, Role
from nnburst.hal.validation.operation import CONTROL_FLOW


class Step(msgspec.Struct, frozen=True, eq=False):
    """One operation of a graph.

    Attributes:
        definition: signature, shape rule and kernel.
        match: form and slots of the operands.
        inputs: operand indexes.
        outputs: operand indexes.
        constants: positions of the inputs that are constants.
        controls: positions of the inputs whose values are needed before shapes are inferred: those
            of CONTROL slots, and all scalars.
        cache: values that the kernel keeps with the prepared model.
    """

    definition: OperationDefinition
    match: Match
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    constants: frozenset[int]
    controls: frozenset[int]
    cache: dict[Hashable, Any] = msgspec.field(default_factory=dict)

    @property
    def type(self) -> OperationType:
        """The operation's type."""
        return self.definition.signature.type

    @property
    def is_control_flow(self) -> bool:
        """Whether the operation runs subgraphs."""
        return self.type in CONTROL_FLOW

    def steers(self, position: int) -> bool:
        """Whether the input at `position` steers the operation: its bytes must not change."""
        role = self.match.inputs[position].role
        return role is not Role.DATA or position in self.controls or self.is_control_flow


class Graph:
    """One subgraph, ready to be evaluated. Immutable but for the caches, which threads may share.

    Attributes:
        declared: type, quantisation and (possibly unknown) dimensions of each operand.
        steps: the operations in order.
        inputs: operand indexes.
        outputs: operand indexes.
        constants: value of each operand that has one, read-only.
        steering: operands whose values reach a CONTROL or INDEX slot or a subgraph; their bytes
            must not change while operations run.
        calls: numbers of the referenced subgraphs that its operations may run.
        last_read: number of the last step that reads an operand; absent if none does.
    """

    def __init__(self, subgraph: Subgraph, values: bytes, pools: Sequence[Bytes] | None) -> None:
        """Prepare `subgraph`, which is valid (validation:O1 to P11).

        Args:
            subgraph: the subgraph.
            values: bytes of the model's small constants.
            pools: pools with the model's other constants; None if their bytes are not known. Those constants
                are zeros then, and for an operation that one of them steers it counts as not constant.

        Raises:
            InvalidArgument: an operation is not registered or its operands do not fit it.
        """
        self.declared = tuple(_meta(operand) for operand in subgraph.operands)
        self.inputs = subgraph.input_indexes
        self.outputs = subgraph.output_indexes
        self.constants = {
            index: _constant(operand, values, pools)
            for index, operand in enumerate(subgraph.operands)
            if operand.is_constant or operand.lifetime == OperandLifeTime.SUBGRAPH
        }
        self._unknown = frozenset(
            index
            for index, operand in enumerate(subgraph.operands)
            if pools is None and operand.lifetime == OperandLifeTime.CONSTANT_REFERENCE
        )
        self.calls = frozenset(
            operand.location.offset
            for operand in subgraph.operands
            if operand.lifetime == OperandLifeTime.SUBGRAPH
        )
        self._set_steps(tuple(self._step(subgraph, op) for op in subgraph.operations))

    def with_steps(self, steps: tuple[Step, ...], constants: Mapping[int, Tensor]) -> Graph:
        """A copy of the graph with other steps and constants, over the same operands."""
        made = copy(self)
        made.constants = dict(constants)
        made._set_steps(steps)
        return made

    def _set_steps(self, steps: tuple[Step, ...]) -> None:
        self.steps = steps
        self.last_read = {i: n for n, step in enumerate(steps) for i in step.inputs}
        self.steering = frozenset(
            index for step in steps for at, index in enumerate(step.inputs) if step.steers(at)
        )

    def _step(self, subgraph: Subgraph, operation: Operation) -> Step:
        definition = definition_of(operation)
        match = match_operation(subgraph, operation)
        controls = frozenset(
            at
            for at, index in enumerate(operation.inputs)
            if match.inputs[at].role is Role.CONTROL or self.declared[index].is_scalar
        )
        constants = frozenset(
            at
            for at, index in enumerate(operation.inputs)
            if index in self.constants and not (at in controls and index in self._unknown)
        )
        return Step(definition, match, operation.inputs, operation.outputs, constants, controls)


class Plan:
    """All graphs of a prepared model: `main` and the `referenced` ones."""

    def __init__(self, model: Model, pools: Sequence[Bytes] | None) -> None:
        """Prepare every subgraph of a validated model; see `Graph`."""
        model = with_local_codes(model)
        self.main = Graph(model.main, model.operand_values, pools)
        self.referenced = tuple(Graph(g, model.operand_values, pools) for g in model.referenced)
        self._reached: dict[int, frozenset[int]] = {}

    def with_graphs(self, main: Graph, referenced: tuple[Graph, ...]) -> Plan:
        """A copy of the plan with other graphs, which call each other as the present ones do."""
        made = copy(self)
        made.main, made.referenced = main, referenced
        return made

    def reached_from(self, subgraph: int) -> frozenset[int]:
        """Referenced subgraph `subgraph` and all subgraphs that it may run. The answer is kept."""
        reached = self._reached.get(subgraph)
        if reached is None:
            found, left = {subgraph}, [subgraph]
            while left:
                new = self.referenced[left.pop()].calls - found
                found |= new
                left += new
            reached = self._reached.setdefault(subgraph, frozenset(found))
        return reached


def definition_of(operation: Operation) -> OperationDefinition:
    """The registered operation.

    Raises:
        InvalidArgument: it is undefined (an unknown extension's operation, OEM_OPERATION, a wrong code).
    """
    definition = find_definition(operation.type)
    if definition is None:
        known = {kind.value: kind.name for kind in OperationType}
        name = known.get(operation.type, f"{operation.type:#x}")
        raise InvalidArgument(
            f"validation:P1: the reference executor does not support operation {name}"
        )
    return definition


def match_operation(subgraph: Subgraph, operation: Operation) -> Match:
    """Form and slots of an operation's operands.

    Raises:
        InvalidArgument: the operation is unknown or does not accept them (validation:P4).
    """
    inputs = [subgraph.operands[i] for i in operation.inputs]
    outputs = [subgraph.operands[i] for i in operation.outputs]
    return definition_of(operation).signature.match(inputs, outputs)


def _meta(operand: Operand) -> TensorType:
    kind = find_operand_type(operand.type)
    if kind is None:
        raise InvalidArgument(
            f"validation:O1: operand type {operand.type:#x} is not supported by the reference executor"
        )
    return TensorType(
        kind, operand.dimensions, operand.scale, operand.zero_point, operand.extra_params
    )


def _constant(operand: Operand, values: bytes, pools: Sequence[Bytes] | None) -> Tensor:
    meta = _meta(operand)
    if operand.lifetime == OperandLifeTime.SUBGRAPH:
        return Tensor(meta, read_only(np.array(operand.location.offset, np.uint32)))
    place = operand.location
    end = place.offset + place.length
    if operand.lifetime == OperandLifeTime.CONSTANT_COPY:
        stored = memoryview(values)[place.offset : end]
    elif pools is None:
        return Tensor.of_unknown(meta)
    else:
        # Another process may change a pool at any time; a prepared model keeps what it was given.
        stored = memoryview(bytes(memory_of(pools, place.pool_index)[place.offset : end]))
    if stored.nbytes != meta.byte_size:  # validation leaves extensions' constants unchecked
        raise InvalidArgument(
            f"validation:O16: a constant of type {meta.type.name} and dimensions {list(meta.dimensions)}"
            f" has {stored.nbytes} bytes"
        )
    return Tensor.of_stored(meta, stored)


def supported_operations(model: Model) -> list[bool]:
    """Whether each operation of the main subgraph can be run; False for any doubt."""
    local = with_local_codes(model)
    support = _Support(local)
    return [support.of_operation(local.main, op) for op in local.main.operations]


class _Support:
    """Finds the parts of a model that can be run; looks at each subgraph once."""

    def __init__(self, model: Model) -> None:
        self._referenced = model.referenced
        self._known: dict[int, bool] = {}

    def of_operation(self, subgraph: Subgraph, operation: Operation) -> bool:
        """Whether an operation can be run, with all subgraphs that it runs."""
        try:
            match_operation(subgraph, operation)
            return all(
                self._of_graph(subgraph.operands[i].location.offset)
                for i in operation.inputs
                if subgraph.operands[i].lifetime == OperandLifeTime.SUBGRAPH
            )
        except (InvalidArgument, IndexError):
            return False

    def _of_graph(self, index: int) -> bool:
        if index not in self._known:
            self._known[index] = False  # until all are examined: a cycle cannot be run
            graph = self._referenced[index]
            self._known[index] = all(self.of_operation(graph, o) for o in graph.operations)
        return self._known[index]
