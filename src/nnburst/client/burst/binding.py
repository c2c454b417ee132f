"""Binding: from arrays, or room for them, to a bound request."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import NamedTuple

from nnburst.client.burst.bound_request import BoundRequest
from nnburst.client.burst.core import BurstCore
from nnburst.client.execution.buffer import refuse_buffers
from nnburst.client.memory.arguments import Array, Parameter, check_count
from nnburst.client.memory.memory import find_memory
from nnburst.client.memory.staging import Layout
from nnburst.hal.enums import MeasureTiming
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.limits import UINT32_MAX


def bind(
    core: BurstCore,
    inputs: Sequence[Array | None] | None,
    outputs: Sequence[Array | None] | None,
    *,
    measure: bool,
    output_bytes: Sequence[int | None] | None,
) -> BoundRequest:
    """Bind a request; see `Burst.bind`."""
    core.check_open()
    core.prepared.session.check_open()  # arrays in pools can be bound without it, and never run
    given = inputs if inputs is not None else [None] * len(core.inputs)
    check_count("inputs", given, core.inputs)
    taken = outputs if outputs is not None else [None] * len(core.outputs)
    check_count("outputs", taken, core.outputs)
    refuse_buffers("inputs", given)
    refuse_buffers("outputs", taken)
    rooms = output_bytes if output_bytes is not None else [None] * len(core.outputs)
    check_count("output_bytes", rooms, core.outputs)
    for index, room in enumerate(rooms):
        if room is not None:
            check_integer(f"output_bytes[{index}]", room, 1, UINT32_MAX)
    plan = Layout()
    spots = [
        *(
            _spot(plan, p, a, p.size) if inputs is None else None
            for p, a in zip(core.inputs, given, strict=True)
        ),
        *(
            _spot(plan, p, a, p.size or room or 0)
            for p, a, room in zip(core.outputs, taken, rooms, strict=True)
        ),
    ]
    return _bind(core, [*given, *taken], spots, plan.size, measure)


def bind_with_private(
    core: BurstCore,
    inputs: Sequence[Array | None],
    outputs: Sequence[Array | None],
    sizes: Sequence[int],
    *,
    measure: bool,
) -> BoundRequest:
    """Bind with private memory for every array that lies in no pool; inputs None stay omitted.

    Args:
        core: of the burst.
        inputs: as in `execute`; private copies get the same shapes.
        outputs: as in `execute`.
        sizes: bytes of each output.
        measure: whether to time it.
    """
    plan = Layout()
    spots: list[_Spot | None] = []
    arrays: list[Array | None] = []
    for array in inputs:
        private = array is not None and find_memory(array) is None
        arrays.append(None if private else array)
        shape = array.shape if array is not None else ()
        spots.append(
            _Spot(plan.place(array.nbytes), shape) if private and array is not None else None
        )
    for parameter, array, size in zip(core.outputs, outputs, sizes, strict=True):
        private = array is None or find_memory(array) is None
        arrays.append(None if private else array)
        spots.append(_spot(plan, parameter, None, size) if private else None)
    return _bind(core, arrays, spots, plan.size, measure)


def _bind(
    core: BurstCore,
    given: Sequence[Array | None],
    spots: Sequence[_Spot | None],
    size: int,
    measure: bool,
) -> BoundRequest:
    """Make arrays for the spots in one new pool and bind them with the given ones."""
    memory = core.prepared.session.allocate(size) if size else None
    parameters = (*core.inputs, *core.outputs)
    arrays = [
        array
        if spot is None or memory is None
        else memory.array(parameter.dtype, spot.shape, spot.offset)
        for parameter, array, spot in zip(parameters, given, spots, strict=True)
    ]
    split = len(core.inputs)
    timed = MeasureTiming.YES if measure else MeasureTiming.NO
    bound = BoundRequest(core, arrays[:split], arrays[split:], timed)
    core.add(bound)
    return bound


def check_integer(name: str, value: int, least: int, most: int) -> None:
    """Raise InvalidArgument, naming `name`, unless `value` is an integer from `least` to `most`."""
    try:
        fits = least <= operator.index(value) <= most
    except TypeError:
        fits = False
    if not fits:
        raise InvalidArgument(f"{name} is {value!r}, expected {least} to {most}")


class _Spot(NamedTuple):
    """A place in a new pool."""

    offset: int
    shape: tuple[int, ...]


def _spot(plan: Layout, parameter: Parameter, array: Array | None, size: int) -> _Spot | None:
    """Room of `size` bytes for a parameter that has no array; None if it has one."""
    if array is not None:
        return None
    if not size:
        raise InvalidArgument(
            f"{parameter.name} has no fixed shape: give bind an array (or output_bytes)"
        )
    shape = parameter.dimensions if parameter.known else (size // parameter.dtype.itemsize,)
    return _Spot(plan.place(size), shape)
