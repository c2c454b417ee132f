"""Invalid models made from valid ones: the suite's own mutations (validation:VM1 to VM21).

Every generator takes a valid model and yields changed copies of its main subgraph, each of which
a driver must refuse with INVALID_ARGUMENT; `suite_mutations` also changes the other subgraphs.
NNAPI: ValidateModel.cpp, with its exceptions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from nnburst.hal.model import Model
from nnburst.testing.fuzzing.model_mutators.counts import operand_counts
from nnburst.testing.fuzzing.model_mutators.edit import ModelMutation, Mutations
from nnburst.testing.fuzzing.model_mutators.graph import (
    execution_order,
    operation_indexes,
    operation_types,
    removed_operands,
    removed_operations,
    writers,
)
from nnburst.testing.fuzzing.model_mutators.operands import (
    consumers,
    lifetimes,
    operand_types,
    quantization,
    ranks,
)
from nnburst.testing.fuzzing.model_mutators.retype import operand_retypes

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
    """VM1 to VM21 on the main subgraph, and on every other one (the original leaves those alone)."""
    for mutate in ALL:
        yield from mutate(model)
    for number, graph in enumerate(model.referenced):
        before, after = model.referenced[:number], model.referenced[number + 1 :]
        for mutate in ALL:
            for description, mutated in mutate(replace(model, main=graph)):
                referenced = (*before, mutated.main, *after)
                yield ModelMutation(
                    f"{description}, in referenced[{number}]", replace(model, referenced=referenced)
                )
