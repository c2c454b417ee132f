"""Event: waiting, fences from outside (RTT:V30, V31)."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest

from descriptors import descriptors
from interrupting import interrupted_at, threads_that_start
from nnburst.hal import SyncFence
from nnburst.hal.errors import NnburstError, ResourceExhausted
from nnburst.runtime import Compilation, Event, Execution, Manager, Memory
from nnburst.runtime.execution import fences
from nnburst.runtime.objects.execution_settings import State
from runtime.building import add_model, bad_data, bad_state, finished, op_failed, unexpected_null
from waiting import wait_for

ONES = np.ones(2, np.float32)


def ready(compilation: Compilation) -> tuple[Execution, np.ndarray]:
    execution, out = compilation.execution(), np.zeros(2, np.float32)
    for index in range(2):
        execution.set_input(index, ONES)
    execution.set_output(0, out)
    return execution, out


def test_a_started_computation_has_no_fence_and_waits_any_number_of_times() -> None:
    execution, out = ready(finished(add_model(2)))
    event = execution.start()
    with bad_data():
        event.sync_fence()
    threads = [threading.Thread(target=event.wait) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    event.wait()
    assert out.tolist() == [2, 2]
    event.close()
    with bad_state():
        event.wait()


def test_a_started_computation_that_fails_fails_in_wait_alone() -> None:
    compilation = finished(add_model(0, out=(0,)))
    execution = compilation.execution()
    from runtime.building import floats

    execution.set_input(0, ONES, floats(2))
    execution.set_input(1, np.ones(3, np.float32), floats(3))
    execution.set_output(0, np.zeros(8, np.float32))
    event = execution.start()
    for _ in range(2):
        with op_failed():
            event.wait()


@pytest.mark.parametrize("is_late", [False, True])
def test_a_memory_that_is_closed_while_an_execution_computes_spoils_this_execution_alone(
    monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    compilation = finished(add_model(2))
    memory = Memory.allocate(8)
    memory.bytes.view(np.float32)[...] = 1
    execution, out = compilation.execution(), np.zeros(2, np.float32)
    execution.set_input_from_memory(0, memory, 0, 8)
    execution.set_input(1, ONES)
    execution.set_output(0, out)
    reached, may_go_on = threading.Event(), threading.Event()

    def pause(of: object, name: str) -> None:
        """Stop the thread of the computation before `name`, until the memory is closed."""
        before = getattr(of, name)

        def paused(*arguments: object, **options: object) -> object:
            reached.set()
            assert may_go_on.wait(60)
            return before(*arguments, **options)

        monkeypatch.setattr(of, name, paused)

    pause(*((execution._executable, "execute") if is_late else (execution, "_compute")))
    event = execution.start()
    assert reached.wait(60)
    memory.close()
    may_go_on.set()
    if is_late:
        event.wait()
        assert out.tolist() == [2, 2], "the computation had its bytes by then"
    else:
        with bad_state():
            event.wait()
    again, out = ready(compilation)
    again.compute()
    assert out.tolist() == [2, 2]


def test_a_computation_without_a_thread_is_completed_and_can_be_started_again() -> None:
    execution, out = ready(finished(add_model(2)))
    execution.reusable = True
    for _ in range(2):
        with threads_that_start(0), pytest.raises(ResourceExhausted, match="thread"):
            execution.start()
        with bad_state():
            execution.output_dimensions(0)
        execution.start().wait()
        assert out.tolist() == [2, 2]
        out[...] = 0
    execution.close()
    assert execution.closed


# A generator that a handler interrupts at its end cannot pass the exception on: Python reports it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("way", ["start", "start_after", "compute"])
def test_a_computation_that_is_interrupted_anywhere_ends(way: str) -> None:
    number, interrupted = 0, True
    compilation = finished(add_model(2))
    while interrupted:
        number += 1
        execution, out = ready(compilation)
        execution.reusable = True
        events: list[Event] = []

        def use() -> None:
            done = getattr(execution, way)()  # noqa: B023 - called here
            if done is not None:
                events.append(done)  # noqa: B023

        interrupted = interrupted_at(number, use)
        for event in events:
            event.wait()
        wait_for(lambda: execution._state != State.COMPUTATION)  # noqa: B023
        out[...] = 0
        execution.start().wait()
        assert out.tolist() == [2, 2]
        execution.close()
        assert execution.closed
    assert number > 20


def test_a_negative_duration_leaves_the_execution_as_it_was() -> None:
    execution, out = ready(finished(add_model(2)))
    for duration in (-1.0, float("nan")):
        with bad_data():
            execution.start_after([], duration)
    execution.compute()
    assert out.tolist() == [2, 2]


def test_a_fence_from_outside_without_a_thread_costs_no_descriptor() -> None:
    read, write = os.pipe()
    before = descriptors()
    for _ in range(2):
        with threads_that_start(0), pytest.raises(ResourceExhausted, match="thread"):
            Event.from_sync_fence(read)
        assert descriptors() <= before
    with Event.from_sync_fence(read) as event:
        os.write(write, b"x")
        event.wait()
    os.close(read)
    os.close(write)


def test_dependencies_are_events() -> None:
    execution, _ = ready(finished(add_model(2)))
    for wrong in (None, [None]):
        with unexpected_null():
            execution.start_after(wrong)  # type: ignore[arg-type]
    execution.start_after([]).wait()


def test_a_computation_after_another_sees_what_that_wrote() -> None:
    compilation = finished(add_model(2))
    first, middle = ready(compilation)
    second, out = compilation.execution(), np.zeros(2, np.float32)
    second.set_input(0, middle)
    second.set_input(1, middle)
    second.set_output(0, out)
    second.start_after([first.start_after([])]).wait()
    assert out.tolist() == [4, 4]


def test_a_duration_needs_one_explicit_device() -> None:
    manager = Manager([])
    model = add_model(2)
    execution, _ = ready(finished(model, None, manager))
    with bad_data():
        execution.start_after([], 1.0)
    with bad_state():
        execution.compute()
    execution, _ = ready(finished(model, [manager.cpu], manager))
    execution.start_after([], 1.0).wait()


@pytest.mark.parametrize("fd", [-1, 0])
def test_a_fence_has_a_descriptor(fd: int) -> None:
    with bad_data():
        Event.from_sync_fence(fd)


def test_a_fence_of_nnbursts_is_taken_as_it_is() -> None:
    fence, signaller = SyncFence.create()
    event = Event.from_sync_fence(fence.fileno())
    again = event.sync_fence()
    os.close(again)
    execution, out = ready(finished(add_model(2)))
    signaller.signal()
    execution.start_after([event]).wait()
    event.wait()
    assert out.tolist() == [2, 2]


@pytest.mark.parametrize("kind", ["eventfd", "pipe", "socket"])
def test_whatever_can_be_polled_is_a_fence(kind: str) -> None:
    if kind == "eventfd":
        end = other = os.eventfd(0, os.EFD_NONBLOCK)
    elif kind == "pipe":
        end, other = os.pipe()
    else:
        one, two = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        end, other = one.detach(), two.detach()
    event = Event.from_sync_fence(end)
    os.write(other, (1).to_bytes(8, "little"))
    event.wait()
    for fd in {end, other}:
        os.close(fd)


def test_a_pipe_that_ends_without_a_byte_is_a_fence_in_the_error_state() -> None:
    end, other = os.pipe()
    event = Event.from_sync_fence(end)
    os.close(other)
    with op_failed():
        event.wait()
    os.close(end)


def test_a_fence_that_fails_makes_what_depends_on_it_fail() -> None:
    fence, signaller = SyncFence.create()
    event = Event.from_sync_fence(fence.fileno())
    signaller.fail()
    execution, _ = ready(finished(add_model(2)))
    with op_failed():
        execution.start_after([event])
    with bad_state():
        execution.compute()


def test_a_file_is_not_a_fence(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x")
    with path.open("rb") as file, pytest.raises(NnburstError, match="cannot be polled"):
        Event.from_sync_fence(file.fileno())


SYNC_FILE = r"""
#include <linux/sync_file.h>
#include <stddef.h>
#include <stdio.h>
int main(void) {
    printf("%zu %zu %lu", sizeof(struct sync_file_info), offsetof(struct sync_file_info, status),
           (unsigned long)SYNC_IOC_FILE_INFO);
    return 0;
}
"""


def test_a_sync_file_is_asked_for_its_status_as_the_kernel_declares_it(tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None or not Path("/usr/include/linux/sync_file.h").exists():
        pytest.skip("no C compiler, or no linux/sync_file.h")
    source, program = tmp_path / "sync_file.c", tmp_path / "sync_file"
    source.write_text(SYNC_FILE)
    subprocess.run([compiler, str(source), "-o", str(program)], check=True, timeout=120)
    printed = subprocess.run([str(program)], check=True, capture_output=True, timeout=120).stdout
    size, status, number = map(int, printed.split())
    info = fences._FILE_INFO.pack(b"", -5, 0, 0, 0, 0)
    assert (len(info), fences._SYNC_IOC_FILE_INFO) == (size, number)
    assert int.from_bytes(info[status : status + 4], "little", signed=True) == -5


@pytest.mark.parametrize(("status", "fails"), [(1, False), (-5, True)])
def test_a_sync_file_with_a_negative_status_is_a_fence_in_the_error_state(
    monkeypatch: pytest.MonkeyPatch, status: int, fails: bool
) -> None:
    """A kernel without GPU and sw_sync makes no sync_file: an eventfd that answers as one stands for it."""

    def answer(fd: int, number: int, info: bytearray) -> int:
        assert (os.fstat(fd).st_mode, number) == (
            os.fstat(end).st_mode,
            fences._SYNC_IOC_FILE_INFO,
        )
        info[:] = fences._FILE_INFO.pack(b"a driver", status, 0, 1, 0, 0)
        return 0

    end = os.eventfd(0, os.EFD_NONBLOCK)
    monkeypatch.setattr(fences.fcntl, "ioctl", answer)
    event = Event.from_sync_fence(end)
    execution, out = ready(finished(add_model(2)))
    os.eventfd_write(end, 1)  # a sync_file can be read then, too, however it has ended
    if fails:
        with op_failed():
            event.wait()
        with op_failed():
            execution.start_after([event])
    else:
        event.wait()
        execution.start_after([event]).wait()
        assert out.tolist() == [2, 2]
    os.close(end)
