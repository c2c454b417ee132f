"""Two devices operation by operation: which is the first whose outputs differ.

Each operation's output becomes an output of the model, so both devices show what they computed on the way. A
device that fuses operations cannot do so with outputs; if nothing differs here and the network's own outputs
do, that is where to look.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from msgspec import structs

from nnburst.bench.model.data_sets import Example
from nnburst.client.device import Device
from nnburst.hal.enums import OperandLifeTime, OperandType, OperationType
from nnburst.hal.model import Model, Operand
from nnburst.hal.operand_types import QUANTIZED_RANGES
from nnburst.testing.models.network_file import NetworkFile

Array = npt.NDArray[Any]

#: Real numbers differ if they are further apart, in parts of the output's range; integers by more steps.
_SHARE: Final = 1e-3
_STEPS: Final = 1
#: Of these operations the first output is scratch memory, which may hold anything.
_SCRATCH: Final = frozenset({OperationType.LSTM})


@dataclass(frozen=True, slots=True)
class Layer:
    """An operation on both devices.

    Attributes:
        name: number and kind of the operation, and the operator that it comes from.
        output: which of its outputs.
        largest: difference: in steps, or in parts of the output's range.
        differs: whether that is more than engines may differ by.
    """

    name: str
    output: int
    largest: float
    differs: bool


def inside(model: Model) -> tuple[Model, list[tuple[int, int, int]]]:
    """A model whose temporaries are outputs, behind its own ones.

    Returns:
        The model; and for each output whose shape is known, in order of the operations: the operation's
        index, which of its outputs, and its position among the model's.
    """
    main = model.main
    outputs = list(main.output_indexes)
    operands = list(main.operands)
    places = []
    for number, operation in enumerate(main.operations):
        for at, index in enumerate(operation.outputs):
            if at == 0 and operation.type in _SCRATCH:
                continue
            operand = operands[index]
            if not operand.dimensions or 0 in operand.dimensions:
                continue
            if index not in outputs:
                lifetime = OperandLifeTime.SUBGRAPH_OUTPUT
                operands[index] = structs.replace(operand, lifetime=lifetime)
                outputs.append(index)
            places.append((number, at, outputs.index(index)))
    opened = structs.replace(main, operands=tuple(operands), output_indexes=tuple(outputs))
    return structs.replace(model, main=opened), places


def compare_layers(
    network: NetworkFile, one: Device, other: Device, example: Example
) -> list[Layer]:
    """Every operation of a network on two devices, in order.

    Raises:
        NnburstError: a device refuses the model with its insides as outputs.
    """
    model, places = inside(network.imported.model)
    imported = replace(network.imported, model=model)
    found = []
    for device in (one, other):
        with device.prepare(imported) as prepared:
            found.append(prepared.execute(network.with_states(example), timeout=60.0).outputs)
    main = model.main
    layers = []
    for number, at, place in places:
        operand = main.operands[main.output_indexes[place]]
        largest = _distance(found[0][place], found[1][place], operand)
        most = _STEPS if OperandType(operand.type) in QUANTIZED_RANGES else _SHARE
        name = f"{number} {_kind(main.operations[number].type)}"
        origin = network.imported.operators[number : number + 1]
        label = f"{name} ({origin[0]})" if origin and origin[0] != name else name
        layers.append(Layer(label, at, largest, not largest <= most))
    return layers


def first_difference(layers: Sequence[Layer]) -> Layer | None:
    """The first operation that differs; None if all agree."""
    return next((layer for layer in layers if layer.differs), None)


def _kind(code: int) -> str:
    try:
        return OperationType(code).name
    except ValueError:
        return f"operation {code}"


def _distance(one: Array, other: Array, operand: Operand) -> float:
    first, second = one.astype(np.float64), other.astype(np.float64)
    same = (first == second) | (np.isnan(first) & np.isnan(second))
    with np.errstate(invalid="ignore"):
        apart = np.where(same, 0.0, np.abs(first - second))
    largest = float(np.where(np.isnan(apart), np.inf, apart).max(initial=0.0))
    if OperandType(operand.type) in QUANTIZED_RANGES or largest == 0.0:
        return largest
    finite = second[np.isfinite(second)]
    reach = max(float(np.ptp(finite)), float(np.abs(finite).max()), 1e-9) if finite.size else 1.0
    return largest / reach
