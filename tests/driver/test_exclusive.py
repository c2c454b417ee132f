"""One process owns the device of all clients of a service (`nnburst serve --exclusive`)."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

import nnburst
from client.conftest import add_model
from driver.sample import EXAMPLE, compile_example
from faults.processes import stop
from nnburst import Device, DeviceUnavailable, OperandType
from nnburst.hal.enums import Priority
from nnburst.hal.errors import DeadObject, InvalidArgument, MissedDeadline
from nnburst.testing.driver_under_test import DriverUnderTest
from nnburst.testing.faults.footprint import children

pytestmark = pytest.mark.skipif(
    not EXAMPLE.exists() or shutil.which("gcc") is None or shutil.which("make") is None,
    reason="needs gcc, make and the examples beside the tests",
)

A = np.arange(6, dtype=np.float32).reshape(2, 3)
PATIENCE = 30.0
Serve = Callable[..., DriverUnderTest]


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("libraries")
    compile_example(folder)
    return str(folder / "libsample.so")


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """The file that the owner of the accelerator locks, so that a second open is refused."""
    path = tmp_path / "npu0"
    path.touch()
    return path


@pytest.fixture
def serve(sample: str, node: Path) -> Iterator[Serve]:
    with contextlib.ExitStack() as stack:

        def start(*options: str, executor: str = sample) -> DriverUnderTest:
            words = ["--exclusive", "--device-node", str(node)]
            given = [f"node={node}", *options] if executor == sample else options
            return stack.enter_context(DriverUnderTest.start(executor, options=given, words=words))

        yield start


def assert_adds(device: Device) -> None:
    with device.prepare(add_model()) as prepared:
        np.testing.assert_array_equal(prepared.execute([A, A]).outputs[0], 2 * A)


def owner_of(supervisor: int) -> int:
    (found,) = (pid for pid in children(supervisor) if names_of([pid]) == ["nnburst owner"])
    return found


def names_of(pids: Sequence[int]) -> list[str]:
    found = []
    for pid in pids:
        with contextlib.suppress(OSError):
            found.append((Path("/proc") / str(pid) / "comm").read_text().strip())
    return found


def test_clients_share_a_device_that_only_one_process_can_open(serve: Serve) -> None:
    driver = serve()
    assert driver.pid is not None
    with contextlib.ExitStack() as stack:
        devices = [stack.enter_context(nnburst.connect(driver.address)) for _ in range(4)]
        bursts = []
        for device in devices:  # networks of all are prepared at once
            prepared = stack.enter_context(device.prepare(add_model()))
            bursts.append(stack.enter_context(prepared.open_burst()))
        for number in range(5):
            for which, burst in enumerate(bursts):
                second = A + np.float32(10 * which + number)
                np.testing.assert_array_equal(burst.execute([A, second]).outputs[0], A + second)
        assert names_of(list(children(driver.pid))).count("nnburst owner") == 1


def test_device_reports_what_its_library_describes(serve: Serve) -> None:
    with nnburst.connect(serve().address) as device:
        assert device.version_string.endswith(" sample 1.0")
        assert device.type is nnburst.DeviceType.ACCELERATOR
        performance = {p.type: p.info for p in device.capabilities.operand_performance}
        assert performance[OperandType.TENSOR_FLOAT32].exec_time == 0.5
        model = add_model(kind=OperandType.TENSOR_INT32)
        assert device.supported_operations(model) == [False]
        with pytest.raises(InvalidArgument, match="P8"):
            device.prepare(model)


def test_clients_that_execute_at_the_same_time_get_their_own_results(serve: Serve) -> None:
    address = serve().address
    wrong: list[str] = []

    def work(number: int) -> None:
        priority = Priority(number % 3)
        with (
            nnburst.connect(address) as device,
            device.prepare(add_model((64, 64)), priority=priority) as prepared,
            prepared.open_burst() as burst,
        ):
            x = np.full((64, 64), number, np.float32)
            for run in range(25):
                result = burst.execute([x, x + run]).outputs[0]
                if not (result == 2 * number + run).all():
                    wrong.append(f"client {number}, run {run}: {result}")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []


def test_time_on_the_device_does_not_count_the_wait(serve: Serve) -> None:
    with nnburst.connect(serve().address) as device, device.prepare(add_model()) as prepared:
        timing = prepared.execute([A, A], measure=True).timing
    assert 0 <= timing.time_on_device <= timing.time_in_driver


def test_deadline_that_has_passed_is_missed(serve: Serve) -> None:
    with nnburst.connect(serve("fault=hang").address) as device:
        with device.prepare(add_model()) as prepared, pytest.raises(MissedDeadline):
            prepared.execute([A, A], timeout=0.2)
        assert_adds(device)


def test_buffers_of_the_driver_are_arguments_too(serve: Serve) -> None:
    with (
        nnburst.connect(serve().address) as device,
        device.prepare(add_model()) as prepared,
        device.allocate_buffer([(prepared, 0)], [(prepared, 0)]) as one,
        device.allocate_buffer(outputs=[(prepared, 0)]) as other,
    ):
        one.copy_from(A)
        prepared.execute([one, A], [other])
        result = np.zeros((2, 3), np.float32)
        other.copy_to(result)
        np.testing.assert_array_equal(result, 2 * A)


def test_outputs_of_unknown_size_come_with_their_shapes(serve: Serve) -> None:
    with nnburst.connect(serve(executor="reference").address) as device:
        builder = nnburst.ModelBuilder()
        x = builder.input(OperandType.TENSOR_FLOAT32, (2, 3))
        y = builder.output(OperandType.TENSOR_FLOAT32, (0, 0))
        builder.operation(nnburst.OperationType.FLOOR, [x], [y])
        with device.prepare(builder.build()) as prepared:
            result = prepared.execute([A + np.float32(0.5)])
            np.testing.assert_array_equal(result.outputs[0].reshape(2, 3), A)


def test_owner_that_aborts_ends_all_its_clients_and_another_one_serves(serve: Serve) -> None:
    driver = serve("fault=abort", "fault_at=3")
    with contextlib.ExitStack() as stack:
        devices = [stack.enter_context(nnburst.connect(driver.address)) for _ in range(3)]
        bursts = []
        for device in devices:
            bursts.append(device.prepare(add_model()).open_burst())
            np.testing.assert_array_equal(bursts[-1].execute([A, A]).outputs[0], 2 * A)
        with pytest.raises(DeadObject):
            bursts[0].execute([A, A])
        for burst in bursts[1:]:
            with pytest.raises(DeadObject):
                burst.execute([A, A])
    with nnburst.connect(driver.address, timeout=PATIENCE) as again:
        assert_adds(again)


def test_deadlines_of_clients_hold_while_the_owner_stands_still(serve: Serve) -> None:
    driver = serve(executor="reference")
    assert driver.pid is not None
    with (
        nnburst.connect(driver.address) as device,
        device.prepare(add_model()) as prepared,
        prepared.open_burst() as burst,
    ):
        burst.execute([A, A])
        owner = owner_of(driver.pid)
        stop(owner)
        try:
            with pytest.raises(MissedDeadline):
                burst.execute([A, A], timeout=0.2)
            with pytest.raises(MissedDeadline):
                prepared.execute([A, A], timeout=0.2)
        finally:
            os.kill(owner, signal.SIGCONT)
        assert_adds(device)


def test_client_that_executes_nothing_learns_of_the_owners_end(serve: Serve) -> None:
    driver = serve("fault=abort")
    died = threading.Event()
    with nnburst.connect(driver.address) as idle, nnburst.connect(driver.address) as device:
        idle.on_death(died.set)
        with device.prepare(add_model()) as prepared, pytest.raises(DeadObject):
            prepared.execute([A, A])
        assert died.wait(PATIENCE)


def test_client_that_is_killed_harms_no_other(serve: Serve) -> None:
    driver = serve()
    with nnburst.connect(driver.address) as device, device.prepare(add_model()) as prepared:
        for _ in range(3):
            with nnburst.connect(driver.address) as other:
                assert_adds(other)
                os.kill(other.pid, 9)
            np.testing.assert_array_equal(prepared.execute([A, A]).outputs[0], 2 * A)


def test_device_that_another_program_has_is_refused_with_the_reason(
    serve: Serve, node: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with node.open("r+b") as taken:
        fcntl.flock(taken, fcntl.LOCK_EX)
        with pytest.raises(DeviceUnavailable, match="does not start; its log has the reason"):
            serve()
    assert "belongs to another process" in capfd.readouterr().err.splitlines()[-1]


def test_driver_of_one_client_takes_no_such_option() -> None:
    from nnburst.driver.service.main import Options

    with pytest.raises(SystemExit, match="--exclusive: a driver of one client"):
        Options(["--executor", "null", "--fd", "3", "--exclusive"])
