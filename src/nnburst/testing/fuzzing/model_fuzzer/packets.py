"""VB1 to VB6: packets that a burst must refuse, each followed by one that it must not."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from typing import Final

import numpy as np

from nnburst.hal.enums import ErrorStatus, MeasureTiming
from nnburst.hal.errors import NnburstError
from nnburst.hal.limits import BURST_CHANNEL_LENGTH
from nnburst.serialize import serialize_request
from nnburst.testing.fuzzing.model_fuzzer.report import EVERYTHING, FuzzReport, FuzzSelection
from nnburst.testing.fuzzing.model_fuzzer.target import Target
from nnburst.testing.fuzzing.packet_fuzzer import judge
from nnburst.testing.fuzzing.packet_mutators import (
    Mutation,
    Packet,
    insertions,
    removals,
    replacements,
)
from nnburst.testing.peers.raw_burst import RawBurst

_NONE: Final = frozenset({ErrorStatus.NONE})
_ERRORS: Final = frozenset(ErrorStatus) - _NONE
#: VB5: elements of a result ring that is too short.
_SHORT_RING: Final = 8

_KINDS: Final[tuple[tuple[str, Callable[[Packet], Iterator[Mutation]]], ...]] = (
    ("VB1", removals),
    ("VB2", insertions),
    ("VB3", replacements),
)


def fuzz_packets_of(
    target: Target, report: FuzzReport, selection: FuzzSelection = EVERYTHING
) -> None:
    """VB1 to VB4, exhaustively, and VB6 on every answer; requests that no ring holds are left out.

    Raises:
        NnburstError: no answer, or none that can be read; the last failure in `report` has the cause.
    """
    with target.prepare() as prepared, RawBurst(prepared) as burst:
        slot = burst.slot_of(target.memory)
        valid = serialize_request(target.request, [slot], MeasureTiming.YES)
        if len(valid) >= BURST_CHANNEL_LENGTH:
            return
        _exchange(target, report, burst, "the valid packet", valid, _NONE)
        for rule, mutate in _KINDS:
            for mutation in mutate(valid):
                kind = "VB4" if _is_unknown_slot(mutation, valid) else rule
                description = f"{kind} {mutation.description}"
                if selection.takes(description):
                    report.count(description)
                    _exchange(target, report, burst, description, mutation.packet, _ERRORS)
                    _exchange(target, report, burst, f"valid, after {description}", valid, _NONE)


def fuzz_overlong_result(target: Target, report: FuzzReport) -> None:
    """VB5: a result that is longer than its ring, of a model that reports enough shapes."""
    with (
        target.prepare() as prepared,
        RawBurst(prepared, (BURST_CHANNEL_LENGTH, _SHORT_RING)) as burst,
    ):
        slot = burst.slot_of(target.memory)
        valid = serialize_request(target.request, [slot], MeasureTiming.YES)
        report.count("VB5")
        _exchange(target, report, burst, "VB5 result ring of 8 elements", valid, _ERRORS)


def _is_unknown_slot(mutation: Mutation, valid: Packet) -> bool:
    """VB4: the number of a pool identifier, and nothing else, became INT32_MAX."""
    kinds = mutation.packet["discriminator"], valid["discriminator"]
    return mutation.description.endswith(" by pool_identifier") and np.array_equal(*kinds)


def _exchange(
    target: Target,
    report: FuzzReport,
    burst: RawBurst,
    description: str,
    packet: Packet,
    allowed: Container[ErrorStatus],
) -> None:
    """Send a packet and note what is wrong with the answer."""
    try:
        _, problems = judge(burst.exchange(packet), allowed)
    except NnburstError as error:
        report.fail(target.name, description, f"no answer: {error}")
        raise
    for problem in problems:
        report.fail(target.name, description, problem)
