"""OpenVINO's own cases: sums and extents that it gets wrong, times, options, kept networks, memory."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec
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
from nnburst.executor.base import DEFAULT_OPTIONS, Argument, Cached, Prepared
from nnburst.executor.built_in import openvino, reference
from nnburst.executor.graph.operation import REGISTRY
from nnburst.executor.onnxruntime.lowering import LOWERINGS
from nnburst.executor.openvino import OpenVinoExecutor, OpenVinoNetwork, OpenVinoPrepared
from nnburst.hal.enums import ErrorStatus, OperandType, OperationType
from nnburst.hal.errors import DeviceUnavailable, GeneralFailure, InvalidArgument
from nnburst.hal.limits import UINT64_MAX
from nnburst.hal.model import DTYPES, Model
from nnburst.hal.model_builder import ModelBuilder
from nnburst.testing.conformance.vectors import Vector, build
from nnburst.testing.models.random_graphs.builder import TEMPLATES
from nnburst.testing.models.small_models import missing_row

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


@pytest.mark.parametrize(
    ("kind", "is_claimed"),
    [(OperandType.TENSOR_FLOAT32, True), (OperandType.TENSOR_QUANT8_ASYMM, False)],
)
def test_norms_of_8_bit_integers_are_not_claimed(kind: OperandType, *, is_claimed: bool) -> None:
    scale, zero = (1 / 128, 128) if not is_claimed else (0.0, 0)
    builder = ModelBuilder()
    x = builder.input(kind, (3, 1), scale, zero)
    y = builder.output(kind, (3, 1), scale, zero)
    builder.operation(OperationType.L2_NORMALIZATION, [x], [y])
    assert openvino().supported(builder.build()) == [is_claimed]


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


@pytest.mark.parametrize("kind", [F32, OperandType.TENSOR_INT32])
def test_the_absolute_value_of_a_computed_constant_is_computed(kind: OperandType) -> None:
    builder = ModelBuilder()
    x, y = builder.input(kind, (1, 2)), builder.output(kind, (1, 2))
    negative, positive = builder.temporary(kind, (1, 2)), builder.temporary(kind, (1, 2))
    given = np.array([[5, -4]], DTYPES[kind])
    builder.operation(OperationType.NEG, [builder.constant(kind, given)], [negative])
    builder.operation(OperationType.ABS, [negative], [positive])
    builder.operation(OperationType.ADD, [positive, x, builder.scalar(0)], [y])
    found = computed(openvino(), builder.build(), [np.zeros_like(given)])[0]
    assert found.view(DTYPES[kind]).tolist() == [[5, 4]]


def test_absolute_values_of_a_vector_leave_it_as_it_is() -> None:
    builder = ModelBuilder()
    x, joined = builder.input(F32, (2,)), builder.output(F32, (3,))
    constant = builder.constant(F32, np.array([-3], np.float32))
    builder.operation(OperationType.CONCATENATION, [x, constant, builder.scalar(0)], [joined])
    builder.operation(OperationType.ABS, [joined], [builder.output(F32, (3,))])
    model = builder.build()
    assert openvino().supported(model) == [True, False]
    found = computed(openvino(), model, [np.array([-1, 2], np.float32)])
    assert [result.view(np.float32).tolist() for result in found] == [[-1, 2, -3], [1, 2, 3]]


@pytest.mark.parametrize(
    "kind",
    [
        OperationType.EQUAL,
        OperationType.NOT_EQUAL,
        OperationType.LESS,
        OperationType.LESS_EQUAL,
        OperationType.GREATER,
        OperationType.GREATER_EQUAL,
    ],
    ids=lambda kind: kind.name,
)
def test_comparisons_with_not_a_number_are_those_of_the_reference_executor(
    kind: OperationType,
) -> None:
    builder = ModelBuilder()
    x, y = builder.input(F32, (5,)), builder.input(F32, (5,))
    builder.operation(kind, [x, y], [builder.output(OperandType.TENSOR_BOOL8, (5,))])
    model = builder.build()
    assert openvino().supported(model) == [True]
    nan = np.nan
    given = [np.array(n, np.float32) for n in ([nan, 1, nan, 1, 2], [1, nan, nan, 2, 1])]
    expected = computed(reference(), model, given)[0]
    assert computed(openvino(), model, given)[0].tobytes() == expected.tobytes()


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


def test_topk_is_left_to_another_executor_since_equal_elements_come_in_any_order() -> None:
    builder = ModelBuilder()
    x = builder.input(F32, (1031,))
    y, at = builder.output(F32, (700,)), builder.output(OperandType.TENSOR_INT32, (700,))
    builder.operation(OperationType.TOPK_V2, [x, builder.scalar(700)], [y, at])
    model = builder.build()
    assert openvino().supported(model) == [False]
    given = np.zeros(1031, np.float32)
    taken = [result.tobytes() for result in computed(openvino(), model, [given])]
    assert taken == [result.tobytes() for result in computed(reference(), model, [given])]


def test_indices_that_come_with_requests_are_left_to_an_executor_that_checks_them() -> None:
    assert openvino().supported(missing_row().model) == [False]
    builder = ModelBuilder()
    x, y = builder.input(F32, (3, 2)), builder.output(F32, (2, 2))
    at = builder.constant(OperandType.TENSOR_INT32, np.array([2, 0], np.int32))
    builder.operation(OperationType.GATHER, [x, builder.scalar(0), at], [y])
    model = builder.build()
    assert openvino().supported(model) == [True]
    given = np.arange(6, dtype=np.float32).reshape(3, 2)
    assert computed(openvino(), model, [given])[0].tolist() == [[4, 5], [0, 1]]


def by_both(model: Model, given: np.ndarray[Any, np.dtype[np.float32]]) -> list[list[float]]:
    """The results of the reference executor, and of three runs by OpenVINO."""
    shape = tuple(model.main.operands[model.main.output_indexes[0]].dimensions)
    expected = computed(reference(), model, [given])[0]
    taken = np.empty(shape, np.float32)
    execution = (
        openvino()
        .prepare(model, [])
        .bind(
            [Argument(given.reshape(-1).view(np.uint8), given.shape)],
            [Argument(taken.reshape(-1).view(np.uint8), shape)],
        )
    )
    found = [expected.reshape(-1).view(np.float32).tolist()]
    for _ in range(3):
        assert execution.run().status is ErrorStatus.NONE
        found.append(taken.reshape(-1).tolist())
    return found


@pytest.mark.parametrize(("columns", "is_claimed"), [(4, False), (7, True)])
def test_a_convolution_of_one_channel_to_one_column_is_left_to_another_executor(
    columns: int, is_claimed: bool
) -> None:
    builder = ModelBuilder()
    x = builder.input(F32, (2, 5, columns, 1))
    y = builder.output(F32, (2, 3, (columns - 1) // 3, 2))
    draw = np.random.default_rng(0).standard_normal
    weights = builder.constant(F32, draw((2, 3, 3, 1)).astype(np.float32))
    bias = builder.constant(F32, np.zeros(2, np.float32))
    numbers = [builder.scalar(n) for n in (0, 0, 0, 0, 3, 1, 0)]  # no padding, a stride of 3
    builder.operation(OperationType.CONV_2D, [x, weights, bias, *numbers], [y])
    model = builder.build()
    assert openvino().supported(model) == [is_claimed]
    expected, *found = by_both(model, draw((2, 5, columns, 1)).astype(np.float32))
    assert found == [pytest.approx(expected, rel=1e-5, abs=1e-5)] * 3


@pytest.mark.parametrize("batches", [1, 2])
def test_a_mean_over_the_pixels_of_several_images_is_left_to_another_executor(batches: int) -> None:
    builder = ModelBuilder()
    x = builder.input(F32, (batches, 5, 5, 3))
    pooled, y = builder.temporary(F32, (batches, 3, 3, 3)), builder.output(F32, (1, 1, 1, 3))
    numbers = [builder.scalar(n) for n in (2, 2, 2, 1, 1, 0)]  # VALID, windows of one pixel
    builder.operation(OperationType.MAX_POOL_2D, [x, *numbers], [pooled])
    axes = builder.constant(OperandType.TENSOR_INT32, np.array([0, 1, 2], np.int32))
    builder.operation(OperationType.MEAN, [pooled, axes, builder.scalar(1)], [y])
    model = builder.build()
    assert openvino().supported(model) == [True, batches == 1]
    given = np.random.default_rng(0).standard_normal((batches, 5, 5, 3)).astype(np.float32)
    expected, *found = by_both(model, given)
    assert found == [pytest.approx(expected, rel=1e-5, abs=1e-5)] * 3


def test_slopes_of_a_constant_are_not_taken_for_its_elements() -> None:
    builder = ModelBuilder()
    x, y = builder.input(F32, (1, 2, 2, 1)), builder.output(F32, (1, 1, 1, 1))
    slopes = builder.temporary(F32, (1, 1, 1, 1))
    numbers = [builder.scalar(n) for n in (2, 2, 2, 2, 2, 3)]  # VALID, all pixels, RELU6
    builder.operation(OperationType.AVERAGE_POOL_2D, [x, *numbers], [slopes])
    constant = builder.constant(F32, np.full((1, 1, 1, 1), -2, np.float32))
    builder.operation(OperationType.PRELU, [constant, slopes], [y])
    expected, *found = by_both(builder.build(), np.full((1, 2, 2, 1), 3, np.float32))
    assert expected == [-6]
    assert found == [expected] * 3


@pytest.mark.parametrize(("width", "is_claimed"), [(256, True), (1031, False)])
def test_images_so_wide_that_their_places_are_off_are_left_to_another_executor(
    width: int, is_claimed: bool
) -> None:
    builder = ModelBuilder()
    x, y = builder.input(F32, (1, 2, width, 1)), builder.output(F32, (1, 2, width + 9, 1))
    extents = [builder.scalar(width + 9), builder.scalar(2)]
    builder.operation(OperationType.RESIZE_BILINEAR, [x, *extents], [y])
    assert openvino().supported(builder.build()) == [is_claimed]


def test_images_of_many_channels_are_resized() -> None:
    builder = ModelBuilder()
    x, y = builder.input(F32, (1, 2, 2, 600)), builder.output(F32, (1, 4, 4, 600))
    builder.operation(OperationType.RESIZE_BILINEAR, [x, builder.scalar(4), builder.scalar(4)], [y])
    model = builder.build()
    assert openvino().supported(model) == [True]
    given = np.random.default_rng(0).standard_normal((1, 2, 2, 600)).astype(np.float32)
    expected, *found = by_both(model, given)
    assert found == [pytest.approx(expected, rel=1e-5, abs=1e-5)] * 3


def test_an_output_has_the_extents_that_the_model_gives_it() -> None:
    builder = ModelBuilder()
    x, y = builder.input(F32, (4, 1)), builder.output(F32, (1, 1, 1))
    expanded = builder.temporary(F32, (4, 1, 1))
    builder.operation(OperationType.EXPAND_DIMS, [x, builder.scalar(2)], [expanded])
    axes = builder.constant(OperandType.TENSOR_INT32, np.array([0], np.int32))
    builder.operation(OperationType.REDUCE_MIN, [expanded, axes, builder.scalar(True)], [y])
    given = np.array([[4], [3], [2], [1]], np.float32)
    with nnburst.launch("openvino") as device, device.prepare(builder.build()) as prepared:
        result = prepared.execute([given])
    assert result.outputs[0].tolist() == [[[1]]]


def test_a_network_with_an_input_that_nothing_reads_is_run() -> None:
    builder = ModelBuilder()
    x, _unread, y = builder.input(F32, (4,)), builder.input(F32, (3,)), builder.output(F32, (4,))
    builder.operation(OperationType.RELU, [x], [y])
    given = [np.array([-1, 0, 1, 2], np.float32), np.zeros(3, np.float32)]
    assert computed(openvino(), builder.build(), given)[0].tolist() == [0, 0, 1, 2]


def kept_network(options: dict[str, str] | None = None) -> Cached:
    prepared = openvino(options or {}).prepare(network(), [])
    assert isinstance(prepared, OpenVinoPrepared)
    return prepared.to_cache()


def cached_executor(options: dict[str, str] | None = None) -> OpenVinoExecutor:
    executor = openvino(options or {})
    assert isinstance(executor, OpenVinoExecutor)
    return executor


def results(prepared: Prepared, x: np.ndarray[Any, Any], shape: tuple[int, ...]) -> bytes:
    taken = np.zeros(shape, np.float32)
    execution = prepared.bind(
        [Argument(x.reshape(-1).view(np.uint8), x.shape)],
        [Argument(taken.reshape(-1).view(np.uint8), taken.shape)],
    )
    assert execution.run().status is ErrorStatus.NONE
    return taken.tobytes()


@pytest.mark.parametrize("options", [{}, {"threads": "2"}, {"profile": "1"}])
def test_what_is_kept_gives_the_same_without_the_model(options: dict[str, str]) -> None:
    kept = kept_network(options)
    assert (kept.model.operand_values, kept.constants) == (b"", b"")
    again = cached_executor(options).prepare_from_cache(kept, DEFAULT_OPTIONS)
    assert results(again, image(), (1, 8, 8, 8)) == by_executor(network(), image())
    assert again.num_threads == int(options.get("threads", 1))


def test_what_is_kept_has_its_inputs_and_outputs_in_their_order() -> None:
    builder = ModelBuilder()
    given = [builder.input(F32, (2,)) for _ in range(12)]
    taken = [builder.output(F32, (2,)) for _ in range(12)]
    for number, (x, y) in enumerate(zip(given, reversed(taken), strict=True)):
        other = builder.constant(F32, np.full(2, number, np.float32))
        builder.operation(OperationType.MUL, [x, other, builder.scalar(0)], [y])
    values = [np.full(2, 1 + number, np.float32) for number in range(12)]
    prepared = openvino().prepare(builder.build(), [])
    assert isinstance(prepared, OpenVinoPrepared)
    again = cached_executor().prepare_from_cache(prepared.to_cache(), DEFAULT_OPTIONS)
    found = [np.zeros(2, np.float32) for _ in taken]
    execution = again.bind(
        [Argument(x.view(np.uint8), (2,)) for x in values],
        [Argument(y.view(np.uint8), (2,)) for y in found],
    )
    assert execution.run().status is ErrorStatus.NONE
    assert [y[0] for y in found] == [number * (1 + number) for number in reversed(range(12))]


@pytest.mark.parametrize("profile", ["0", "1"])
def test_what_is_kept_measures_nodes_only_if_that_is_asked_for(
    profile: str, tmp_path: Path
) -> None:
    with nnburst.launch("openvino", options={"profile": profile}) as device:
        device.prepare(network(), cache_dir=tmp_path).close()
        with device.prepare(network(), cache_dir=tmp_path) as prepared:
            assert prepared.from_cache
            times = [prepared.execute([image()], measure=True).timing for _ in range(3)]
    assert [each.time_on_device == UINT64_MAX for each in times] == [profile == "0"] * 3


@pytest.mark.parametrize(
    "options", [{"threads": "2"}, {"profile": "1"}], ids=["threads", "profile"]
)
def test_what_was_compiled_with_other_options_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(GeneralFailure, match="another version, device, processor or options"):
        cached_executor(options).prepare_from_cache(kept_network(), DEFAULT_OPTIONS)


def test_what_was_compiled_for_another_processor_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = kept_network()
    monkeypatch.setattr("nnburst.executor.openvino.processor_features", lambda: b"flags: none")
    with pytest.raises(GeneralFailure, match="another version, device, processor or options"):
        cached_executor().prepare_from_cache(kept, DEFAULT_OPTIONS)


def test_a_compiled_network_has_its_constants_when_the_bytes_are_gone() -> None:
    _made_for, compiled = msgspec.msgpack.decode(kept_network().program)
    content = bytearray(compiled)
    taken = OpenVinoNetwork(content, "CPU", 1, is_compiled=True)
    content[:] = bytes(len(content))
    prepared = OpenVinoPrepared(network(), taken, "CPU", 1, profile=False)
    assert results(prepared, image(), (1, 8, 8, 8)) == by_executor(network(), image())


@pytest.mark.parametrize("program", [b"\xc1", b"\x90", b"graph"])
def test_a_program_that_is_malformed_is_refused(program: bytes) -> None:
    kept = msgspec.structs.replace(kept_network(), program=program)
    with pytest.raises(GeneralFailure, match="malformed program"):
        cached_executor().prepare_from_cache(kept, DEFAULT_OPTIONS)


def test_a_compiled_network_that_the_engine_does_not_take_is_refused() -> None:
    kept = kept_network()
    made_for, compiled = msgspec.msgpack.decode(kept.program)
    program = msgspec.msgpack.encode([made_for, b"x" * len(compiled)])
    with pytest.raises(GeneralFailure, match="a compiled network: OpenVINO"):
        cached_executor().prepare_from_cache(
            msgspec.structs.replace(kept, program=program), DEFAULT_OPTIONS
        )


def test_a_network_too_long_for_a_cache_file_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nnburst.executor.openvino._MOST_COMPILED", 100)
    with pytest.raises(GeneralFailure, match="expected 1 to 100"):
        kept_network()


def test_networks_are_compiled_and_taken_on_several_threads_at_once() -> None:
    expected = by_executor(network(), image())
    kept = {threads: kept_network({"threads": threads}) for threads in ("1", "2")}

    def compiled(threads: str) -> Prepared:
        return openvino({"threads": threads}).prepare(network(), [])

    def taken(threads: str) -> Prepared:
        return cached_executor({"threads": threads}).prepare_from_cache(
            kept[threads], DEFAULT_OPTIONS
        )

    with ThreadPoolExecutor(4) as pool:
        made = [pool.submit(by, t) for _ in range(4) for by in (compiled, taken) for t in kept]
        found = {results(each.result(), image(), (1, 8, 8, 8)) for each in made}
    assert found == {expected}


@pytest.mark.parametrize("change", ["flipped", "truncated", "foreign"])
def test_cache_files_that_were_changed_are_refused_and_the_model_is_compiled_anew(
    change: str, tmp_path: Path
) -> None:
    def is_from_cache() -> bool:
        with (
            nnburst.launch("openvino") as device,
            device.prepare(network(), cache_dir=tmp_path) as prepared,
        ):
            found = prepared.execute([image()]).outputs[0]
            assert found.tobytes() == by_executor(network(), image())
            return prepared.from_cache

    assert [is_from_cache(), is_from_cache()] == [False, True]
    longest = max((p for p in tmp_path.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
    content = bytearray(longest.read_bytes())
    if change == "flipped":
        content[len(content) // 2] ^= 1
    elif change == "truncated":
        del content[-1]
    else:
        content = bytearray(kept_network().program)
    longest.write_bytes(content)
    assert [is_from_cache(), is_from_cache()] == [False, True]


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
    path = os.environ.get("PYTHONPATH", "")
    environment = {"PATH": "", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": path}
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
            if isinstance(prepared, OpenVinoPrepared):
                for status, message in run(vector, prepared, RUNS // CASES, at_end=cases % 2 == 0):
                    assert status in (ErrorStatus.NONE, ErrorStatus.GENERAL_FAILURE), message
            prepared.close()
    assert cases > 60
