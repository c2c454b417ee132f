"""Run one operation the way a driver would: as a model of its own, through the reference executor.

    [y] = run(OperationType.ABS, [tensor(F32, [[1, -2]])], [output(F32)])

Inputs are model inputs unless `constant=True`; scalars are constants unless `constant=False`.
Outputs may leave dimensions unknown (0), or their rank (no dimensions at all). A failure raises
the NnburstError that stands for the outcome's status.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import nnburst.executor.reference.operations  # noqa: F401 - fills the registry
from nnburst.executor.reference.operation import REGISTRY, Node
from nnburst.executor.reference.tensor import Array, Tensor, TensorType
from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.model import ExtraParams, Operand
from nnburst.hal.operand_types import DTYPES


@dataclass(frozen=True)
class Given:
    """One input: a value, or None where it is omitted."""

    type: OperandType
    array: Array | None
    scale: float = 0.0
    zero_point: int = 0
    extra_params: ExtraParams = None
    constant: bool = False


@dataclass(frozen=True)
class Wanted:
    """One output as the model declares it."""

    type: OperandType
    dimensions: tuple[int, ...] = ()
    scale: float = 0.0
    zero_point: int = 0
    extra_params: ExtraParams = None


def tensor(
    kind: OperandType,
    values: npt.ArrayLike,
    scale: float = 0.0,
    zero_point: int = 0,
    extra_params: ExtraParams = None,
    *,
    constant: bool = False,
) -> Given:
    """A tensor; values are cast to the type's elements."""
    array = np.ascontiguousarray(values, DTYPES[kind])
    return Given(kind, array, scale, zero_point, extra_params, constant)


def scalar(value: float | bool, kind: OperandType | None = None, *, constant: bool = True) -> Given:
    """A scalar: BOOL, INT32 or FLOAT32 by the Python type unless `kind` says otherwise."""
    if kind is None:
        by_type = {bool: OperandType.BOOL, int: OperandType.INT32, float: OperandType.FLOAT32}
        kind = by_type[type(value)]
    return Given(kind, np.asarray(value, DTYPES[kind]), constant=constant)


def omitted(kind: OperandType) -> Given:
    """An operand without a value (hasNoValue; NO_VALUE where `constant` inputs are asked for)."""
    return Given(kind, None)


def output(
    kind: OperandType,
    dimensions: Sequence[int] = (),
    scale: float = 0.0,
    zero_point: int = 0,
    extra_params: ExtraParams = None,
) -> Wanted:
    """An output; without dimensions its rank is unknown (or it is a scalar)."""
    return Wanted(kind, tuple(dimensions), scale, zero_point, extra_params)


def _operand(o: Given | Wanted, dimensions: Sequence[int]) -> Operand:
    return Operand(
        type=int(o.type),
        dimensions=tuple(dimensions),
        scale=o.scale,
        zero_point=o.zero_point,
        extra_params=o.extra_params,
    )


_WIDER = {
    OperandType.TENSOR_FLOAT16: OperandType.TENSOR_FLOAT32,
    OperandType.FLOAT16: OperandType.FLOAT32,
}


def run(
    kind: OperationType, inputs: Sequence[Given], outputs: Sequence[Wanted]
) -> list[npt.NDArray[Any]]:
    """Run one operation and return its outputs."""
    definition = REGISTRY[kind]
    ins = [_operand(o, () if o.array is None else o.array.shape) for o in inputs]
    outs = [_operand(o, o.dimensions) for o in outputs]
    match = definition.signature.match(ins, outs)
    widen = (lambda t: t) if definition.half else (lambda t: _WIDER.get(t, t))
    tensors = [
        None
        if o.array is None
        else Tensor(
            TensorType(widen(o.type), o.array.shape, o.scale, o.zero_point, o.extra_params),
            o.array.astype(DTYPES[widen(o.type)]),
        )
        for o in inputs
    ]
    declared = [
        TensorType(widen(o.type), o.dimensions, o.scale, o.zero_point, o.extra_params)
        for o in outputs
    ]
    if definition.shape is None:
        found = definition.kernel(Node(kind, match, tensors, (), declared))
        return [np.asarray(a) for a in found]
    metas = definition.shape(Node(kind, match, tensors, (), declared))
    memory = [Tensor(m, np.empty(m.dimensions, DTYPES[m.type])) for m in metas]
    with np.errstate(all="ignore"):
        definition.kernel(Node(kind, match, tensors, memory, declared))()
    return [t.array.astype(DTYPES[o.type]) for t, o in zip(memory, outputs, strict=True)]
