"""Result packets: bytes written by hand, round trips, the client's rules, malformed ones."""

import pytest
from hypothesis import given

from nnburst.hal.enums import ErrorStatus
from nnburst.hal.errors import InvalidArgument, MalformedPacket
from nnburst.hal.types import OutputShape, Timing
from nnburst.serialize import RESULT_DATUM, deserialize_result, serialize_result
from nnburst.testing.fuzzing.packet_fuzzer import nonzero_padding
from serialize.strategies import SHAPES, STATUSES, TIMINGS

SHAPE = OutputShape((7, 0), True)
#: Status NONE, SHAPE, 17 and 34 microseconds, written from the layout facts.
BYTES = bytes.fromhex(
    "00000000 00000000 05000000 00000000 01000000 00000000"
    "01000000 00000000 01000000 02000000 00000000 00000000"
    "02000000 00000000 07000000 00000000 00000000 00000000"
    "02000000 00000000 00000000 00000000 00000000 00000000"
    "03000000 00000000 1100000000000000 2200000000000000"
)
NOT_MEASURED = Timing()


def patched(at: int, *values: int) -> bytes:
    """BYTES with the bytes from `at` replaced."""
    return BYTES[:at] + bytes(values) + BYTES[at + len(values) :]


def test_packet_has_exactly_the_bytes_of_the_layout() -> None:
    packet = serialize_result(ErrorStatus.NONE, (SHAPE,), Timing(0x11, 0x22))
    assert packet.dtype == RESULT_DATUM
    assert packet.flags.writeable
    assert packet.tobytes() == BYTES
    assert deserialize_result(packet) == (ErrorStatus.NONE, (SHAPE,), Timing(0x11, 0x22))


def test_failure_is_the_two_element_packet() -> None:
    packet = serialize_result(ErrorStatus.GENERAL_FAILURE)
    assert packet.tobytes() == bytes.fromhex(
        "00000000 00000000 02000000 02000000 00000000 00000000"
        "03000000 00000000 ffffffffffffffff ffffffffffffffff"
    )


@given(STATUSES, SHAPES, TIMINGS)
def test_round_trip_keeps_what_the_status_allows(
    status: ErrorStatus, shapes: tuple[OutputShape, ...], timing: Timing
) -> None:
    packet = serialize_result(status, shapes, timing)
    assert nonzero_padding(packet) == []
    got_status, got_shapes, got_timing = deserialize_result(packet)
    assert got_status == (status if status <= 4 else ErrorStatus.GENERAL_FAILURE)
    assert got_shapes == (shapes if status in (0, 3) else ())
    assert got_timing == (timing if status == 0 else NOT_MEASURED)


@pytest.mark.parametrize("status", [5, 6, 7, 8, 10000])
def test_statuses_newer_than_1_0_travel_as_general_failure(status: int) -> None:
    packet = serialize_result(ErrorStatus(status), (SHAPE,), Timing(1, 2))
    assert packet.tobytes() == serialize_result(ErrorStatus.GENERAL_FAILURE).tobytes()


@pytest.mark.parametrize("code", [5, 8, 99, 127])
def test_status_that_a_burst_cannot_carry_reads_as_general_failure(code: int) -> None:
    read = deserialize_result(patched(12, code))
    assert read == (ErrorStatus.GENERAL_FAILURE, (), NOT_MEASURED)
    assert deserialize_result(patched(12, 0xFF, 0xFF, 0xFF, 0xFF)) == read


def test_shapes_and_timing_that_came_with_an_error_are_dropped() -> None:
    assert deserialize_result(patched(12, 4)) == (ErrorStatus.INVALID_ARGUMENT, (), NOT_MEASURED)
    ois = (ErrorStatus.OUTPUT_INSUFFICIENT_SIZE, (SHAPE,), NOT_MEASURED)
    assert deserialize_result(patched(12, 3)) == ois


def test_nonzero_padding_is_ignored() -> None:
    assert deserialize_result(patched(33, 0xEE, 0xEE, 0xEE)) == deserialize_result(BYTES)


MALFORMED = {
    "no element": (b"", "D1", 0),
    "unknown first element": (patched(0, 4), "D1", 0),
    "packetSize 4": (patched(8, 4), "D2", 0),
    "cut off": (BYTES[:-1], "D2", 4),
    "no operands announced": (patched(16, 0), "D7", 1),
    "four billion operands": (patched(16, 255, 255, 255, 255), "D3", 4),
    "unknown element for an operand": (patched(24, 4), "D3", 1),
    "isSufficient is 3": (patched(32, 3), "D3", 1),
    "a dimension too many": (patched(36, 3), "D4", 4),
    "dimensions up to the end": (patched(8, 4)[:36] + b"\xff" + BYTES[37:96], "D4", 4),
    "four billion dimensions": (patched(36, 255, 255, 255, 255), "D4", 4),
    "timing of another kind": (patched(96, 1), "D7", 4),
    "timing missing": (patched(8, 4)[:-24], "D7", 4),
    "timing twice": (patched(8, 6) + BYTES[-24:], "D8", 5),
}


@pytest.mark.parametrize(("packet", "rule", "index"), MALFORMED.values(), ids=MALFORMED)
def test_malformed_packet_names_rule_and_element(packet: bytes, rule: str, index: int) -> None:
    with pytest.raises(MalformedPacket) as caught:
        deserialize_result(packet)
    assert (caught.value.rule, caught.value.index) == (rule, index)


@pytest.mark.parametrize(
    ("shapes", "timing"),
    [((OutputShape((2**32,), True),), Timing()), ((), Timing(-1, 0)), ((), Timing(0, 2**64))],
)
def test_numbers_that_do_not_fit_are_refused(
    shapes: tuple[OutputShape, ...], timing: Timing
) -> None:
    with pytest.raises(InvalidArgument, match="uint"):
        serialize_result(ErrorStatus.NONE, shapes, timing)
