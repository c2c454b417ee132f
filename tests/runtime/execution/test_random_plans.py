"""Random graphs over random devices compute what the reference executor computes, bit for bit (RTT:R1)."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable

import numpy as np
import pytest

from nnburst.hal.enums import FeatureLevel, ResultCode
from nnburst.hal.errors import GeneralFailure, NnburstError
from nnburst.hal.model import Model, Operation
from nnburst.runtime import Manager
from nnburst.runtime.argument import Outcome
from nnburst.testing.conformance.runners import LocalRunner
from nnburst.testing.conformance.vectors import build
from nnburst.testing.framework import FrameworkRunner
from nnburst.testing.models.random_graphs import PRIMARY, generate
from nnburst.testing.models.random_graphs.graphs import as_vector
from runtime.computing_device import ComputingDevice

COSTS = (0.3, 0.5, 0.7, 1.2)
LEVELS = (1, 2, 3, 4, 8, 8, 8)


def drawn_devices(seed: int) -> list[ComputingDevice]:
    """One to four devices; of every third seed they fail now and then."""
    rng = np.random.default_rng(seed)
    return [drawn_device(seed, n, rng) for n in range(rng.integers(1, 5))]


def drawn_device(seed: int, number: int, rng: np.random.Generator) -> ComputingDevice:
    name, share = f"device {number} of {seed}", rng.uniform(0.2, 1)
    cost, level = float(rng.choice(COSTS)), FeatureLevel(int(rng.choice(LEVELS)))

    def supports(operation: Operation, _model: Model) -> bool:
        return zlib.crc32(f"{name} {operation.type}".encode()) / 2**32 < share

    device = ComputingDevice(name, supports, cost, level)
    if seed % 3 == 0:
        failing, luck = rng.uniform(0, 0.5), np.random.default_rng((seed, number))

        def execute(_model: Model) -> Outcome | None:
            fails = luck.uniform() < failing
            return Outcome(ResultCode.OP_FAILED, message="bad luck") if fails else None

        def prepare(_model: Model) -> NnburstError | None:
            return GeneralFailure("bad luck") if luck.uniform() < failing / 4 else None

        device.on_execute, device.on_prepare = execute, prepare
    return device


def differences(seeds: range) -> tuple[list[str], dict[str, int]]:
    """The differences, and the numbers of plans of each kind and of steps on devices."""
    local, found, counts = LocalRunner("reference"), [], {"compound": 0, "simple": 0, "steps": 0}
    for seed in seeds:
        size = ("small", "large")[seed % 2]
        vector = as_vector(generate(size, PRIMARY[size][seed // 2 % len(PRIMARY[size])], seed))
        built, devices = build(vector), drawn_devices(seed)
        runner = FrameworkRunner(Manager(devices), burst=seed % 4 < 2)
        inputs = [vector.array_of(operand) for operand in vector.inputs]
        lengths = [len(vector.buffers[operand.data or 0]) for operand in vector.outputs]
        rooms = [max(1, length) for length in lengths]
        expected = local.prepare(built.model, built.pools).run(inputs, rooms)
        actual = runner.prepare(built.model, built.pools).run(inputs, rooms)
        same = actual.status == expected.status and all(
            a[:n] == b[:n]
            for a, b, n in zip(actual.outputs, expected.outputs, lengths, strict=False)
        )
        if not same:
            found.append(f"{seed}: {actual.status.name} {actual.message}")
        for kind in ("compound", "simple"):
            counts[kind] += runner.counts[kind]
        counts["steps"] += sum(device.executed for device in devices)
    return found, counts


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Callable[[], None]:
    """Devices that fail are expected here."""
    caplog.set_level(logging.CRITICAL, "nnburst.runtime")
    return lambda: None


def test_some_random_graphs_give_the_same_over_random_devices() -> None:
    found, counts = differences(range(40))
    assert found == []
    assert counts["compound"] > 10


@pytest.mark.campaign
def test_two_thousand_random_graphs_give_the_same_over_random_devices() -> None:
    found, counts = differences(range(2000))
    print(counts)
    assert found == []
    assert counts["compound"] > 1000
