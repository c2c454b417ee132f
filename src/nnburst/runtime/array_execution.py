"""Executes a plan on numpy arrays, with outputs that grow until they fit."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from nnburst.client.arguments import (
    Array,
    ExecutionResult,
    Parameter,
    boottime_deadline_ns,
    check_count,
    check_timeout,
    in_shape,
    seconds_until,
    settle_truth,
)
from nnburst.client.memory import refuse_overlap
from nnburst.hal.enums import ResultCode
from nnburst.hal.errors import InvalidArgument, MissedDeadline
from nnburst.hal.types import OutputShape
from nnburst.runtime.argument import Argument, Options, Outcome, PreparedPart
from nnburst.runtime.execution.bound_plan import Bursts
from nnburst.runtime.execution.executable import Executable
from nnburst.runtime.records import ExecutionMode


class CallTime(NamedTuple):
    """The begin and the deadline of a call, taken once when the call begins.

    Attributes:
        began_ns: the begin on CLOCK_MONOTONIC.
        deadline_ns: the deadline on CLOCK_BOOTTIME, as requests have it.
    """

    began_ns: int
    deadline_ns: int

    @classmethod
    def of(cls, timeout: float) -> Self:
        """The times of a call that begins now.

        Raises:
            InvalidArgument: `timeout` is not a positive finite number.
        """
        return cls(time.monotonic_ns(), boottime_deadline_ns(check_timeout(timeout)))

    @property
    def left(self) -> float:
        """Seconds until the deadline; negative after it."""
        return seconds_until(self.deadline_ns)

    def check_left(self) -> float:
        """Seconds until the deadline; an error if none are left for sending a request.

        Raises:
            MissedDeadline: no time is left.
        """
        left = self.left
        if left <= 0:
            raise MissedDeadline("timeout: it passed before the request could be sent")
        return left


def execute_arrays(
    executable: Executable,
    takes: Sequence[Parameter],
    gives: Sequence[Parameter],
    inputs: Sequence[Array | None],
    outputs: Sequence[Array | None] | None,
    call: CallTime,
    *,
    measure: bool = False,
    bursts: Bursts | None = None,
    mode: ExecutionMode = ExecutionMode.SYNC,
) -> ExecutionResult:
    """Execute once; see `CompiledModel.execute`. The caller calls `Executable.revive` before."""
    check_count("inputs", inputs, takes)
    given = [None] * len(gives) if outputs is None else outputs
    check_count("outputs", given, gives)
    arguments = [_input(p, a) for p, a in zip(takes, inputs, strict=True)]
    rooms = [
        _room(parameter, array, executable.rooms.get(index, 0))
        for index, (parameter, array) in enumerate(zip(gives, given, strict=True))
    ]
    refuse_overlap(inputs, rooms)
    options = Options(measure, call.deadline_ns, is_final=True)
    while True:
        places = [
            Argument(as_bytes(room), parameter.dimensions)
            for parameter, room in zip(gives, rooms, strict=True)
        ]
        outcome = executable.execute(arguments, places, options, bursts or ())
        took = time.monotonic_ns() - call.began_ns
        executable.recorder.executed(mode, outcome.code, took, outcome.timing)
        if outcome.code == ResultCode.NO_ERROR:
            return _result(gives, given, rooms, outcome)
        is_short = outcome.code == ResultCode.OUTPUT_INSUFFICIENT_SIZE
        if is_short and _grow(gives, given, rooms, outcome.output_shapes, executable.rooms):
            continue
        raise outcome.error


def execute_order(
    part: PreparedPart,
    takes: Sequence[Parameter],
    gives: Sequence[Parameter],
    inputs: Sequence[Array | None],
    call: CallTime,
) -> None:
    """Execute a part that computes nothing; it is not counted, recorded, or repeated on the CPU.

    Raises:
        NnburstError: the device refuses the order, or has died.
    """
    rooms = [_room(parameter, None) for parameter in gives]
    options = Options(deadline_ns=call.deadline_ns, is_final=True)
    part.execute(*arguments_of(takes, gives, inputs, rooms), options).succeeded()


def arguments_of(
    takes: Sequence[Parameter],
    gives: Sequence[Parameter],
    inputs: Sequence[Array | None],
    outputs: Sequence[Array],
) -> tuple[list[Argument], list[Argument]]:
    """Make arguments of a plan from arrays, without a copy.

    Raises:
        InvalidArgument: an array does not fit the model.
    """
    rooms = [_room(parameter, array) for parameter, array in zip(gives, outputs, strict=True)]
    refuse_overlap(inputs, rooms)
    return (
        [_input(parameter, array) for parameter, array in zip(takes, inputs, strict=True)],
        [Argument(as_bytes(room), p.dimensions) for p, room in zip(gives, rooms, strict=True)],
    )


def result_of(
    gives: Sequence[Parameter], outputs: Sequence[Array], outcome: Outcome
) -> ExecutionResult:
    """The result of an execution on given outputs.

    Raises:
        NnburstError: the execution failed.
    """
    return _result(gives, outputs, outputs, outcome.succeeded())


def _input(parameter: Parameter, value: Array | None) -> Argument:
    if value is None:
        parameter.check_omitted()
        return Argument(None, parameter.dimensions)
    array = parameter.check_input(value)
    return Argument(as_bytes(array), array.shape)


def _room(parameter: Parameter, value: Array | None, size: int = 0) -> Array:
    """The given array, or a new one; of at least `size` bytes if its shape is open or differed."""
    if value is not None:
        return parameter.check_output(value)
    if parameter.known and size <= parameter.size:
        return np.empty(parameter.dimensions, parameter.dtype)
    return np.empty(max(parameter.first_room, size) // parameter.dtype.itemsize, parameter.dtype)


def as_bytes(array: Array) -> Array:
    """The bytes of a contiguous array, in place."""
    if not array.size:
        raise InvalidArgument(f"array: shape {array.shape} has no elements, expected at least one")
    return array.reshape(-1).view(np.uint8)


def _grow(
    gives: Sequence[Parameter],
    given: Sequence[Array | None],
    rooms: list[Array],
    shapes: Sequence[OutputShape],
    sizes: dict[int, int],
) -> bool:
    """Allocate larger arrays for outputs that were too small and note the sizes; False if it cannot help."""
    grown = False
    for index, (parameter, shape) in enumerate(zip(gives, shapes, strict=False)):
        if shape.is_sufficient:
            continue
        more = parameter.more_room(rooms[index].nbytes, shape)
        if given[index] is not None or more is None:
            return False
        rooms[index] = np.empty(-(-more // parameter.dtype.itemsize), parameter.dtype)
        sizes[index] = max(sizes.get(index, 0), rooms[index].nbytes)
        grown = True
    return grown


def _result(
    gives: Sequence[Parameter],
    given: Sequence[Array | None],
    rooms: Sequence[Array],
    outcome: Outcome,
) -> ExecutionResult:
    shapes = outcome.output_shapes or tuple(OutputShape(p.dimensions, True) for p in gives)
    arrays = []
    for parameter, array, room, shape in zip(gives, given, rooms, shapes, strict=True):
        extents = parameter.shape_of(shape)
        found = in_shape(parameter.name, room, extents)
        if array is None and not parameter.known and 2 * math.prod(extents) < room.size:
            found = found.copy()  # the array is much larger than the output
        arrays.append(settle_truth(found))
    return ExecutionResult(arrays, shapes, outcome.timing)
