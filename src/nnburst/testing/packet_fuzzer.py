"""Mutated request packets against a live driver: each is answered, and the burst goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Final

import numpy as np

from nnburst.client.device import Device
from nnburst.hal.enums import ErrorStatus, MeasureTiming, OperandType, OperationType
from nnburst.hal.errors import MalformedPacket, NnburstError
from nnburst.hal.limits import NO_TIMING
from nnburst.hal.model import DataLocation, Model
from nnburst.hal.model_builder import ModelBuilder
from nnburst.hal.request import Request, RequestArgument
from nnburst.serialize import RESULT_DATUM, deserialize_result, serialize_request
from nnburst.serialize.wire import RESULT
from nnburst.testing.faults.footprint import resident_bytes
from nnburst.testing.packet_mutators import (
    Mutation,
    Packet,
    count_mutations,
    nonzero_padding,
    random_bytes,
    random_fields,
    random_structure,
    suite_mutations,
)
from nnburst.testing.raw_burst import RawBurst

#: Mutations made by one generator before the next seed.
_BATCH: Final = 500


_OK: Final = ErrorStatus.NONE
_ANY: Final = frozenset(ErrorStatus)
_ERRORS: Final = _ANY - {_OK}
_INFORMATION, *_, _TIMING = RESULT.variants
_UNKNOWN: Final = (NO_TIMING, NO_TIMING)
#: Failures after which a campaign stops: more of them say no more.
_ENOUGH: Final = 20


@dataclass
class FuzzReport:
    """What a campaign did.

    Attributes:
        packets: mutated packets sent.
        outcomes: how many were answered with which status.
        failures: what should not have happened, described.
        rss: resident bytes of the driver at the end.
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
) -> FuzzReport:
    """Send `packets` mutated packets to a driver of `device` and a valid one after each.

    First the suite's mutations and the count mutations, all of them, then random ones.
    """
    report = FuzzReport()
    with device.prepare(small_model()) as prepared, RawBurst(prepared) as burst:
        memory = device.allocate(4096)
        valid = _valid_packet(burst.slot_of(memory))
        _expect(report, burst, Mutation("none", valid), frozenset({_OK}))
        before = resident_bytes(device.pid)
        for mutation, allowed in _campaign(valid, seed):
            if report.packets == packets or len(report.failures) >= _ENOUGH:
                break
            report.packets += 1
            _expect(report, burst, mutation, allowed)
            _expect(
                report,
                burst,
                Mutation(f"valid, after {mutation.description}", valid),
                frozenset({_OK}),
            )
            progress(report.packets)
        report.outcomes["NONE"] -= report.packets + 1  # the valid ones
        report.rss = resident_bytes(device.pid)
        report.rss_growth = report.rss - before
    return report


def _campaign(valid: Packet, seed: int) -> Iterator[tuple[Mutation, frozenset[ErrorStatus]]]:
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


def _valid_packet(slot: int) -> Packet:
    request = Request(
        (RequestArgument(location=DataLocation(0, 0, 16), dimensions=(1, 4)),),
        (RequestArgument(location=DataLocation(0, 64, 16), dimensions=(1, 4)),),
    )
    return serialize_request(request, [slot], MeasureTiming.YES)


def _expect(
    report: FuzzReport, burst: RawBurst, mutation: Mutation, allowed: frozenset[ErrorStatus]
) -> None:
    """Exchange a packet and note what is wrong with the answer."""
    if len(mutation.packet) == 0:
        return
    try:
        answer = burst.exchange(mutation.packet)
        status, problems = judge(answer, allowed)
    except (MalformedPacket, NnburstError) as error:
        report.failures.append(f"{mutation.description}: {error}")
        return
    report.outcomes[status.name] += 1
    report.failures += [f"{mutation.description}: {problem}" for problem in problems]


def judge(answer: bytes, allowed: Container[ErrorStatus]) -> tuple[ErrorStatus, list[str]]:
    """The status of a result packet, and what is wrong with the packet.

    Raises:
        MalformedPacket: it cannot be decoded.
    """
    status, _, timing = deserialize_result(answer)
    problems = []
    if status not in allowed:
        problems.append(f"answered {status.name}")
    # Reading a packet drops what its status does not allow; here it must not be there at all.
    sent = np.frombuffer(answer, RESULT_DATUM)
    information, timing_sent = _INFORMATION.view(sent)[0], _TIMING.view(sent)[-1]
    if information["error_status"] != status:
        problems.append(f"sent as status {information['error_status']}")
    if status != _OK and information["number_of_operands"]:
        problems.append(f"{status.name} with shapes")
    if status != _OK and (timing_sent["time_on_device"], timing_sent["time_in_driver"]) != _UNKNOWN:
        problems.append(f"{status.name} with a timing")
    if status == _OK and timing.measured and timing.time_on_device > timing.time_in_driver:
        problems.append(f"{timing}")
    if nonzero_padding(sent):
        problems.append("padding is not 0")
    return status, problems
