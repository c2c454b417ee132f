"""Mutated packets against a live driver, and drivers that do not stand them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import nnburst
from nnburst.testing.fuzzing.packet_fuzzer import fuzz_packets

_FAULTY = """
import itertools
import os
from nnburst.executor.null import NullExecutor, NullPrepared
from nnburst.executor.base import Execution as BaseExecution, Outcome
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.types import OutputShape

class Prepared(NullPrepared):
    def bind(self, inputs, outputs):
        return Execution(tuple(OutputShape((1, 4), True) for _ in outputs))

class Execution(BaseExecution):
    runs = itertools.count()

    def __init__(self, shapes):
        self.shapes = shapes

    def run(self, *_):
        return Outcome(output_shapes=self.shapes) if next(self.runs) < 20 else fault()

class Dies(NullExecutor):
    def prepare(self, model, *_):
        global fault
        fault = lambda: os._exit(3)
        return Prepared(model)

class Fails(NullExecutor):
    def prepare(self, model, *_):
        global fault
        fault = lambda: Outcome(ErrorStatus.GENERAL_FAILURE)
        return Prepared(model)
"""


@pytest.mark.every_day("1")
@pytest.mark.parametrize("packets", [1, 1502])
def test_every_mutated_packet_is_answered_and_counted(packets: int) -> None:
    done: list[int] = []
    with nnburst.launch("reference") as device:
        report = fuzz_packets(device, packets, seed=3, progress=done.append)
        assert device.is_alive
    assert report.failures == []
    assert report.packets == sum(report.outcomes.values()) == sum(done) == packets
    assert report.rss >= report.rss_growth
    if packets > 1:
        assert {"NONE", "GENERAL_FAILURE", "INVALID_ARGUMENT"} == set(report.outcomes)


def test_a_driver_that_dies_is_found_with_what_it_died_of(
    make_module: Callable[[str, str], None],
) -> None:
    make_module("faulty", _FAULTY)
    with nnburst.launch("faulty:Dies") as device:
        report = fuzz_packets(device, 20_000, seed=0)
    assert "the driver ended after one of: " in report.failures[-1]
    assert report.packets < 20_000


def test_a_driver_that_fails_valid_requests_is_found(
    make_module: Callable[[str, str], None],
) -> None:
    make_module("faulty", _FAULTY)
    with nnburst.launch("faulty:Fails") as device:
        report = fuzz_packets(device, 20_000, seed=0)
    assert any("answered GENERAL_FAILURE" in failure for failure in report.failures)
    assert report.packets < 20_000
