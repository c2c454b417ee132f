"""The file of expected plans: one case a line, as described at the head of runtime-tests.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from nnburst.hal.enums import OperandLifeTime, OperandType
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import (
    DataLocation,
    MemoryPool,
    Model,
    Operand,
    Operation,
    Subgraph,
    SymmPerChannelQuantParams,
)
from nnburst.hal.operand_types import DTYPES, QUANTIZED_RANGES

_T = OperandType
_L = OperandLifeTime
#: Longer constants lie in a pool (RT:M4).
_COPIED_AT_MOST: Final = 128
_ALIGNMENT: Final = 16


class CaseOperand(msgspec.Struct, frozen=True):
    """An operand: constant if it has a value, a subgraph if it names a model."""

    type: int
    dims: tuple[int, ...] = ()
    value: Any = None
    model: int | None = None


class CaseModel(msgspec.Struct, frozen=True):
    """A model; operations are [code, inputs, outputs]."""

    operands: tuple[CaseOperand, ...]
    operations: tuple[tuple[int, tuple[int, ...], tuple[int, ...]], ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    relaxed: bool = False


class CaseDevice(msgspec.Struct, frozen=True):
    """A driver: its cost, and what it supports as pairs [operation, activation or None]."""

    name: str
    feature_level: int
    perf: float
    supports: tuple[tuple[int, int | None], ...]
    relaxed_perf: float | None = None
    perf_by_type: dict[str, float] = {}
    oem: str = ""


class PartitioningCase(msgspec.Struct, frozen=True):
    """One case; `simulate_failure` names the code with which planning fails once all is prepared."""

    name: str
    partitioning: int
    models: tuple[CaseModel, ...]
    devices: tuple[CaseDevice | str, ...]
    expected: dict[str, Any]
    source: str = ""
    simulate_failure: str = ""


class _File(msgspec.Struct):
    cases: tuple[PartitioningCase, ...]


_decode: Final = msgspec.json.Decoder(_File).decode


def read_cases(path: Path) -> tuple[PartitioningCase, ...]:
    """The cases of a file.

    Raises:
        InvalidArgument: it cannot be read, or is not of this form.
    """
    try:
        return _decode(path.read_bytes()).cases
    except (OSError, msgspec.DecodeError) as error:
        raise InvalidArgument(f"{path}: not a file of expected plans: {error}") from error


def case_model(models: Sequence[CaseModel]) -> Model:
    """The HAL's model: the first is the main subgraph, the others are referenced."""
    values, pool = bytearray(), bytearray()
    graphs = [_subgraph(model, values, pool) for model in models]
    return Model(
        graphs[0],
        tuple(graphs[1:]),
        bytes(values),
        (MemoryPool(len(pool)),) if pool else (),
        models[0].relaxed,
    )


def _subgraph(model: CaseModel, values: bytearray, pool: bytearray) -> Subgraph:
    uses = [0] * len(model.operands)
    for _, inputs, _ in model.operations:
        for index in inputs:
            uses[index] += 1
    lifetimes = dict.fromkeys(model.inputs, _L.SUBGRAPH_INPUT)
    lifetimes |= dict.fromkeys(model.outputs, _L.SUBGRAPH_OUTPUT)
    return Subgraph(
        tuple(
            _operand(operand, uses[n], lifetimes.get(n, _L.TEMPORARY_VARIABLE), values, pool)
            for n, operand in enumerate(model.operands)
        ),
        tuple(Operation(code, ins, outs) for code, ins, outs in model.operations),
        model.inputs,
        model.outputs,
    )


def _operand(
    operand: CaseOperand,
    uses: int,
    lifetime: OperandLifeTime,
    values: bytearray,
    pool: bytearray,
) -> Operand:
    kind = OperandType(operand.type)
    at = DataLocation()
    if operand.model is not None:
        lifetime, at = _L.SUBGRAPH, DataLocation(offset=operand.model - 1)
    elif operand.value is not None:
        data = np.asarray(operand.value, DTYPES[kind]).tobytes()
        copied = len(data) <= _COPIED_AT_MOST
        lifetime = _L.CONSTANT_COPY if copied else _L.CONSTANT_REFERENCE
        room = values if copied else pool
        room.extend(bytes(-len(room) % _ALIGNMENT))
        at = DataLocation(0, len(room), len(data))
        room.extend(data)
    per_channel = kind is _T.TENSOR_QUANT8_SYMM_PER_CHANNEL
    return Operand(
        kind,
        operand.dims,
        uses,
        1.0 if kind in QUANTIZED_RANGES and not per_channel else 0.0,
        0,
        lifetime,
        at,
        SymmPerChannelQuantParams((1.0,), 0) if per_channel else None,
    )
