"""Results never carry what lay in the ring or in the driver's memory before: their padding is zero."""

from __future__ import annotations

import numpy as np
import pytest

from driver.burst_harness import Harness, ScriptedExecutor, relu_model, shapes
from nnburst.executor.base import Outcome
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.types import OutputShape
from nnburst.testing.fuzzing.packet_fuzzer import nonzero_padding

POISON = 0xA5


def poison(harness: Harness) -> None:
    """Fill the result ring's data, which is the client's memory as well."""
    data = harness.results.descriptor.grantors[2]
    ring = harness.results.memories[0].map(writable=True)
    ring[data.offset : data.offset + data.extent] = POISON


@pytest.mark.parametrize("measure", [False, True])
@pytest.mark.parametrize(
    ("outcome", "elements"),
    [
        (Outcome(output_shapes=shapes((2,))), 4),
        (Outcome(output_shapes=shapes((1, 2))), 5),
        (
            Outcome(ErrorStatus.OUTPUT_INSUFFICIENT_SIZE, (OutputShape((9, 9, 9), False),)),
            6,
        ),
        (Outcome(ErrorStatus.GENERAL_FAILURE), 2),
    ],
    ids=["one extent", "two extents", "insufficient", "failure"],
)
def test_padding_of_every_result_is_zero_whatever_lay_in_the_ring(
    outcome: Outcome, elements: int, measure: bool
) -> None:
    executor = ScriptedExecutor(lambda _execution: outcome)
    with Harness(executor, lengths=(64, 8), model=relu_model(())) as burst:
        for _ in range(5):  # wraps
            poison(burst)
            burst.send(burst.packet(0, measure=measure))
            packet = burst.results.read(elements, timeout=20)
            assert packet is not None
            assert burst.results.available_to_read() == 0
            assert nonzero_padding(packet) == []


def test_the_look_at_padding_would_see_the_poison() -> None:
    with Harness() as burst:
        packet = burst.packet(0)
        poisoned = packet.copy()
        poisoned.view(np.uint8)[:] |= POISON
        assert nonzero_padding(poisoned)
        assert nonzero_padding(packet) == []
