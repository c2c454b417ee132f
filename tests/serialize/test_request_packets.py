"""Request packets: bytes written by hand, round trips, and every way to be malformed."""

import struct

import numpy as np
import pytest
from hypothesis import given

from nnburst.hal.enums import MeasureTiming
from nnburst.hal.errors import InvalidArgument, MalformedPacket
from nnburst.hal.model import DataLocation, MemoryPool
from nnburst.hal.types import Request, RequestArgument
from nnburst.serialize import REQUEST_DATUM, deserialize_request, serialize_request
from nnburst.testing.fuzzing.packet_fuzzer import nonzero_padding
from serialize.strategies import MEASURES, REQUESTS, SLOTS

REQUEST = Request(
    inputs=(RequestArgument(location=DataLocation(1, 2, 3), dimensions=(4, 5)),),
    outputs=(RequestArgument(location=DataLocation(0, 64, 8)), RequestArgument(has_no_value=True)),
)
#: The packet of REQUEST with slots 9 and -1, timed, written from the layout facts.
BYTES = bytes.fromhex(
    "00000000 09000000 01000000 02000000 02000000 00000000"
    "01000000 00000000 01000000 02000000 03000000 02000000"
    "02000000 04000000 00000000 00000000 00000000 00000000"
    "02000000 05000000 00000000 00000000 00000000 00000000"
    "03000000 00000000 00000000 40000000 08000000 00000000"
    "03000000 01000000 00000000 00000000 00000000 00000000"
    "05000000 09000000 00000000 00000000 00000000 00000000"
    "05000000 ffffffff 00000000 00000000 00000000 00000000"
    "06000000 01000000 00000000 00000000 00000000 00000000"
)


def patched(at: int, value: int, data: bytes = BYTES, form: str = "<I") -> bytes:
    """`data` with one little-endian number replaced."""
    end = at + struct.calcsize(form)
    return data[:at] + struct.pack(form, value) + data[end:]


def test_packet_has_exactly_the_bytes_of_the_layout() -> None:
    packet = serialize_request(REQUEST, (9, -1), MeasureTiming.YES)
    assert packet.dtype == REQUEST_DATUM
    assert packet.shape == (9,)
    assert packet.flags.writeable
    assert packet.tobytes() == BYTES


@pytest.mark.parametrize(
    "datums",
    [
        BYTES,
        bytearray(BYTES),
        memoryview(BYTES),
        np.frombuffer(BYTES, REQUEST_DATUM),
        np.frombuffer(BYTES, "u1").reshape(9, 24),
        np.frombuffer(BYTES, "V24"),
        np.frombuffer(BYTES * 2, REQUEST_DATUM).reshape(2, 9)[0],
    ],
    ids=["bytes", "bytearray", "memoryview", "datums", "matrix", "void", "row"],
)
def test_any_buffer_of_whole_elements_is_read(datums: bytes) -> None:
    assert deserialize_request(datums) == (REQUEST, (9, -1), MeasureTiming.YES)


def test_smallest_packet_has_two_elements() -> None:
    packet = serialize_request(Request((), ()), (), MeasureTiming.NO)
    assert len(packet) == 2
    assert deserialize_request(packet) == (Request((), ()), (), MeasureTiming.NO)


@given(REQUESTS, SLOTS, MEASURES)
def test_round_trip_keeps_everything(
    request_: Request, slots: tuple[int, ...], measure: MeasureTiming
) -> None:
    packet = serialize_request(request_, slots, measure)
    assert deserialize_request(packet) == (request_, slots, measure)
    assert nonzero_padding(packet) == []


def test_nonzero_padding_is_ignored() -> None:
    padded = bytearray(BYTES)
    for at in (1, 2, 3, 20, 23, 24 + 5, 24 + 7, 48 + 8, 9 * 24 - 1):
        padded[at] = 0xEE
    assert deserialize_request(padded) == (REQUEST, (9, -1), MeasureTiming.YES)


def test_pools_of_the_request_are_named_by_slots_alone() -> None:
    with_pools = Request(REQUEST.inputs, REQUEST.outputs, (MemoryPool(4096), MemoryPool(64)))
    packet = serialize_request(with_pools, (9, -1), MeasureTiming.YES)
    assert packet.tobytes() == BYTES
    assert deserialize_request(packet)[0].pools == ()


MALFORMED = {
    "no element": (b"", "D1", 0),
    "first element of another kind": (BYTES[24:], "D1", 0),
    "unknown first element": (patched(0, 255), "D1", 0),
    "half an element": (BYTES[:-12], "D2", 8),
    "a byte too many": (BYTES + b"\0", "D2", 9),
    "packetSize 0": (patched(4, 0), "D2", 0),
    "last element dropped": (BYTES[:-24], "D2", 0),
    "two packets": (BYTES + BYTES, "D2", 0),
    "an input too many": (patched(8, 2), "D3", 4),
    "four billion inputs": (patched(8, 2**32 - 1), "D3", 4),
    "only packetInformation": (patched(4, 1)[:24], "D3", 1),
    "unknown element for an input": (patched(24, 7), "D3", 1),
    "hasNoValue of an input is 2": (patched(28, 2), "D3", 1),
    "a dimension too many": (patched(44, 3), "D4", 4),
    "dimensions up to the end, one too few": (patched(4, 4, patched(44, 3)[:96]), "D4", 4),
    "dimensions up to the end": (patched(4, 4)[:96], "D5", 4),
    "four billion dimensions": (patched(44, 2**32 - 1), "D4", 4),
    "a dimension too few": (patched(44, 1), "D5", 3),
    "unknown element for a dimension": (patched(72, 9), "D4", 3),
    "an output too few": (patched(12, 1), "D6", 5),
    "four billion outputs": (patched(12, 2**32 - 1), "D5", 6),
    "hasNoValue of an output is 255": (patched(124, 255), "D5", 5),
    "dimension missing after an output": (patched(140, 1), "D5", 6),
    "a pool too many": (patched(16, 3), "D6", 8),
    "four billion pools": (patched(16, 2**32 - 1), "D6", 8),
    "a pool too few": (patched(16, 1), "D7", 7),
    "measureTiming missing": (patched(4, 8, BYTES[:-24]), "D7", 8),
    "measureTiming is 2": (patched(196, 2), "D7", 8),
    "measureTiming is -1": (patched(196, -1, form="<i"), "D7", 8),
    "an element left over": (patched(4, 10) + BYTES[-24:], "D8", 9),
}


@pytest.mark.parametrize(("packet", "rule", "index"), MALFORMED.values(), ids=MALFORMED)
def test_malformed_packet_names_rule_and_element(packet: bytes, rule: str, index: int) -> None:
    with pytest.raises(MalformedPacket) as caught:
        deserialize_request(packet)
    assert (caught.value.rule, caught.value.index) == (rule, index)
    assert str(caught.value).startswith(f"burst:{rule} at element {index}: ")


def test_malformed_message_names_what_was_expected_and_found() -> None:
    with pytest.raises(MalformedPacket, match="expected input_operand_information, found unknown"):
        deserialize_request(patched(24, 7))
    with pytest.raises(MalformedPacket, match="expected pool_identifier, found measure_timing"):
        deserialize_request(patched(16, 3))


def _argument(**changes: object) -> Request:
    return Request((RequestArgument(**changes),), ())


@pytest.mark.parametrize(
    ("request_", "slots", "named"),
    [
        (_argument(location=DataLocation(0, 2**32, 1)), (), "input 0: offset is 4294967296"),
        (_argument(location=DataLocation(-1, 0, 1)), (), "input 0: pool_index is -1"),
        (_argument(dimensions=(1, -2)), (), "input 0: dimension 1 is -2"),
        (Request((), (RequestArgument(location=DataLocation(0, 0, -4)),)), (), "output 0: length"),
        (Request((), ()), (0, 2**31), r"slots\[1\] is 2147483648"),
        (Request((), (), (MemoryPool(1),)), (1, 2), "slots: 2 for 1 pools"),
    ],
)
def test_numbers_that_do_not_fit_are_refused_by_name(
    request_: Request, slots: tuple[int, ...], named: str
) -> None:
    with pytest.raises(InvalidArgument, match=named):
        serialize_request(request_, slots, MeasureTiming.NO)


def test_values_of_another_type_are_refused_by_name() -> None:
    with pytest.raises(InvalidArgument, match=r"slots\[0\] is '3'"):
        serialize_request(Request((), ()), ("3",), MeasureTiming.NO)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="measure is not"):
        serialize_request(Request((), ()), (), "yes")  # type: ignore[arg-type]
