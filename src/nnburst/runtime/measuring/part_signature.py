"""The name under which a measurement of a model or a step is kept."""

from __future__ import annotations

import hashlib

import msgspec

from nnburst.hal.enums import OperandLifeTime
from nnburst.hal.model import Model, Operand

#: Longer constants are weights, which do not change how long an operation takes.
_COUNTS_AT_MOST = 128


def part_signature(model: Model) -> str:
    """The same for models that take a device the same time: everything but weights.

    Short constants count, since strides, axes and shapes decide how much there is to compute.
    """
    described = [
        (
            [_described(model, operand) for operand in graph.operands],
            [(o.type, o.inputs, o.outputs) for o in graph.operations],
            graph.input_indexes,
            graph.output_indexes,
        )
        for graph in (model.main, *model.referenced)
    ]
    relaxed = model.relax_computation_float32_to_float16
    return hashlib.sha256(msgspec.msgpack.encode((described, relaxed))).hexdigest()


def _described(model: Model, operand: Operand) -> tuple[object, ...]:
    at, value = operand.location, b""
    if operand.lifetime == OperandLifeTime.CONSTANT_COPY and at.length <= _COUNTS_AT_MOST:
        value = model.operand_values[at.offset : at.offset + at.length]
    elif operand.lifetime == OperandLifeTime.SUBGRAPH:
        value = str(at.offset).encode()
    return (
        operand.type,
        operand.dimensions,
        operand.scale,
        operand.zero_point,
        operand.lifetime,
        value,
    )
