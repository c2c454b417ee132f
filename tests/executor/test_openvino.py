"""OpenVINO's own cases: sums and extents that it gets wrong, times, options, kept networks, memory."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import islice
from typing import Final

import numpy as np
import pytest

pytest.importorskip("openvino", reason="the executor's engine is not installed")

import nnburst
from executor.litert.test_hostile_memory import drawn
from executor.onnxruntime.networks import (
    F32,
    computed,
    image,
    long_chain,
    network,
)
from executor.test_hostile_memory import RUNS, run
from nnburst.executor.base import DEFAULT_OPTIONS, Argument
from nnburst.executor.built_in import openvino, reference
from nnburst.executor.graph.operation import REGISTRY
from nnburst.executor.onnxruntime.executor import NetworkPrepared
from nnburst.executor.onnxruntime.lowering import LOWERINGS
from nnburst.executor.openvino import OpenVinoExecutor
from nnburst.hal.enums import ErrorStatus, OperationType
from nnburst.hal.errors import DeviceUnavailable, InvalidArgument
from nnburst.hal.limits import UINT64_MAX
from nnburst.hal.model import Model
from nnburst.hal.model_builder import ModelBuilder
from nnburst.testing.conformance.vectors import Vector, build
from nnburst.testing.models.random_graphs.builder import TEMPLATES

#: Cases of each operation over memory that changes, and how many are drawn until as many are claimed.
CASES: Final = 2
DRAWN: Final = 40
WRONG: Final = OperationType.LOCAL_RESPONSE_NORMALIZATION
CLAIMED: Final = [o for o in REGISTRY if o in LOWERINGS and o in TEMPLATES and o is not WRONG]


def by_executor(model: Model, x: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> bytes:
    return computed(openvino(), model, [x])[0].tobytes()


def test_results_are_the_reference_executors_within_rounding() -> None:
    found = computed(openvino(), network(), [image()])[0]
    expected = computed(reference(), network(), [image()])[0]
    assert np.allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("by_bias", [False, True], ids=["sum", "bias"])
def test_what_is_added_to_a_constant_convolution_is_added_once(by_bias: bool) -> None:
    builder = ModelBuilder()
    x = builder.input(F32, (1,))
    weights = builder.constant(F32, np.ones((1, 2, 2, 1), np.float32))
    bias = x if by_bias else builder.constant(F32, np.zeros(1, np.float32))
    pixels = builder.constant(F32, np.ones((1, 3, 3, 1), np.float32))
    # Explicit paddings of 0, strides of 1, no activation.
    settings = [builder.scalar(n) for n in (0, 0, 0, 0, 1, 1, 0)]
    made = (builder.output if by_bias else builder.temporary)(F32, (1, 2, 2, 1))
    builder.operation(OperationType.CONV_2D, [pixels, weights, bias, *settings], [made])
    if not by_bias:
        total = builder.output(F32, (1, 2, 2, 1))
        builder.operation(OperationType.ADD, [made, x, builder.scalar(0)], [total])
    model = builder.build()
    assert all(openvino().supported(model))
    given, taken = np.ones(1, np.float32), np.empty(4, np.float32)
    execution = (
        openvino()
        .prepare(model, [])
        .bind(
            [Argument(given.view(np.uint8), (1,))],
            [Argument(taken.view(np.uint8), (1, 2, 2, 1))],
        )
    )
    for _ in range(3):
        assert execution.run().status is ErrorStatus.NONE
        assert taken.tolist() == [5, 5, 5, 5]


def test_local_response_normalization_is_left_to_another_executor() -> None:
    builder = ModelBuilder()
    x, y = builder.input(F32, (1, 2, 2, 8)), builder.output(F32, (1, 2, 2, 8))
    numbers = [builder.scalar(value) for value in (2, 1.0, 0.5, 0.5)]
    builder.operation(WRONG, [x, *numbers], [y])
    model = builder.build()
    assert openvino().supported(model) == [False]
    given = np.random.default_rng(0).standard_normal((1, 2, 2, 8)).astype(np.float32)
    expected = computed(reference(), model, [given])[0]
    assert computed(openvino(), model, [given])[0].tobytes() == expected.tobytes()


@pytest.mark.parametrize(("width", "is_claimed"), [(256, True), (1031, False)])
def test_images_so_wide_that_their_places_are_off_are_left_to_another_executor(
    width: int, is_claimed: bool
) -> None:
    builder = ModelBuilder()
    x, y = builder.input(F32, (1, 2, width, 1)), builder.output(F32, (1, 2, width + 9, 1))
    extents = [builder.scalar(width + 9), builder.scalar(2)]
    builder.operation(OperationType.RESIZE_BILINEAR, [x, *extents], [y])
    assert openvino().supported(builder.build()) == [is_claimed]


def test_a_network_with_an_input_that_nothing_reads_is_run() -> None:
    builder = ModelBuilder()
    x, _unread, y = builder.input(F32, (4,)), builder.input(F32, (3,)), builder.output(F32, (4,))
    builder.operation(OperationType.RELU, [x], [y])
    given = [np.array([-1, 0, 1, 2], np.float32), np.zeros(3, np.float32)]
    assert computed(openvino(), builder.build(), given)[0].tolist() == [0, 0, 1, 2]


def test_what_is_kept_gives_the_same_without_the_model() -> None:
    executor = openvino()
    assert isinstance(executor, OpenVinoExecutor)
    prepared = executor.prepare(network(), [])
    assert isinstance(prepared, NetworkPrepared)
    kept = prepared.to_cache()
    assert (kept.model.operand_values, kept.constants) == (b"", b"")
    again = executor.prepare_from_cache(kept, DEFAULT_OPTIONS)
    given, taken = image(), np.zeros((1, 8, 8, 8), np.float32)
    execution = again.bind(
        [Argument(given.reshape(-1).view(np.uint8), given.shape)],
        [Argument(taken.reshape(-1).view(np.uint8), taken.shape)],
    )
    assert execution.run().status is ErrorStatus.NONE
    assert taken.tobytes() == by_executor(network(), given)


@pytest.mark.parametrize("profile", [False, True])
def test_time_on_the_device_is_the_nodes_or_not_available(profile: bool) -> None:
    x = np.ones((256, 256), np.float32)
    options = {"profile": "1"} if profile else {}
    with (
        nnburst.launch("openvino", options=options) as device,
        device.prepare(long_chain(20)) as prepared,
        prepared.open_burst() as burst,
    ):
        bound = burst.bind(measure=True)
        bound.inputs[0][...] = x
        for road in (lambda: bound.run(timeout=10), lambda: prepared.execute([x], measure=True)):
            for _ in range(50):
                began = time.perf_counter_ns()
                timing = road().timing
                whole = -(-(time.perf_counter_ns() - began) // 1000)  # microseconds, rounded up
                if profile:
                    assert 0 < timing.time_on_device <= timing.time_in_driver <= whole
                else:
                    assert timing.time_on_device == UINT64_MAX
                    assert timing.time_in_driver <= whole


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"provider": "CPU"}, InvalidArgument, "option: 'provider' is not one of"),
        ({"threads": "0"}, InvalidArgument, "NNBURST_OPENVINO_THREADS is '0'"),
        ({"device": "TOASTER"}, DeviceUnavailable, "no device 'TOASTER'"),
    ],
)
def test_an_option_that_means_nothing_is_refused_by_name(
    options: dict[str, str], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        openvino(options)


def test_an_option_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNBURST_OPENVINO_THREADS", "1")
    assert openvino({"threads": "2"}).prepare(network(), []).num_threads == 2


def test_no_thread_is_started_before_a_network_is_compiled() -> None:
    program = (
        "import os; from nnburst.executor.built_in import openvino; made = openvino();"
        "print(len(os.listdir('/proc/self/task')))"
    )
    environment = {"PATH": "", "OPENBLAS_NUM_THREADS": "1"}
    ran = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert ran.stdout == "1\n"


def claimed(operation: OperationType) -> Iterator[Vector]:
    """Cases that the engine runs."""
    executor = openvino()
    vectors = (drawn(operation, seed) for seed in range(DRAWN))
    yield from islice((v for v in vectors if all(executor.supported(build(v).model))), CASES)


@pytest.mark.campaign
def test_memory_that_changes_all_the_time_breaks_no_operation() -> None:
    cases = 0
    for operation in CLAIMED:
        for vector in claimed(operation):
            cases += 1
            prepared = openvino().prepare(build(vector).model, [])
            if isinstance(prepared, NetworkPrepared):
                for status, message in run(vector, prepared, RUNS // CASES, at_end=cases % 2 == 0):
                    assert status in (ErrorStatus.NONE, ErrorStatus.GENERAL_FAILURE), message
            prepared.close()
    assert cases > 60
