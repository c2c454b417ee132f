"""Invalid models made from valid ones: the suite's own mutations (validation:VM1 to VM21).

Every generator takes a valid model and yields changed copies of its main subgraph, each of which
a driver must refuse with INVALID_ARGUMENT. NNAPI: ValidateModel.cpp, with its exceptions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from nnburst.hal.model import Model
from nnburst.testing.model_mutators.counts import operand_counts
from nnburst.testing.model_mutators.edit import ModelMutation, Mutations
from nnburst.testing.model_mutators.graph import (
    execution_order,
    operation_indexes,
    operation_types,
    removed_operands,
    removed_operations,
    writers,
)
from nnburst.testing.model_mutators.operands import (
    consumers,
    lifetimes,
    operand_types,
    quantization,
    ranks,
)
from nnburst.testing.model_mutators.retype import operand_retypes

__all__ = ["suite_mutations", "ALL", "ModelMutation", "Mutations"]

ALL: Final[Sequence[Callable[[Model], Mutations]]] = (
    execution_order,
    operand_types,
    ranks,
    quantization,
    lifetimes,
    consumers,
    writers,
    operand_retypes,
    operation_types,
    operation_indexes,
    removed_operands,
    removed_operations,
    operand_counts,
)


def suite_mutations(model: Model) -> Mutations:
    """VM1 to VM21 on one model."""
    for mutate in ALL:
        yield from mutate(model)
