"""Objects that were not closed are released nevertheless, by driver and client."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

import nnburst
from faults.processes import Supervisor, collect
from nnburst.testing.faults.activities import check_sum, sum_model, write_summands
from nnburst.testing.faults.footprint import footprint, settle

#: A worker keeps the threads that it has started for calls.
MOST_THREADS = 32


def leave_a_burst_behind(prepared: nnburst.PreparedModel) -> None:
    bound = prepared.open_burst().bind()
    write_summands(bound, 3)
    check_sum(bound.run().outputs[0], 3)


def test_unclosed_burst_is_released_on_both_sides(serve: Callable[..., Supervisor]) -> None:
    serve()
    with nnburst.connect("cam") as device:
        prepared = device.prepare(sum_model())
        own, drivers = footprint(os.getpid()), footprint(device.pid)
        for _ in range(3):
            leave_a_burst_behind(prepared)
        collect()
        settle(os.getpid(), own)
        settle(device.pid, replace(drivers, threads=MOST_THREADS))
        assert device.is_alive


def test_unclosed_burst_does_not_outlive_its_driver(
    serve: Callable[..., Supervisor],
) -> None:
    serve()
    nnburst.connect("cam").close()
    own = footprint(os.getpid())
    with nnburst.connect("cam") as device:
        leave_a_burst_behind(device.prepare(sum_model()))
        os.kill(device.pid, 9)
    collect()
    settle(os.getpid(), own)


def test_pool_that_outlives_its_burst_can_be_closed(serve: Callable[..., Supervisor]) -> None:
    serve()
    with nnburst.connect("cam") as device:
        prepared = device.prepare(sum_model())
        memory = device.allocate(4096)
        arrays = [memory.array("f4", (8, 16), offset) for offset in (0, 512, 1024)]
        prepared.open_burst().bind(arrays[:2], arrays[2:]).run()
        collect()
        memory.close()
        assert device.is_alive
