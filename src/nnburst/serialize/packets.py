"""Writes and reads the request and result packets of a burst, and checks every count in them.

`PacketReader` reads one packet and enforces burst:D1 to D8. It trusts no count before it has found the
counted elements.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from nnburst.hal import late_numpy as np
from nnburst.hal.enums import ErrorStatus, MeasureTiming
from nnburst.hal.errors import InvalidArgument, MalformedPacket
from nnburst.hal.limits import UINT32_MAX
from nnburst.hal.model import DataLocation
from nnburst.hal.types import OutputShape, Request, RequestArgument, Timing
from nnburst.serialize import wire
from nnburst.serialize.wire import DATUM_BYTES, REQUEST, RESULT, DatumUnion, Variant

if TYPE_CHECKING:
    import numpy.typing as npt


Datums: TypeAlias = "npt.NDArray[Any] | bytes | bytearray | memoryview"

_WORDS = DATUM_BYTES // 4


class PacketReader:
    """Reads one packet, which is copied once at the beginning, so that its sender cannot change it later.

    Elements are read in order; every method raises MalformedPacket, which names the element and the rule.
    """

    __slots__ = ("_at", "_count", "_data", "_tags", "_union", "_words")

    def __init__(self, union: DatumUnion, datums: Datums) -> None:
        """Copy `datums`: an array, or any buffer, of whole 24-byte elements.

        Raises:
            MalformedPacket: burst:D2, the last element is cut off.
        """
        given: Any = datums  # for arrays, too: a check of the class would import numpy
        data: bytes = (given if hasattr(given, "tobytes") else memoryview(given)).tobytes()
        self._union, self._data, self._at = union, data, 0
        self._count, cut_off = divmod(len(data), DATUM_BYTES)
        if cut_off:
            self._at = self._count
            self.refuse("D2", f"it has {cut_off} of {DATUM_BYTES} bytes")
        self._tags = data[::DATUM_BYTES]
        self._words = memoryview(data).cast("I")

    def refuse(self, rule: str, message: str, *, back: int = 0) -> NoReturn:
        """Raise MalformedPacket at the current element, or `back` elements before it."""
        raise MalformedPacket(message, index=self._at - back, rule=rule)

    def information(self, variant: Variant, layout: Struct) -> tuple[int, ...]:
        """Read the packetInformation at the beginning of a packet: its fields after packetSize (D1, D2)."""
        packet_size, *fields = self.take(variant, layout, "D1")
        if packet_size != self._count:
            self.refuse("D2", f"packetSize is {packet_size}, {self._count} elements came", back=1)
        return tuple(fields)

    def take(self, variant: Variant, layout: Struct, rule: str) -> tuple[int, ...]:
        """Read the fields of the next element, which must be a `variant`."""
        at = self._at
        if at >= self._count or self._tags[at] != variant.discriminator:
            self._refuse_kind(variant, rule)
        self._at = at + 1
        return layout.unpack_from(self._data, at * DATUM_BYTES)[1:]

    def dimensions(self, variant: Variant, rank: int, rule: str) -> tuple[int, ...]:
        """Read the values of the next `rank` elements, which must all be dimension values."""
        if not rank:
            return ()
        start, end = self._at, self._at + rank
        if self._tags.count(variant.discriminator, start, end) != rank:
            while self._at < self._count and self._tags[self._at] == variant.discriminator:
                self._at += 1
            self._refuse_kind(variant, rule)
        self._at = end
        first = start * _WORDS + variant.fields[0].offset // 4
        return tuple(self._words[first : end * _WORDS : _WORDS].tolist())

    def finish(self) -> None:
        """Refuse elements that are left over (D8)."""
        if self._at != self._count:
            self.refuse("D8", f"{self._count - self._at} elements too many")

    def _refuse_kind(self, wanted: Variant, rule: str) -> NoReturn:
        if self._at >= self._count:
            self.refuse(rule, f"{wanted.name} is missing")
        tag, variants = self._tags[self._at], self._union.variants
        found = variants[tag].name if tag < len(variants) else f"unknown discriminator {tag}"
        self.refuse(rule, f"expected {wanted.name}, found {found}")


(_REQUEST_INFORMATION, _INPUT, _INPUT_DIMENSION, _OUTPUT, _OUTPUT_DIMENSION, _POOL, _MEASURE) = (
    REQUEST.variants
)
_REQUEST_INFORMATION_LAYOUT = _REQUEST_INFORMATION.layout()
_REQUEST_OPERAND_LAYOUT = _INPUT.layout()  # outputs have the same layout
_REQUEST_DIMENSION_LAYOUT = _INPUT_DIMENSION.layout()
_I32_LAYOUT = _POOL.layout()


# -- Request packets -------------------------------------------------------------------------------
#     packetInformation, (inputOperandInformation, inputOperandDimensionValue*)*,
#     (outputOperandInformation, outputOperandDimensionValue*)*, poolIdentifier*, measureTiming
#
# NNAPI: 1.2/types.hal FmqRequestDatum; ExecutionBurstController.cpp serialize,
# ExecutionBurstServer.cpp deserialize.


def serialize_request(
    request: Request, slots: Sequence[int], measure: MeasureTiming
) -> npt.NDArray[np.void]:
    """Encode the packet of one execution.

    Args:
        request: inputs and outputs; `pool_index` of their locations is an index of `slots`.
        slots: the slot of every pool (int32), in the order of the request's pools.
        measure: whether the driver should time it.

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
    head = _REQUEST_INFORMATION_LAYOUT.pack(_REQUEST_INFORMATION.discriminator, *counts)
    return np.frombuffer(bytearray(head + b"".join(body)), wire.REQUEST_DATUM)


def _operands(
    variant: Variant, dimension: Variant, arguments: Sequence[RequestArgument]
) -> list[bytes]:
    packed = []
    for argument in arguments:
        at, dimensions = argument.location, argument.dimensions
        packed.append(
            _REQUEST_OPERAND_LAYOUT.pack(
                variant.discriminator,
                argument.has_no_value,
                at.pool_index,
                at.offset,
                at.length,
                len(dimensions),
            )
        )
        packed += [_REQUEST_DIMENSION_LAYOUT.pack(dimension.discriminator, d) for d in dimensions]
    return packed


def _unfitting(request: Request, slots: Sequence[int]) -> str:
    """Describe the first number that does not fit its field."""
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
        The request with `pools` empty, the slots that its `pool_index` refers to (any int32: the caller
        resolves them and refuses unknown ones), and whether timing is wanted. Whether the request fits a
        model is not checked here.

    Raises:
        MalformedPacket: burst:D1 to D8 (docs/wire_format.md). No count is trusted before its elements are
            found, so memory stays proportional to the packet.
    """
    reader = PacketReader(REQUEST, datums)
    inputs, outputs, pools = reader.information(_REQUEST_INFORMATION, _REQUEST_INFORMATION_LAYOUT)
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
        empty, pool, offset, length, rank = reader.take(variant, _REQUEST_OPERAND_LAYOUT, rules[0])
        if empty > 1:
            # DEVIATES: the original reads the byte as a C++ bool, which is undefined for 2 to 255.
            reader.refuse(rules[0], f"hasNoValue is {empty}, expected 0 or 1", back=1)
        dimensions = reader.dimensions(dimension, rank, rules[1])
        location = DataLocation(pool, offset, length)
        arguments.append(RequestArgument(bool(empty), location, dimensions))
    return tuple(arguments)


(_RESULT_INFORMATION, _RESULT_OPERAND, _RESULT_DIMENSION, _TIMING) = RESULT.variants
_RESULT_INFORMATION_LAYOUT = _RESULT_INFORMATION.layout()
_RESULT_OPERAND_LAYOUT = _RESULT_OPERAND.layout()
_RESULT_DIMENSION_LAYOUT = _RESULT_DIMENSION.layout()
_TIMING_LAYOUT = _TIMING.layout()

_NOT_MEASURED = Timing()

Result = tuple[ErrorStatus, tuple[OutputShape, ...], Timing]


# -- Result packets --------------------------------------------------------------------------------
#     packetInformation, (operandInformation, operandDimensionValue*)*, executionTiming
#
# NNAPI: 1.2/types.hal FmqResultDatum; ExecutionBurstServer.cpp serialize,
# ExecutionBurstController.cpp deserialize and getExecutionResult.


def normalize_result(status: int, output_shapes: Sequence[OutputShape], timing: Timing) -> Result:
    """Reduce a result to one that a burst may answer.

    Codes are 0 to 4; shapes come with NONE or OUTPUT_INSUFFICIENT_SIZE only, timing with NONE only.

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
    """As `serialize_result_bytes`; returns a new writable array of RESULT_DATUM, shape (packetSize,)."""
    return np.frombuffer(serialize_result_bytes(status, output_shapes, timing), wire.RESULT_DATUM)


def serialize_result_bytes(
    status: ErrorStatus,
    output_shapes: Sequence[OutputShape] = (),
    timing: Timing = _NOT_MEASURED,
) -> bytearray:
    """Encode the packet of one outcome, after `normalize_result`.

    Args:
        status: any ErrorStatus; 5 and above are sent as GENERAL_FAILURE.
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
            body.append(_RESULT_OPERAND_LAYOUT.pack(_RESULT_OPERAND.discriminator, *information))
            body += [
                _RESULT_DIMENSION_LAYOUT.pack(_RESULT_DIMENSION.discriminator, d)
                for d in shape.dimensions
            ]
        durations = (timing.time_on_device, timing.time_in_driver)
        body.append(_TIMING_LAYOUT.pack(_TIMING.discriminator, *durations))
    except struct.error as error:
        raise InvalidArgument(
            "a dimension of output_shapes is not a uint32, or a duration of timing not a uint64"
        ) from error
    counts = (len(body) + 1, status, len(shapes))
    head = _RESULT_INFORMATION_LAYOUT.pack(_RESULT_INFORMATION.discriminator, *counts)
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
    status, count = reader.information(_RESULT_INFORMATION, _RESULT_INFORMATION_LAYOUT)
    shapes = []
    for _ in range(count):
        sufficient, rank = reader.take(_RESULT_OPERAND, _RESULT_OPERAND_LAYOUT, "D3")
        if sufficient > 1:
            # DEVIATES: the original reads the byte as a C++ bool, which is undefined for 2 to 255.
            reader.refuse("D3", f"isSufficient is {sufficient}, expected 0 or 1", back=1)
        shapes.append(
            OutputShape(reader.dimensions(_RESULT_DIMENSION, rank, "D4"), bool(sufficient))
        )
    timing = Timing(*reader.take(_TIMING, _TIMING_LAYOUT, "D7"))
    reader.finish()
    return normalize_result(status, shapes, timing)
