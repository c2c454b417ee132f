"""The version that a model needs: a feature level, and whether only the framework can run it (RT:D5)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from msgspec.structs import replace

from nnburst.compat.conversion import requirement
from nnburst.executor.operations import SIGNATURES
from nnburst.hal.enums import FeatureLevel, OperandType, OperationType
from nnburst.hal.model import Model, Operand, Operation, Subgraph
from nnburst.hal.operand_types import SCALARS, is_extension

CONTROL_FLOW: Final = frozenset({OperationType.IF, OperationType.WHILE})


class ModelVersion(NamedTuple):
    """What a model or a part of it needs.

    Attributes:
        level: lowest feature level that can express it.
        runtime_only: it has control flow with unknown sizes, which no driver takes.
    """

    level: FeatureLevel
    runtime_only: bool = False

    def fits(self, level: FeatureLevel, *, is_runtime: bool) -> bool:
        """Whether a driver of `level` (or the framework itself) takes it."""
        return self.level <= level and (is_runtime or not self.runtime_only)

    def combined(self, others: Iterable[ModelVersion]) -> ModelVersion:
        """What it and all others need together."""
        level, runtime_only = self
        for other in others:
            level = max(level, other.level)
            runtime_only = runtime_only or other.runtime_only
        return ModelVersion(level, runtime_only)


def has_unknown_size(operand: Operand) -> bool:
    """Whether it is a tensor without rank or with a 0 among its dimensions.

    Of an extension's type only a 0 counts: without rank it may be a scalar, which the framework cannot see.
    """
    if operand.type in SCALARS:
        return False
    return 0 in operand.dimensions or not (operand.dimensions or is_extension(operand.type))


def has_unknown_sizes(operation: Operation, graph: Subgraph, model: Model) -> bool:
    """Whether an IF or WHILE touches an operand of unknown size, inside or outside (RT:P6)."""
    if operation.type not in CONTROL_FLOW:
        return False
    operands = [graph.operands[i] for i in (*operation.inputs, *operation.outputs)]
    for outer in tuple(operands):
        if outer.type == OperandType.SUBGRAPH:
            inner = model.referenced[outer.location.offset]
            operands += [inner.operands[i] for i in (*inner.input_indexes, *inner.output_indexes)]
    return any(map(has_unknown_size, operands))


def has_runtime_only_features(model: Model) -> bool:
    """Whether any of its subgraphs has control flow with unknown sizes (RT:D5)."""
    return any(
        has_unknown_sizes(operation, graph, model)
        for graph in (model.main, *model.referenced)
        for operation in graph.operations
    )


def operation_versions(model: Model) -> list[ModelVersion]:
    """What each operation of a valid model's main subgraph needs, with its operands and their memory."""
    prefixes = frozenset(entry.prefix for entry in model.extension_name_to_prefix)
    pools = [requirement.memory(pool) for pool in model.pools]
    levels = [_operand_level(operand, pools) for operand in model.main.operands]
    return [
        ModelVersion(
            max(
                requirement.operation(operation, model.main, SIGNATURES, prefixes),
                *[levels[index] for index in (*operation.inputs, *operation.outputs)],
            ),
            has_unknown_sizes(operation, model.main, model),
        )
        for operation in model.main.operations
    ]


def model_version(model: Model, operations: Iterable[ModelVersion]) -> ModelVersion:
    """What a valid model needs.

    Args:
        model: the model.
        operations: `operation_versions` of its main subgraph.
    """
    main = model.main
    shell = replace(
        model, main=Subgraph(main.operands, (), main.input_indexes, main.output_indexes)
    )
    around = ModelVersion(requirement.model(shell, SIGNATURES), has_runtime_only_features(model))
    return around.combined(operations)


def _operand_level(operand: Operand, pools: list[FeatureLevel]) -> FeatureLevel:
    since = requirement.operand(operand)
    if operand.lifetime == operand.lifetime.CONSTANT_REFERENCE:
        return max(since, pools[operand.location.pool_index])
    return since
