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

from nnburst.executor.base import Argument, Outcome
from nnburst.executor.graph.tensor import Array
from nnburst.executor.reference.executor import ReferenceExecutor, ReferencePrepared
from nnburst.hal.enums import ErrorStatus, OperandType, OperationType
from nnburst.hal.errors import error_for
from nnburst.hal.model import DTYPES, ExtraParams, Model, is_scalar
from nnburst.hal.model_builder import ModelBuilder


@dataclass(frozen=True)
class Given:
    """One input: a value, or None if it is omitted."""

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
    """A scalar: BOOL, INT32 or FLOAT32 by the Python type unless `kind` is given."""
    if kind is None:
        by_type = {bool: OperandType.BOOL, int: OperandType.INT32, float: OperandType.FLOAT32}
        kind = by_type[type(value)]
    return Given(kind, np.asarray(value, DTYPES[kind]), constant=constant)


def omitted(kind: OperandType) -> Given:
    """A model input to which the request gives no value."""
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


def model(
    kind: OperationType, inputs: Sequence[Given], outputs: Sequence[Wanted]
) -> tuple[Model, list[Given]]:
    """A model of one operation, and the inputs that the request has to pass."""
    builder = ModelBuilder()
    indexes = []
    passed = []
    for given in inputs:
        dims = () if given.array is None else given.array.shape
        if given.constant and given.array is not None:
            indexes.append(_constant(builder, given))
            continue
        meta = (dims, given.scale, given.zero_point, given.extra_params)
        indexes.append(builder.input(given.type, *meta))
        passed.append(given)
    results = [
        builder.output(o.type, o.dimensions, o.scale, o.zero_point, o.extra_params) for o in outputs
    ]
    builder.operation(kind, indexes, results)
    return builder.build(), passed


def _constant(builder: ModelBuilder, given: Given) -> int:
    assert given.array is not None
    if is_scalar(given.type):
        return builder.scalar(given.array.item(), given.type)
    meta = (given.scale, given.zero_point, given.extra_params)
    return builder.constant(given.type, given.array, *meta)


def run(
    kind: OperationType, inputs: Sequence[Given], outputs: Sequence[Wanted]
) -> list[npt.NDArray[Any]]:
    """Run one operation and return its outputs.

    It runs twice: with empty buffers, which tells the shapes, and with buffers that fit. Inputs are
    written after binding, and scratch memory is overwritten as other operations of a bigger model
    would do.

    Raises:
        NnburstError: preparing, binding or running failed; `.status` says as what.
    """
    built, passed = model(kind, inputs, outputs)
    prepared = ReferenceExecutor().prepare(built, [])
    nowhere = [Argument(None, o.dimensions) for o in outputs]
    shapes = _run(prepared, passed, nowhere).output_shapes
    arrays = [
        np.full(shape.dimensions, 0x55, DTYPES[o.type])
        for shape, o in zip(shapes, outputs, strict=True)
    ]
    wanted = [
        Argument(array.reshape(-1).view(np.uint8), o.dimensions)
        for array, o in zip(arrays, outputs, strict=True)
    ]
    outcome = _run(prepared, passed, wanted)
    assert outcome.status is ErrorStatus.NONE
    assert [s.dimensions for s in outcome.output_shapes] == [a.shape for a in arrays]
    return arrays


def _run(
    prepared: ReferencePrepared, passed: Sequence[Given], outputs: Sequence[Argument]
) -> Outcome:
    arrays = [None if given.array is None else np.full_like(given.array, 99) for given in passed]
    execution = prepared.bind([_argument(a) for a in arrays], outputs)
    for array, given in zip(arrays, passed, strict=True):
        if array is not None and given.array is not None:
            array[...] = given.array
    execution._evaluator.scratch.fill(0xA5)
    outcome = execution.run()
    if outcome.status not in (ErrorStatus.NONE, ErrorStatus.OUTPUT_INSUFFICIENT_SIZE):
        raise error_for(outcome.status, outcome.message)
    return outcome


def _argument(array: Array | None) -> Argument:
    if array is None:
        return Argument(None, ())
    return Argument(array.reshape(-1).view(np.uint8), array.shape)
