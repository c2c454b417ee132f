"""Result packets.

    packetInformation, (operandInformation, operandDimensionValue*)*, executionTiming

NNAPI: 1.2/types.hal FmqResultDatum; ExecutionBurstServer.cpp serialize,
ExecutionBurstController.cpp deserialize and getExecutionResult.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nnburst.hal.enums import ErrorStatus
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.imports import late_numpy as np
from nnburst.hal.timing import OutputShape, Timing
from nnburst.serialize import wire
from nnburst.serialize.reader import Datums, PacketReader
from nnburst.serialize.wire import RESULT

if TYPE_CHECKING:
    import numpy.typing as npt

(_INFORMATION, _OPERAND, _DIMENSION, _TIMING) = RESULT.variants
_INFORMATION_LAYOUT = _INFORMATION.layout()
_OPERAND_LAYOUT = _OPERAND.layout()
_DIMENSION_LAYOUT = _DIMENSION.layout()
_TIMING_LAYOUT = _TIMING.layout()

_NOT_MEASURED = Timing()

Result = tuple[ErrorStatus, tuple[OutputShape, ...], Timing]


def normalize_result(status: int, output_shapes: Sequence[OutputShape], timing: Timing) -> Result:
    """What a burst may answer: codes 0 to 4, shapes with NONE or OIS only, timing with NONE only.

    Every other status becomes GENERAL_FAILURE (NNAPI: a burst carries the 1.0 ErrorStatus;
    getExecutionResult drops shapes and timing that their status does not allow).
    """
    if not ErrorStatus.NONE <= status <= ErrorStatus.INVALID_ARGUMENT:
        status = ErrorStatus.GENERAL_FAILURE
    if status == ErrorStatus.NONE:
        return ErrorStatus.NONE, tuple(output_shapes), timing
    if status == ErrorStatus.OUTPUT_INSUFFICIENT_SIZE:
        return ErrorStatus.OUTPUT_INSUFFICIENT_SIZE, tuple(output_shapes), _NOT_MEASURED
    return ErrorStatus(status), (), _NOT_MEASURED


def serialize_result(
    status: ErrorStatus,
    output_shapes: Sequence[OutputShape] = (),
    timing: Timing = _NOT_MEASURED,
) -> npt.NDArray[np.void]:
    """As `serialize_result_bytes`: a new writable array of RESULT_DATUM, shape (packetSize,)."""
    return np.frombuffer(serialize_result_bytes(status, output_shapes, timing), wire.RESULT_DATUM)


def serialize_result_bytes(
    status: ErrorStatus,
    output_shapes: Sequence[OutputShape] = (),
    timing: Timing = _NOT_MEASURED,
) -> bytearray:
    """The packet of one outcome, after `normalize_result`.

    Args:
        status: any ErrorStatus; 5 and above travel as GENERAL_FAILURE.
        output_shapes: one per output, or none; dropped unless `status` is NONE or
            OUTPUT_INSUFFICIENT_SIZE.
        timing: microseconds; replaced by "not measured" unless `status` is NONE.

    Returns:
        New bytes, whole datums; every byte that is not part of a field is 0, also those beside
        isSufficient.

    Raises:
        InvalidArgument: a dimension is not a uint32, or a duration not a uint64.
    """
    status, shapes, timing = normalize_result(status, output_shapes, timing)
    try:
        body = []
        for shape in shapes:
            information = (shape.is_sufficient, len(shape.dimensions))
            body.append(_OPERAND_LAYOUT.pack(_OPERAND.discriminator, *information))
            body += [_DIMENSION_LAYOUT.pack(_DIMENSION.discriminator, d) for d in shape.dimensions]
        durations = (timing.time_on_device, timing.time_in_driver)
        body.append(_TIMING_LAYOUT.pack(_TIMING.discriminator, *durations))
    except struct.error as error:
        raise InvalidArgument(
            "a dimension of output_shapes is not a uint32, or a duration of timing not a uint64"
        ) from error
    counts = (len(body) + 1, status, len(shapes))
    head = _INFORMATION_LAYOUT.pack(_INFORMATION.discriminator, *counts)
    return bytearray(head + b"".join(body))


def deserialize_result(datums: Datums) -> Result:
    """Read one result packet and apply `normalize_result` to its contents.

    Args:
        datums: 24-byte items, or a buffer of whole items. It is copied once, then left alone.

    Returns:
        Status (one of 0 to 4; a code that a burst cannot carry reads as GENERAL_FAILURE), shapes
        and timing. That `time_on_device` is at most `time_in_driver` is not checked here.

    Raises:
        MalformedPacket: burst:D1 to D4, D7, D8 (docs/wire_format.md).
    """
    reader = PacketReader(RESULT, datums)
    status, count = reader.information(_INFORMATION, _INFORMATION_LAYOUT)
    shapes = []
    for _ in range(count):
        sufficient, rank = reader.take(_OPERAND, _OPERAND_LAYOUT, "D3")
        if sufficient > 1:
            # DEVIATES: the original reads the byte as a C++ bool, which is undefined for 2 to 255.
            reader.refuse("D3", f"isSufficient is {sufficient}, expected 0 or 1", back=1)
        shapes.append(OutputShape(reader.dimensions(_DIMENSION, rank, "D4"), bool(sufficient)))
    timing = Timing(*reader.take(_TIMING, _TIMING_LAYOUT, "D7"))
    reader.finish()
    return normalize_result(status, shapes, timing)
