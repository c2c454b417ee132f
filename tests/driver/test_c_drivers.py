"""Drivers whose executor is a library in C: times, memory of the device, faults, device nodes, one owner."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnburst
from client.conftest import add_model
from driver.sample import EXAMPLE, compile_example
from nnburst import Device, DeviceUnavailable, Model, ModelBuilder, OperandType, OperationType
from nnburst.client.hal import create_reusable_execution, execute_fenced, open_aidl_burst
from nnburst.hal.enums import DeviceType
from nnburst.hal.errors import DeadObject, GeneralFailure, InvalidArgument, MissedDeadline
from nnburst.hal.limits import NO_TIMING
from nnburst.testing.driver_under_test import DriverUnderTest

pytestmark = pytest.mark.skipif(
    not EXAMPLE.exists() or shutil.which("gcc") is None or shutil.which("make") is None,
    reason="needs gcc, make and the examples beside the tests",
)

A = np.arange(6, dtype=np.float32).reshape(2, 3)
#: Far more than one execution takes, in nanoseconds.
_HOUR = 3600 * 10**9


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of libsample.so and libadder.so."""
    folder = tmp_path_factory.mktemp("libraries")
    compile_example(folder)
    return folder


@pytest.fixture(scope="session")
def sample(libraries: Path) -> str:
    return str(libraries / "libsample.so")


@pytest.fixture(scope="session")
def adder(libraries: Path) -> str:
    return str(libraries / "libadder.so")


@pytest.fixture(scope="module")
def device(sample: str) -> Iterator[Device]:
    with nnburst.launch(sample) as launched:
        yield launched


def network(factor: float = 2.0) -> Model:
    """relu(x * weights + bias), with constants."""
    builder = ModelBuilder()
    kind = OperandType.TENSOR_FLOAT32
    x = builder.input(kind, (2, 3))
    weights = builder.constant(kind, np.arange(12).reshape(4, 3) * factor - 5)
    bias = builder.constant(kind, np.arange(4))
    y = builder.output(kind, (2, 4))
    builder.operation(OperationType.FULLY_CONNECTED, [x, weights, bias, builder.scalar(1)], [y])
    return builder.build()


def expected(x: np.ndarray, factor: float = 2.0) -> np.ndarray:
    weights = (np.arange(12).reshape(4, 3) * factor - 5).astype(np.float32)
    return np.maximum(x @ weights.T + np.arange(4, dtype=np.float32), 0)


# -- what it says, and what it computes ----------------------------------------


def test_a_relative_library_is_found_again_from_another_working_directory(
    sample: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(sample).parent)
    with nnburst.launch(f"./{Path(sample).name}", recover=True) as device:
        prepared, noticed = device.prepare(network()), threading.Event()
        monkeypatch.chdir(tmp_path)
        device.on_death(noticed.set)
        os.kill(device.pid, signal.SIGKILL)
        assert noticed.wait(30)
        np.testing.assert_allclose(prepared.execute([A]).outputs[0], expected(A))


def test_device_reports_what_its_library_describes(device: Device) -> None:
    assert device.name == "sample"
    assert device.version_string.endswith(" sample 1.0")
    assert device.type is DeviceType.ACCELERATOR
    performance = {p.type: p.info for p in device.capabilities.operand_performance}
    assert performance[OperandType.TENSOR_FLOAT32].exec_time == 0.5
    assert OperandType.TENSOR_INT32 not in performance


def test_what_it_does_not_support_is_refused(device: Device) -> None:
    model = add_model(kind=OperandType.TENSOR_INT32)
    assert device.supported_operations(model) == [False]
    with pytest.raises(InvalidArgument, match="P8"):
        device.prepare(model)


def test_saved_model_computes_the_same_in_another_process(sample: str, tmp_path: Path) -> None:
    found = []
    for factor in (2.0, 2.0, 3.0):
        with nnburst.launch(sample) as launched:
            prepared = launched.prepare(network(factor), cache_dir=tmp_path / "cache")
            result = prepared.execute([A]).outputs[0]
            np.testing.assert_allclose(result, expected(A, factor), rtol=1e-6)
            found.append(prepared.from_cache)
    assert found == [False, True, False]


def test_path_that_is_no_library_is_no_executor(tmp_path: Path) -> None:
    (tmp_path / "libtext.so").write_text("not ELF")
    with pytest.raises(DeviceUnavailable, match="not the path of a shared library"):
        nnburst.launch(str(tmp_path / "libtext.so"))


def test_option_that_a_library_does_not_know_is_refused_with_its_reason(sample: str) -> None:
    with pytest.raises(InvalidArgument, match="option color=red: not known"):
        nnburst.launch(sample, options={"color": "red"})
    with pytest.raises(DeviceUnavailable, match="--option a=b: executor null takes no options"):
        nnburst.launch("null", options={"a": "b"})


# -- times ---------------------------------------------------------------------


def by_execute(prepared: Any) -> tuple[int, int]:
    timing = prepared.execute([A, A], measure=True).timing
    return timing.time_on_device, timing.time_in_driver


def by_burst(prepared: Any) -> tuple[int, int]:
    with prepared.open_burst() as burst:
        burst.execute([A, A])  # which binds it
        timing = burst.execute([A, A], measure=True).timing
    return timing.time_on_device, timing.time_in_driver


def by_first_burst_execution(prepared: Any) -> tuple[int, int]:
    with prepared.open_burst() as burst:
        timing = burst.execute([A, A], measure=True).timing
    return timing.time_on_device, timing.time_in_driver


def by_reusable(prepared: Any) -> tuple[int, int]:
    with create_reusable_execution(prepared, [A, A], measure=True) as execution:
        timing = execution.run().timing
    return timing.time_on_device, timing.time_in_driver


def by_fenced(prepared: Any) -> tuple[int, int]:
    with execute_fenced(prepared, [A, A], measure=True) as fenced:
        timing = fenced.result().timing
    return timing.time_on_device, timing.time_in_driver


def by_aidl_burst(prepared: Any) -> tuple[int, int]:
    with open_aidl_burst(prepared) as burst:
        timing = burst.execute([A, A], measure=True).timing
    return timing.time_on_device, timing.time_in_driver


ROADS = [by_execute, by_burst, by_first_burst_execution, by_reusable, by_fenced, by_aidl_burst]
roads = pytest.mark.parametrize("road", ROADS, ids=[road.__name__ for road in ROADS])


@roads
def test_time_on_device_is_at_most_that_in_the_driver_and_that_the_round_trip(
    device: Device, road: Callable[[Any], tuple[int, int]]
) -> None:
    with device.prepare(add_model()) as prepared:
        for _ in range(20):
            began = time.perf_counter_ns()
            on_device, in_driver = road(prepared)
            took = (time.perf_counter_ns() - began) / 1000
            assert 0 <= on_device <= in_driver <= took + 1  # rounded up to microseconds


@pytest.mark.every_day("by_execute", "by_burst")
@roads
def test_time_that_is_not_available_arrives_as_such(
    adder: str, road: Callable[[Any], tuple[int, int]]
) -> None:
    with nnburst.launch(adder) as device, device.prepare(add_model()) as prepared:
        on_device, in_driver = road(prepared)
    assert on_device == NO_TIMING
    assert 0 < in_driver < NO_TIMING  # which the driver measures by itself


@pytest.mark.every_day("by_execute", "by_burst")
@roads
def test_times_that_cannot_be_are_cut_to_what_was_measured(
    sample: str, road: Callable[[Any], tuple[int, int]]
) -> None:
    at = 1 if road is by_burst else 0
    options = {"fault": "times", "fault_at": str(at)}
    with nnburst.launch(sample, options=options) as device, device.prepare(add_model()) as prepared:
        on_device, in_driver = road(prepared)
    assert on_device <= in_driver < _HOUR // 1000


# -- memory of the device ------------------------------------------------------


def test_what_lies_between_two_models_stays_on_the_device(device: Device) -> None:
    with (
        device.prepare(add_model((2, 3))) as first,
        device.prepare(network()) as second,
        device.allocate_buffer([(second, 0)], [(first, 0)]) as between,
        device.allocate_buffer(outputs=[(second, 0)]) as last,
    ):
        for number in range(3):
            first.execute([A, A + number], [between])
            second.execute([between], [last])
            result = np.zeros((2, 4), np.float32)
            last.copy_to(result)
            np.testing.assert_allclose(result, expected(2 * A + number), rtol=1e-6)
            held = np.zeros((2, 3), np.float32)
            between.copy_to(held)
            np.testing.assert_array_equal(held, 2 * A + number)


def test_buffer_that_is_filled_by_its_client_is_an_input(device: Device) -> None:
    with device.prepare(network()) as prepared, device.allocate_buffer([(prepared, 0)]) as buffer:
        buffer.copy_from(A)
        np.testing.assert_allclose(prepared.execute([buffer]).outputs[0], expected(A), rtol=1e-6)


def test_memory_that_the_device_does_not_have_is_refused_and_nothing_is_lost(sample: str) -> None:
    with nnburst.launch(sample, options={"memory_mb": "1"}) as device:
        model = add_model((256, 256))
        prepared = device.prepare(model)
        buffers = []
        with pytest.raises(nnburst.ResourceExhausted, match="the accelerator has no 262144 bytes"):
            while len(buffers) < 5:
                buffers.append(device.allocate_buffer([(prepared, 0)]))
        assert 1 <= len(buffers) <= 4
        for buffer in buffers:
            buffer.close()
        small = device.prepare(add_model())
        np.testing.assert_array_equal(small.execute([A, A]).outputs[0], 2 * A)


# -- faults --------------------------------------------------------------------


def test_crash_is_the_end_of_one_clients_worker_and_of_no_other(sample: str) -> None:
    options = ["fault=abort", "fault_at=3"]
    with DriverUnderTest.start(sample, options=options) as driver:
        with nnburst.connect(driver.address) as other, other.prepare(add_model()) as fine:
            np.testing.assert_array_equal(fine.execute([A, A]).outputs[0], 2 * A)
            with nnburst.connect(driver.address) as crashing:
                burst = crashing.prepare(add_model()).open_burst()
                for _ in range(3):
                    burst.execute([A, A])
                with pytest.raises(DeadObject):
                    burst.execute([A, A])
            np.testing.assert_array_equal(fine.execute([A, A]).outputs[0], 2 * A)
        with nnburst.connect(driver.address) as again, again.prepare(add_model()) as prepared:
            np.testing.assert_array_equal(prepared.execute([A, A]).outputs[0], 2 * A)


def test_run_that_hangs_ends_at_its_deadline(sample: str) -> None:
    with nnburst.launch(sample, options={"fault": "hang"}) as device:
        prepared = device.prepare(add_model())
        with pytest.raises(MissedDeadline):
            prepared.execute([A, A], timeout=0.2)
        np.testing.assert_array_equal(prepared.execute([A, A]).outputs[0], 2 * A)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("fail", "a fault that was asked for"),
        ("status", "status 77, which does not exist"),
        ("shapes", "a shape that output 0 cannot have"),
    ],
)
def test_wrong_answer_is_a_failure_with_its_reason_and_the_next_run_is_right(
    sample: str, fault: str, message: str
) -> None:
    with nnburst.launch(sample, options={"fault": fault}) as device:
        prepared = device.prepare(add_model())
        with pytest.raises(GeneralFailure, match=message):
            prepared.execute([A, A])
        np.testing.assert_array_equal(prepared.execute([A, A]).outputs[0], 2 * A)


@pytest.mark.every_day("fail", "shapes")
@pytest.mark.parametrize("fault", ["fail", "status", "shapes", "exhausted"])
def test_wrong_answer_in_a_burst_is_a_failure_of_one_execution(sample: str, fault: str) -> None:
    with (
        nnburst.launch(sample, options={"fault": fault, "fault_at": "2"}) as device,
        device.prepare(add_model()).open_burst() as burst,
    ):
        for number in range(5):
            if number == 2:
                with pytest.raises(GeneralFailure):
                    burst.execute([A, A])
            else:
                np.testing.assert_array_equal(burst.execute([A, A]).outputs[0], 2 * A)


# -- device nodes, and one owner -----------------------------------------------


def has_landlock() -> bool:
    code = "from nnburst.driver.confinement import enter_sandbox; print(int(enter_sandbox()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return bool(int(done.stdout) & 2)


def test_node_is_opened_only_if_it_is_named(sample: str, tmp_path: Path) -> None:
    node = tmp_path / "npu0"
    node.touch()
    options = {"node": str(node)}
    with nnburst.launch(sample, options=options, device_nodes=[node]) as device:
        device.prepare(add_model()).close()
    if not has_landlock():
        pytest.skip("this kernel has no Landlock")
    with pytest.raises(DeviceUnavailable, match="node cannot be opened for writing"):
        nnburst.launch(sample, options=options)
    other = tmp_path / "npu1"
    other.touch()
    with pytest.raises(DeviceUnavailable, match="node cannot be opened for writing"):
        nnburst.launch(sample, options=options, device_nodes=[other])


def test_second_process_is_refused_as_the_device_has_an_owner(sample: str, tmp_path: Path) -> None:
    node = tmp_path / "npu0"
    node.touch()
    how: dict[str, Any] = {"options": {"node": str(node)}, "device_nodes": [node]}
    owned = "the accelerator belongs to another process"
    with nnburst.launch(sample, **how), pytest.raises(DeviceUnavailable, match=owned):
        nnburst.launch(sample, **how)
    nnburst.launch(sample, **how).close()


def test_served_device_has_one_owner_until_its_client_goes(sample: str, tmp_path: Path) -> None:
    node, address = tmp_path / "npu0", tmp_path / "npu.sock"
    node.touch()
    words = ["--executor", sample, "--option", f"node={node}", "--device-node", str(node)]
    command = [sys.executable, "-m", "nnburst", "serve", str(address), *words]
    with subprocess.Popen([*command, "--until-stdin-ends"], stdin=subprocess.PIPE) as service:
        deadline = time.monotonic() + 60
        while not address.exists() and time.monotonic() < deadline:
            assert service.poll() is None
            time.sleep(0.01)
        with nnburst.connect(str(address)) as owner, owner.prepare(add_model()) as prepared:
            with pytest.raises(DeviceUnavailable, match="belongs to another process"):
                nnburst.connect(str(address))
            np.testing.assert_array_equal(prepared.execute([A, A]).outputs[0], 2 * A)
        while True:  # the worker of the owner ends by itself
            try:
                nnburst.connect(str(address)).close()
            except DeviceUnavailable:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            else:
                break
        assert service.stdin is not None
        service.stdin.close()


def test_node_that_is_not_there_is_refused_when_the_driver_starts(sample: str) -> None:
    with pytest.raises(DeviceUnavailable, match="device node: '/nowhere/npu0', expected the path"):
        nnburst.launch(sample, device_nodes=["/nowhere/npu0"])
