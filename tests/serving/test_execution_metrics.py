"""Workers count as many executions as their clients; the number of series is bounded."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("prometheus_client", reason="extra metrics is not installed")

import nnburst
from nnburst.cli.top import Counts, read, row
from nnburst.control.counts import model_id
from nnburst.hal.environment import KILLS
from programs import driver_environ_of_tests
from serving.networks import DIE, add, quantised
from serving.served import PATIENCE, fronts

CLIENTS = 4
ROUNDS = (KILLS.read() if KILLS.is_set else 2) * 100


class Metered:
    """A service with metrics and without gRPC."""

    def __init__(self, folder: str) -> None:
        self.address = f"{folder}/driver"
        command = [sys.executable, "-m", "nnburst", "serve", self.address]
        command += ["--executor", "serving.networks:Obedient", "--metrics", "127.0.0.1:0"]
        environment = driver_environ_of_tests()
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        assert self.process.stdout is not None
        while not (line := self.process.stdout.readline()).startswith("metrics at "):
            assert line, "the driver has ended"
        self.metrics = line.removeprefix("metrics at ").strip()

    def close(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=PATIENCE)


@pytest.fixture(scope="module")
def metered() -> Iterator[Metered]:
    with tempfile.TemporaryDirectory() as folder:
        metered = Metered(folder)
        yield metered
        metered.close()


def label(model: Any) -> str:
    return f"{model_id(getattr(model, 'model', model)):016x}"


def executions(found: Counts, model: str) -> dict[str, int]:
    prefix = "nnburst_executions_total "
    return {
        name.removeprefix(prefix): int(value)
        for name, value in found[model].items()
        if name.startswith(prefix) and value
    }


def test_counters_equal_what_clients_of_every_way_counted(metered: Metered) -> None:
    network, counted, lock = add(), Counter[str](), threading.Lock()

    def note(call: Any) -> None:
        try:
            call()
            status = "NONE"
        except nnburst.NnburstError as error:
            status = error.status.name
        with lock:
            counted[status] += 1

    def run(number: int) -> None:
        arrays = [np.full((2, 3), number, np.float32)] * 2
        short = [np.full((2, 2), number, np.float32)] * 2
        with nnburst.connect(metered.address) as device, device.prepare(network) as prepared:
            with prepared.open_burst() as burst:
                bound = burst.bind(measure=number % 2 == 1)
                for view in bound.inputs:
                    assert view is not None
                    view[...] = number
                for turn in range(ROUNDS):
                    note(bound.run)
                    if turn % 50 == 0:
                        note(lambda: prepared.execute(arrays))
                        note(lambda: prepared.execute_async(arrays).result(PATIENCE))
                        note(lambda: burst.execute(arrays))
            assert short[0].shape != arrays[0].shape

    before = executions(read(metered.metrics), label(network))
    threads = [threading.Thread(target=run, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    found = read(metered.metrics)
    now = Counter(executions(found, label(network)))
    now.subtract(before)
    assert {name: count for name, count in now.items() if count} == dict(counted)
    mine = found[label(network)]
    assert mine["nnburst_executions_in_flight"] == 0
    assert mine["nnburst_driver_seconds_count"] >= CLIENTS // 2 * ROUNDS
    assert mine["nnburst_device_seconds_sum"] <= mine["nnburst_driver_seconds_sum"]


def test_worker_that_is_killed_takes_no_count_along(metered: Metered) -> None:
    model = quantised()
    deaths = read(metered.metrics)[""]["nnburst_worker_deaths_total"]
    with nnburst.connect(metered.address) as device, device.prepare(model) as prepared:
        with prepared.open_burst() as burst:
            for _ in range(7):
                burst.execute([np.zeros(4, np.uint8)])
        assert executions(read(metered.metrics), label(model)) == {"NONE": 7}
    doomed = add()
    with nnburst.connect(metered.address) as device, device.prepare(doomed) as prepared:
        before = executions(read(metered.metrics), label(doomed)).get("NONE", 0)
        with prepared.open_burst() as burst:
            burst.execute([np.ones((2, 3), np.float32)] * 2)
            with pytest.raises(nnburst.DeadObject):
                burst.execute([np.full((2, 3), DIE, np.float32)] * 2)
    deadline = threading.Event()
    while read(metered.metrics)[""]["nnburst_worker_deaths_total"] == deaths:
        deadline.wait(0.02)  # the supervisor has yet to learn of it
    found = read(metered.metrics)
    assert executions(found, label(doomed))["NONE"] == before + 1
    assert executions(found, label(model)) == {"NONE": 7}


def test_front_that_is_killed_comes_back_with_the_same_counts(metered: Metered) -> None:
    model = quantised()
    with nnburst.connect(metered.address) as device, device.prepare(model) as prepared:
        with prepared.open_burst() as burst:
            burst.execute([np.zeros(4, np.uint8)])
        before = executions(read(metered.metrics), label(model))
        os.kill(fronts(metered.process.pid)[0], signal.SIGKILL)
        assert metered.process.stdout is not None
        line = metered.process.stdout.readline()
        metered.metrics = line.removeprefix("metrics at ").strip()
    found = read(metered.metrics)
    assert executions(found, label(model)) == before
    assert found[""]["nnburst_front_restarts_total"] == 1


def test_top_has_executions_of_a_second() -> None:
    before = {"nnburst_executions_total NONE": 5.0}
    now = {
        "nnburst_executions_total NONE": 9.0,
        "nnburst_executions_total INVALID_ARGUMENT": 1.0,
        "nnburst_device_seconds_bucket 1.024e-06": 3.0,
        "nnburst_device_seconds_bucket +Inf": 4.0,
    }
    found = row("m", before, now)
    assert found["executed"] == 4
    assert found["executions_failed"] == {"INVALID_ARGUMENT": 1}
    assert found["device_p50_ms"] == pytest.approx(0.001024)
