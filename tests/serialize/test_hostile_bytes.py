"""Whatever bytes arrive, a decoder answers or raises MalformedPacket, in memory bounded by them."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnburst.hal.enums import ErrorStatus, MeasureTiming
from nnburst.hal.errors import MalformedPacket
from nnburst.hal.limits import UINT32_MAX
from nnburst.hal.model import DataLocation
from nnburst.hal.types import OutputShape, Request, RequestArgument, Timing
from nnburst.serialize import (
    deserialize_request,
    deserialize_result,
    serialize_request,
    serialize_result,
)
from nnburst.serialize.packets import PacketReader
from nnburst.testing.fuzzing import packet_fuzzer
from serialize.strategies import MEASURES, REQUESTS, SLOTS

Decoder = Callable[[bytes], object]
DECODERS = pytest.mark.parametrize("decode", [deserialize_request, deserialize_result])


def peak_of(decode: Decoder, packet: bytes) -> int:
    """Bytes that decoding allocated at most; the outcome must be a value or MalformedPacket.

    The smaller of two runs: only the first one fills caches, and other threads only add.
    """
    return min(traced(decode, packet), traced(decode, packet))


def traced(decode: Decoder, packet: bytes) -> int:
    """Bytes that this process allocated at most while it decoded."""
    tracemalloc.start()
    try:
        decode(packet)
    except MalformedPacket:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak


def bound(packet: bytes) -> int:
    """11 times the packet, and 4 KiB for the reader and the exception.

    The most that one element of 24 bytes can become is its copy, two structs, three integers and two
    places: 249 bytes. An exception with its message and traceback has 2.5 KiB.
    """
    return 11 * len(packet) + 4096


@DECODERS
@given(data=st.binary(max_size=600))
def test_random_bytes_are_read_or_malformed_in_bounded_memory(decode: Decoder, data: bytes) -> None:
    assert peak_of(decode, data) <= bound(data)


FIELDS = st.lists(st.sampled_from([0, 1, 2, 2**31, UINT32_MAX]), min_size=5, max_size=5)
ELEMENTS = st.lists(st.tuples(st.integers(0, 8), FIELDS), min_size=1, max_size=12)


@DECODERS
@given(elements=ELEMENTS)
def test_random_elements_with_a_true_packet_size_are_read_or_malformed(
    decode: Decoder, elements: list[tuple[int, list[int]]]
) -> None:
    words = np.array([[tag, *fields] for tag, fields in elements], "<u4")
    words[0, 0] = 0
    words[0, 1 if decode is deserialize_request else 2] = len(words)
    assert peak_of(decode, words.tobytes()) <= bound(words.tobytes())


@settings(max_examples=25)
@given(REQUESTS, SLOTS, MEASURES, st.integers(0, 2**32))
def test_mutated_requests_are_read_or_malformed(
    request_: Request, slots: tuple[int, ...], measure: MeasureTiming, seed: int
) -> None:
    packet = serialize_request(request_, slots, measure)
    for mutate in (
        packet_fuzzer.random_bytes,
        packet_fuzzer.random_fields,
        packet_fuzzer.random_structure,
    ):
        for mutation in mutate(packet, seed, 5):
            data = mutation.packet.tobytes()
            assert peak_of(deserialize_request, data) <= bound(data), mutation.description


@pytest.mark.parametrize("count", [1, 30, 1000])
def test_largest_objects_stay_within_the_bound(count: int) -> None:
    big = RequestArgument(location=DataLocation(UINT32_MAX, UINT32_MAX - 1, UINT32_MAX - 2))
    wide = RequestArgument(dimensions=(UINT32_MAX,) * count)
    for request in (Request((big,) * count, ()), Request((), (wide,))):
        packet = serialize_request(request, (2**31 - 1,) * count, MeasureTiming.YES).tobytes()
        assert peak_of(deserialize_request, packet) <= bound(packet)
    shapes = (OutputShape((UINT32_MAX,), False),) * count
    packet = serialize_result(ErrorStatus.NONE, shapes, Timing(2**63, 2**63)).tobytes()
    assert peak_of(deserialize_result, packet) <= bound(packet)


def test_large_packets_that_are_malformed_at_their_end_stay_within_the_bound() -> None:
    big = RequestArgument(location=DataLocation(UINT32_MAX, UINT32_MAX - 1, UINT32_MAX - 2))
    request = serialize_request(Request((big,) * 1000, ()), (), MeasureTiming.NO).tobytes()
    shapes = (OutputShape((UINT32_MAX,), False),) * 1000
    result = serialize_result(ErrorStatus.NONE, shapes, Timing()).tobytes()
    for decode, packet in ((deserialize_request, request), (deserialize_result, result)):
        spoilt = packet[:-24] + b"\xff" * 24
        with pytest.raises(MalformedPacket):
            decode(spoilt)
        assert peak_of(decode, spoilt) <= bound(spoilt)


def test_counts_are_not_believed() -> None:
    good = serialize_request(
        Request((RequestArgument(dimensions=(1,)),), (RequestArgument(),)), (0,), MeasureTiming.NO
    )
    for mutation in packet_fuzzer.count_mutations(good):
        data = mutation.packet.tobytes()
        with pytest.raises(MalformedPacket):
            deserialize_request(data)
        assert peak_of(deserialize_request, data) <= bound(data), mutation.description


@pytest.mark.parametrize("form", [bytearray, memoryview, np.ndarray])
def test_bytes_that_change_after_the_call_begins_are_not_read_twice(
    form: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    argument = RequestArgument(location=DataLocation(1, 8, 16), dimensions=(2, 3))
    shape, timing = OutputShape((4, 5), True), Timing(6, 7)
    packets = [
        (
            serialize_request(Request((argument,), (argument,)), (1, 2), MeasureTiming.YES),
            deserialize_request,
        ),
        (serialize_result(ErrorStatus.NONE, (shape,), timing), deserialize_result),
    ]
    information = PacketReader.information
    for packet, decode in packets:
        expected = decode(packet)
        data = bytearray(packet.tobytes())
        given = np.frombuffer(data, packet.dtype) if form is np.ndarray else form(data)

        def change_first(reader: PacketReader, *rest: Any, given: Any = given) -> tuple[int, ...]:
            memoryview(given).cast("B")[:] = b"\xff" * memoryview(given).nbytes
            return information(reader, *rest)

        with monkeypatch.context() as patch:
            patch.setattr(PacketReader, "information", change_first)
            assert decode(given) == expected
        with pytest.raises(MalformedPacket):
            decode(given)  # so its bytes have changed
