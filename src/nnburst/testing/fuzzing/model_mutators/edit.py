"""Changing one thing about the main subgraph of a model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import replace

from nnburst.hal.enums import OperandLifeTime
from nnburst.hal.model import Model, Operand, Operation

_L = OperandLifeTime


class ModelMutation(NamedTuple):
    """A mutated model and, for reports, which mutation made it."""

    description: str
    model: Model


Mutations = Iterator[ModelMutation]


def listed(model: Model, index: int, lifetime: OperandLifeTime) -> Model:
    """The model with `index` in the list of its lifetime, and in no other."""
    inputs = tuple(i for i in model.main.input_indexes if i != index)
    outputs = tuple(i for i in model.main.output_indexes if i != index)
    if lifetime == _L.SUBGRAPH_INPUT:
        inputs += (index,)
    if lifetime == _L.SUBGRAPH_OUTPUT:
        outputs += (index,)
    return with_main(model, input_indexes=inputs, output_indexes=outputs)


def operand_at(model: Model, index: int) -> Operand:
    """An operand of main."""
    return model.main.operands[index]


def with_main(model: Model, **changes: object) -> Model:
    """The model with fields of its main subgraph replaced."""
    return replace(model, main=replace(model.main, **changes))


def with_operand(model: Model, index: int, operand: Operand) -> Model:
    """The model with another operand at `index`."""
    operands = model.main.operands
    return with_main(model, operands=(*operands[:index], operand, *operands[index + 1 :]))


def change(rule: str, model: Model, index: int, **changes: object) -> ModelMutation:
    """The mutation that replaces fields of one operand."""
    return ModelMutation(
        f"{rule} operand {index}: {changes}",
        with_operand(model, index, replace(operand_at(model, index), **changes)),
    )


def with_operation(model: Model, number: int, operation: Operation) -> Model:
    """The model with another operation in the place of operation `number`."""
    operations = model.main.operations
    return with_main(model, operations=(*operations[:number], operation, *operations[number + 1 :]))


def added(model: Model, operand: Operand) -> tuple[Model, int]:
    """The model with one more operand, listed by its lifetime, and its index."""
    index = len(model.main.operands)
    grown = with_main(model, operands=(*model.main.operands, operand))
    return listed(grown, index, operand.lifetime), index


def but(indexes: tuple[int, ...], removed: int) -> tuple[int, ...]:
    """The indexes without one of them."""
    return tuple(i for i in indexes if i != removed)


def recounted(model: Model) -> Model:
    """The model with the consumers of every operand counted anew."""
    uses = [0] * len(model.main.operands)
    for operation in model.main.operations:
        for index in operation.inputs:
            uses[index] += 1
    return with_main(
        model,
        operands=tuple(
            replace(o, number_of_consumers=n)
            for o, n in zip(model.main.operands, uses, strict=True)
        ),
    )
