"""The executor behind a driver process, and without its wheel."""

from __future__ import annotations

import importlib.util
import threading

import numpy as np
import pytest

import nnburst
from executor.litert.networks import convolution, needs_engine
from nnburst.executor.built_in import litert
from nnburst.hal.errors import DeviceUnavailable
from shared_drivers import connect_to

RUNS = 300


@needs_engine
def test_two_bursts_of_one_model_never_mix_their_results() -> None:
    wrong = [0, 0]

    def work(burst: nnburst.Burst, seed: int) -> None:
        bound = burst.bind()
        bound.inputs[0][...] = np.random.default_rng(seed).standard_normal((1, 16, 16, 3))
        bound.run()
        expected = bound.outputs[0].copy()
        for _ in range(RUNS):
            bound.run()
            wrong[seed] += not np.array_equal(bound.outputs[0], expected)

    with (
        connect_to("litert") as device,
        device.prepare(convolution()) as prepared,
        prepared.open_burst() as first,
        prepared.open_burst() as second,
    ):
        threads = [
            threading.Thread(target=work, args=(burst, seed))
            for seed, burst in enumerate((first, second))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == [0, 0]


@needs_engine
def test_socket_and_burst_give_the_same_result() -> None:
    given = np.random.default_rng(3).standard_normal((1, 16, 16, 3)).astype(np.float32)
    with connect_to("litert") as device, device.prepare(convolution()) as prepared:
        by_socket = prepared.execute([given]).outputs[0]
        with prepared.open_burst() as burst:
            by_burst = burst.execute([given]).outputs[0]
    np.testing.assert_array_equal(by_socket, by_burst)


def test_without_the_wheel_the_executor_names_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(DeviceUnavailable, match=r"nnburst\[litert\]"):
        litert()
