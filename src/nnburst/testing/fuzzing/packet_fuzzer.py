"""Sends mutated request packets to a live driver: each must be answered, and the burst must go on."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, count, islice
from typing import Final

import numpy as np

from nnburst.client.device import Device
from nnburst.hal.enums import ErrorStatus, MeasureTiming, OperandType, OperationType
from nnburst.hal.errors import NnburstError
from nnburst.hal.limits import NO_TIMING
from nnburst.hal.model import DataLocation, Model
from nnburst.hal.model_builder import ModelBuilder
from nnburst.hal.types import Request, RequestArgument
from nnburst.serialize import DATUM_BYTES, RESULT_DATUM, deserialize_result, serialize_request
from nnburst.serialize.wire import RESULT
from nnburst.testing.faults.footprint import resident_bytes
from nnburst.testing.fuzzing.packet_mutators import (
    Mutation,
    Packet,
    count_mutations,
    nonzero_padding,
    random_bytes,
    random_fields,
    random_structure,
    suite_mutations,
)
from nnburst.testing.raw_peer import RawBurst

#: Mutations made by one generator before the next seed.
_BATCH: Final = 500


_OK: Final = ErrorStatus.NONE
_ANY: Final = frozenset(ErrorStatus)
_ERRORS: Final = _ANY - {_OK}
_VALID: Final = frozenset({_OK})
_INFORMATION, *_, _TIMING = (variant.layout() for variant in RESULT.variants)
_UNKNOWN: Final = [NO_TIMING, NO_TIMING]
#: Bursts that take turns.
_BURSTS: Final = 4
#: Failures after which a campaign stops: more of them add nothing.
_ENOUGH: Final = 20

#: A packet, and the statuses that may answer it.
Expected = tuple[Mutation, frozenset[ErrorStatus]]


@dataclass
class PacketFuzzReport:
    """The counts and failures of a campaign.

    Attributes:
        packets: mutated packets sent.
        outcomes: how many of them were answered with which status.
        failures: descriptions of everything that must not happen.
        rss: resident bytes of the driver at the end; 0 if it has ended.
        rss_growth: bytes by which it grew.
    """

    packets: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    rss: int = 0
    rss_growth: int = 0


def small_model() -> Model:
    """One operation on four numbers."""
    builder = ModelBuilder()
    x = builder.input(OperandType.TENSOR_FLOAT32, (1, 4))
    y = builder.output(OperandType.TENSOR_FLOAT32, (1, 4))
    builder.operation(OperationType.ADD, [x, x, builder.scalar(0)], [y])
    return builder.build()


def fuzz_packets(
    device: Device, packets: int, seed: int, progress: Callable[[int], None] = lambda _: None
) -> PacketFuzzReport:
    """Send `packets` mutated packets to a driver of `device` and a valid one after each.

    First the suite's mutations and the count mutations, all of them, then random ones. A few bursts take
    turns, so that the driver is busy with one while the answer of another is looked at.
    """
    report = PacketFuzzReport()
    with device.prepare(small_model()) as prepared, contextlib.ExitStack() as opened:
        memory = device.allocate(4096)
        bursts = [opened.enter_context(RawBurst(prepared)) for _ in range(_BURSTS)]
        # Each burst has slots of its own, but gives the first of its memories the same one.
        (slot,) = {burst.slot_of(memory) for burst in bursts}
        valid = valid_packet(slot)
        _exchange(report, bursts, [(Mutation("none", valid), _VALID)] * _BURSTS)
        before = resident_bytes(device.pid)
        campaign = islice(_campaign(valid, seed), packets)
        while mutated := list(islice(campaign, _BURSTS)):
            _exchange(report, bursts, mutated)
            # Described by what came before: that is what it would be wrong because of.
            after = [(Mutation(one.description, valid), _VALID) for one, _ in mutated]
            _exchange(report, bursts, after)
            report.packets += len(mutated)
            progress(len(mutated))
            if report.failures and not device.is_alive:
                several = ", ".join(one.description for one, _ in mutated)
                report.failures.append(f"the driver ended after one of: {several}")
                return report
            if len(report.failures) >= _ENOUGH:
                break
        report.rss = resident_bytes(device.pid)
        report.rss_growth = report.rss - before
    return report


def _campaign(valid: Packet, seed: int) -> Iterator[Expected]:
    """Mutations and the statuses that may answer each."""
    for mutation in suite_mutations(valid):
        yield mutation, _ERRORS
    for mutation in count_mutations(valid):
        yield mutation, _ERRORS
    for batch in count(seed):
        for mutation in chain(
            random_bytes(valid, batch, _BATCH),
            random_fields(valid, batch, _BATCH),
            random_structure(valid, batch, _BATCH),
        ):
            yield mutation, _ANY


def valid_packet(slot: int) -> Packet:
    """A request of `small_model` whose arrays lie in the pool behind `slot`."""
    request = Request(
        (RequestArgument(location=DataLocation(0, 0, 16), dimensions=(1, 4)),),
        (RequestArgument(location=DataLocation(0, 64, 16), dimensions=(1, 4)),),
    )
    return serialize_request(request, [slot], MeasureTiming.YES)


def _exchange(
    report: PacketFuzzReport, bursts: Sequence[RawBurst], expected: Sequence[Expected]
) -> None:
    """Have each burst exchange a packet, all at once, and note the faults of the answers."""
    pairs = list(zip(bursts, expected, strict=False))
    for burst, (mutation, _) in pairs:
        burst.send(mutation.packet)
    for burst, (mutation, allowed) in pairs:
        try:
            status, problems = judge(burst.receive(), allowed)
        except NnburstError as error:
            problems = [str(error)]
        else:
            if allowed is not _VALID:
                report.outcomes[status.name] += 1
        if problems:
            what = "a valid packet after " if allowed is _VALID else ""
            report.failures += [f"{what}{mutation.description}: {one}" for one in problems]


def judge(answer: bytes, allowed: Container[ErrorStatus]) -> tuple[ErrorStatus, list[str]]:
    """The status of a result packet, and the faults of the packet.

    Raises:
        MalformedPacket: it cannot be decoded.
    """
    status, _, timing = deserialize_result(answer)
    problems = []
    if status not in allowed:
        problems.append(f"answered {status.name}")
    # Reading a packet drops what its status does not allow; here it must not be there at all.
    _, _, status_sent, shapes_sent = _INFORMATION.unpack_from(answer)
    _, *durations_sent = _TIMING.unpack_from(answer, len(answer) - DATUM_BYTES)
    if status_sent != status:
        problems.append(f"sent as status {status_sent}")
    if status != _OK and shapes_sent:
        problems.append(f"{status.name} with shapes")
    if status != _OK and durations_sent != _UNKNOWN:
        problems.append(f"{status.name} with a timing")
    has_both = timing.measured and timing.time_on_device != NO_TIMING
    if status == _OK and has_both and timing.time_on_device > timing.time_in_driver:
        problems.append(f"{timing}")
    if nonzero_padding(np.frombuffer(answer, RESULT_DATUM)):
        problems.append("padding is not 0")
    return status, problems
