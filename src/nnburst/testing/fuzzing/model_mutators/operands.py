"""VM3 to VM9: one operand that its type or the graph contradicts."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from nnburst.hal.enums import OperandLifeTime, OperandType
from nnburst.hal.model import (
    DataLocation,
    Model,
    Operand,
)
from nnburst.hal.operand_types import SCALARS, size_bytes
from nnburst.testing.fuzzing.model_mutators.edit import (
    ModelMutation,
    Mutations,
    change,
    listed,
    with_operand,
)

_L = OperandLifeTime
_T = OperandType

_TEMPORARIES: Final = frozenset({_L.TEMPORARY_VARIABLE, _L.SUBGRAPH_OUTPUT})
_CONSTANTS: Final = frozenset({_L.CONSTANT_COPY, _L.CONSTANT_REFERENCE})


def operand_types(model: Model) -> Mutations:
    """VM3: types that do not exist."""
    for index, _ in enumerate(model.main.operands):
        for code in (-1, 16, 9999, 10002):
            yield change("VM3", model, index, type=code)


def ranks(model: Model) -> Mutations:
    """VM4: scalars with a dimension."""
    for index, operand in enumerate(model.main.operands):
        if operand.type in SCALARS - {_T.SUBGRAPH, _T.OEM}:
            yield change("VM4", model, index, dimensions=(0,))


_SCALES: Final = {
    _T.TENSOR_INT32: -1.0,
    **dict.fromkeys(
        (
            _T.TENSOR_QUANT8_ASYMM, _T.TENSOR_QUANT8_ASYMM_SIGNED, _T.TENSOR_QUANT8_SYMM,
            _T.TENSOR_QUANT16_ASYMM, _T.TENSOR_QUANT16_SYMM,
        ),
        0.0,
    ),
}  # fmt: skip
_ZERO_POINTS: Final = {
    _T.TENSOR_QUANT8_ASYMM: (-1, 256),
    _T.TENSOR_QUANT8_ASYMM_SIGNED: (-129, 128),
    _T.TENSOR_QUANT8_SYMM: (-129, -1, 1, 128),
    _T.TENSOR_QUANT16_ASYMM: (-1, 65536),
    _T.TENSOR_QUANT16_SYMM: (-32769, -1, 1, 32768),
}


def quantization(model: Model) -> Mutations:
    """VM5 and VM6: scales and zero points that the type forbids."""
    for index, operand in enumerate(model.main.operands):
        if operand.type in (_T.OEM, _T.TENSOR_OEM_BYTE):
            continue
        kind = _T(operand.type)
        yield change("VM5", model, index, scale=_SCALES.get(kind, 1.0))
        for zero_point in _ZERO_POINTS.get(kind, (1,)):
            yield change("VM6", model, index, zero_point=zero_point)


def lifetimes(model: Model) -> Mutations:
    """VM7 and VM8: lifetimes that the graph contradicts, with and without the index lists."""
    for index, operand in enumerate(model.main.operands):
        for lifetime in _wrong_lifetimes(model, operand):
            changed = _relocated(operand, lifetime)
            mutated = with_operand(model, index, changed)
            yield ModelMutation(
                f"VM7 operand {index} as {lifetime.name}", listed(mutated, index, lifetime)
            )
        unlisted = {
            _L.CONSTANT_COPY: _L.SUBGRAPH_INPUT,
            _L.CONSTANT_REFERENCE: _L.SUBGRAPH_INPUT,
            _L.SUBGRAPH_INPUT: _L.CONSTANT_COPY,
            _L.SUBGRAPH_OUTPUT: _L.TEMPORARY_VARIABLE,
            _L.TEMPORARY_VARIABLE: _L.SUBGRAPH_OUTPUT,
        }.get(operand.lifetime)
        if unlisted is not None and (unlisted != _L.CONSTANT_COPY or _fits(model, operand)):
            changed = _relocated(operand, unlisted)
            yield ModelMutation(
                f"VM8 operand {index} as {unlisted.name}", with_operand(model, index, changed)
            )


def _wrong_lifetimes(model: Model, operand: Operand) -> list[OperandLifeTime]:
    if operand.lifetime in _TEMPORARIES:
        return [_L.SUBGRAPH_INPUT] + [_L.CONSTANT_COPY] * _fits(model, operand)
    if operand.lifetime in _CONSTANTS or operand.lifetime == _L.SUBGRAPH_INPUT:
        return [_L.TEMPORARY_VARIABLE, _L.SUBGRAPH_OUTPUT]
    return []


def _fits(model: Model, operand: Operand) -> bool:
    return 0 < size_bytes(_T(operand.type), operand.dimensions) <= len(model.operand_values)


def _relocated(operand: Operand, lifetime: OperandLifeTime) -> Operand:
    length = size_bytes(_T(operand.type), operand.dimensions)
    location = DataLocation(length=length if lifetime == _L.CONSTANT_COPY else 0)
    return replace(operand, lifetime=lifetime, location=location)


def consumers(model: Model) -> Mutations:
    """VM9: one consumer more or less."""
    for index, operand in enumerate(model.main.operands):
        count = operand.number_of_consumers
        for wrong in (count - 1, count + 1) if count else (1,):
            yield change("VM9", model, index, number_of_consumers=wrong)
