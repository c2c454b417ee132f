"""Request packets.

    packetInformation, (inputOperandInformation, inputOperandDimensionValue*)*,
    (outputOperandInformation, outputOperandDimensionValue*)*, poolIdentifier*, measureTiming

NNAPI: 1.2/types.hal FmqRequestDatum; ExecutionBurstController.cpp serialize,
ExecutionBurstServer.cpp deserialize.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nnburst.hal.enums import MeasureTiming
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.imports import late_numpy as np
from nnburst.hal.limits import UINT32_MAX
from nnburst.hal.model import DataLocation
from nnburst.hal.request import Request, RequestArgument
from nnburst.serialize import wire
from nnburst.serialize.reader import Datums, PacketReader
from nnburst.serialize.wire import REQUEST, Variant

if TYPE_CHECKING:
    import numpy.typing as npt

(_INFORMATION, _INPUT, _INPUT_DIMENSION, _OUTPUT, _OUTPUT_DIMENSION, _POOL, _MEASURE) = (
    REQUEST.variants
)
_INFORMATION_LAYOUT = _INFORMATION.layout()
_OPERAND_LAYOUT = _INPUT.layout()  # outputs have the same layout
_DIMENSION_LAYOUT = _INPUT_DIMENSION.layout()
_I32_LAYOUT = _POOL.layout()


def serialize_request(
    request: Request, slots: Sequence[int], measure: MeasureTiming
) -> npt.NDArray[np.void]:
    """The packet of one execution.

    Args:
        request: inputs and outputs; `pool_index` of their locations counts in `slots`.
        slots: the slot of every pool (int32), in the order of the request's pools.
        measure: whether the driver shall time it.

    Returns:
        A new writable array of REQUEST_DATUM, shape (packetSize,); every byte that is not part of
        a field is 0.

    Raises:
        InvalidArgument: a number does not fit its field, or `slots` and `request.pools` (if it
            is not empty) differ in length. The request is not otherwise validated.
    """
    if request.pools and len(request.pools) != len(slots):
        raise InvalidArgument(f"slots: {len(slots)} for {len(request.pools)} pools of the request")
    try:
        body = [
            *_operands(_INPUT, _INPUT_DIMENSION, request.inputs),
            *_operands(_OUTPUT, _OUTPUT_DIMENSION, request.outputs),
            *(_I32_LAYOUT.pack(_POOL.discriminator, slot) for slot in slots),
            _I32_LAYOUT.pack(_MEASURE.discriminator, measure),
        ]
    except struct.error as error:
        raise InvalidArgument(_unfitting(request, slots)) from error
    counts = (len(body) + 1, len(request.inputs), len(request.outputs), len(slots))
    head = _INFORMATION_LAYOUT.pack(_INFORMATION.discriminator, *counts)
    return np.frombuffer(bytearray(head + b"".join(body)), wire.REQUEST_DATUM)


def _operands(
    variant: Variant, dimension: Variant, arguments: Sequence[RequestArgument]
) -> list[bytes]:
    packed = []
    for argument in arguments:
        at, dimensions = argument.location, argument.dimensions
        packed.append(
            _OPERAND_LAYOUT.pack(
                variant.discriminator,
                argument.has_no_value,
                at.pool_index,
                at.offset,
                at.length,
                len(dimensions),
            )
        )
        packed += [_DIMENSION_LAYOUT.pack(dimension.discriminator, d) for d in dimensions]
    return packed


def _unfitting(request: Request, slots: Sequence[int]) -> str:
    """Name the first number that its field cannot hold."""
    for kind, arguments in (("input", request.inputs), ("output", request.outputs)):
        for i, argument in enumerate(arguments):
            at = argument.location
            fields = {"pool_index": at.pool_index, "offset": at.offset, "length": at.length}
            fields |= {f"dimension {d}": n for d, n in enumerate(argument.dimensions)}
            for name, value in fields.items():
                if not _fits("<I", value):
                    return f"{kind} {i}: {name} is {value!r}, expected 0 to {UINT32_MAX}"
    for i, slot in enumerate(slots):
        if not _fits("<i", slot):
            return f"slots[{i}] is {slot!r}, expected an int32"
    return "measure is not a MeasureTiming"


def _fits(form: str, value: object) -> bool:
    try:
        struct.pack(form, value)
    except struct.error:
        return False
    return True


def deserialize_request(datums: Datums) -> tuple[Request, tuple[int, ...], MeasureTiming]:
    """Read one request packet.

    Args:
        datums: 24-byte items, or a buffer of whole items. It is copied once, then left alone, so it
            may lie in memory that another process writes.

    Returns:
        The request with `pools` empty, the slots that its `pool_index` counts in (any int32: who
        resolves them refuses unknown ones), and whether timing is wanted. Whether it fits a model
        is not checked here.

    Raises:
        MalformedPacket: burst:D1 to D8 (docs/wire_format.md). No count is believed before its elements
            are there, so memory stays proportional to the packet.
    """
    reader = PacketReader(REQUEST, datums)
    inputs, outputs, pools = reader.information(_INFORMATION, _INFORMATION_LAYOUT)
    request = Request(
        inputs=_arguments(reader, inputs, _INPUT, _INPUT_DIMENSION, ("D3", "D4")),
        outputs=_arguments(reader, outputs, _OUTPUT, _OUTPUT_DIMENSION, ("D5", "D5")),
    )
    slots = tuple([reader.take(_POOL, _I32_LAYOUT, "D6")[0] for _ in range(pools)])
    (measure,) = reader.take(_MEASURE, _I32_LAYOUT, "D7")
    if measure not in (MeasureTiming.NO, MeasureTiming.YES):
        # DEVIATES: the original reads it raw (Android 11: as NO; later: fails the execution). As a
        # malformed packet it gets the later answer, GENERAL_FAILURE, and the burst stays usable.
        reader.refuse("D7", f"measureTiming is {measure}, expected 0 or 1", back=1)
    reader.finish()
    return request, slots, MeasureTiming(measure)


def _arguments(
    reader: PacketReader, count: int, variant: Variant, dimension: Variant, rules: tuple[str, str]
) -> tuple[RequestArgument, ...]:
    arguments: list[Any] = []
    for _ in range(count):
        empty, pool, offset, length, rank = reader.take(variant, _OPERAND_LAYOUT, rules[0])
        if empty > 1:
            # DEVIATES: the original reads the byte as a C++ bool, which is undefined for 2 to 255.
            reader.refuse(rules[0], f"hasNoValue is {empty}, expected 0 or 1", back=1)
        dimensions = reader.dimensions(dimension, rank, rules[1])
        location = DataLocation(pool, offset, length)
        arguments.append(RequestArgument(bool(empty), location, dimensions))
    return tuple(arguments)
