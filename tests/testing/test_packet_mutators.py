"""The packet mutators produce what the suite's table has, and each leaves its input alone."""

import itertools
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from nnburst.hal.enums import ErrorStatus, MeasureTiming
from nnburst.hal.errors import MalformedPacket
from nnburst.hal.model import DataLocation
from nnburst.hal.types import OutputShape, Request, RequestArgument, Timing
from nnburst.serialize import deserialize_request, serialize_request, serialize_result
from nnburst.serialize.wire import REQUEST
from nnburst.serialize.wire import RESULT as RESULT_UNION
from nnburst.testing.fuzzing import packet_fuzzer as mutators

_ARGUMENT = RequestArgument(location=DataLocation(0, 16, 16), dimensions=(1, 4))
PACKET = serialize_request(Request((_ARGUMENT,), (_ARGUMENT,)), (3,), MeasureTiming.YES)
RESULT = serialize_result(ErrorStatus.NONE, (OutputShape((1, 4), True),), Timing(1, 2))
RANDOM = [mutators.random_bytes, mutators.random_fields, mutators.random_structure]


@pytest.fixture(autouse=True)
def _inputs_stay_unchanged() -> Iterator[None]:
    before = PACKET.tobytes(), RESULT.tobytes()
    yield
    assert (PACKET.tobytes(), RESULT.tobytes()) == before


def test_exhaustive_mutations_have_the_suites_numbers() -> None:
    n = len(PACKET)
    assert n == 9
    assert len(list(mutators.removals(PACKET))) == n
    assert len(list(mutators.insertions(PACKET))) == 7 * (n + 1)
    # 7 per element, less measureTiming YES by itself and each dimension by its own kind
    assert len(list(mutators.replacements(PACKET))) == 7 * n - 1 - 4


def test_bad_entries_are_the_suites_seven() -> None:
    names = [name for name, _ in mutators.BAD_ENTRIES]
    assert names[0] == "packet_information"
    assert names[-1] == "measure_timing"
    data = b"".join(entry for _, entry in mutators.BAD_ENTRIES)
    assert data[::24] == bytes(range(7))
    assert data[4:20] == b"\x0a\0\0\0" * 4
    assert data[24 * 5 + 4 : 24 * 5 + 8] == b"\xff\xff\xff\x7f"


def test_every_removal_and_insertion_is_malformed() -> None:
    for mutation in itertools.chain(mutators.removals(PACKET), mutators.insertions(PACKET)):
        with pytest.raises(MalformedPacket):
            deserialize_request(mutation.packet)


def test_replacements_that_decode_differ_from_the_packet_in_meaning() -> None:
    meaning = deserialize_request(PACKET)
    decoded = 0
    for mutation in mutators.replacements(PACKET):
        try:
            assert deserialize_request(mutation.packet) != meaning, mutation.description
            decoded += 1
        except MalformedPacket:
            continue
    assert decoded == 1  # the pool identifier INT32_MAX: slots are resolved later (VB4)


def test_suite_mutations_chain_all_three() -> None:
    mutations = list(mutators.suite_mutations(PACKET))
    assert len(mutations) == 9 + 70 + 58
    assert len({m.description for m in mutations}) == len(mutations)


@pytest.mark.parametrize("packet", [PACKET, RESULT], ids=["request", "result"])
def test_count_mutations_change_one_count_to_each_edge(packet: mutators.Packet) -> None:
    mutations = list(mutators.count_mutations(packet))
    assert all(m.packet.tobytes() != packet.tobytes() for m in mutations)
    assert all(len(m.packet) == len(packet) for m in mutations)
    variant = (REQUEST if packet is PACKET else RESULT_UNION).variants[0]
    sizes = {int(variant.view(m.packet)["packet_size"][0]) for m in mutations}
    n = len(packet)
    assert sizes == {0, 1, n - 1, n, n + 1, 2**31 - 1, 2**32 - 1}


@pytest.mark.parametrize("mutate", RANDOM)
@pytest.mark.parametrize("packet", [PACKET, RESULT], ids=["request", "result"])
def test_random_mutations_follow_their_seed(
    mutate: Callable[..., Iterator[mutators.Mutation]], packet: mutators.Packet
) -> None:
    first, again, other = (
        [m.packet.tobytes() for m in mutate(packet, seed, 50)] for seed in (7, 7, 8)
    )
    assert first == again
    assert first != other
    assert len(first) == 50
    assert all(data and len(data) % 24 == 0 for data in first)


def test_random_fields_change_at_most_one_field_of_one_element() -> None:
    for mutation in mutators.random_fields(PACKET, seed=1, count=300):
        changed = np.frombuffer(mutation.packet.tobytes(), "u1") != np.frombuffer(
            PACKET.tobytes(), "u1"
        )
        where = np.flatnonzero(changed)
        assert len(where) <= 4
        assert not len(where) or where[-1] - where[0] < 4


def test_nonzero_padding_finds_every_byte_outside_the_fields() -> None:
    assert mutators.nonzero_padding(PACKET) == []
    assert mutators.nonzero_padding(RESULT) == []
    dirty = np.frombuffer(bytearray(b"\xee" * RESULT.nbytes), RESULT.dtype).copy()
    dirty["discriminator"] = RESULT["discriminator"]
    found = mutators.nonzero_padding(dirty)
    in_operand = [at for element, at in found if element == 1]
    assert in_operand == [*range(1, 8), 9, 10, 11, *range(16, 24)]


def test_padding_of_an_unknown_variant_is_all_but_the_discriminator() -> None:
    item = np.frombuffer(bytes([200, 1]) + bytes(22), RESULT.dtype)
    assert mutators.nonzero_padding(item) == [(0, 1)]
