"""Two clients of one served driver: neither reaches a handle, a token, a slot or a byte of the other."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import nnburst
from nnburst import Device, ErrorStatus, Memory, ModelBuilder, NnburstError, PreparedModel
from nnburst.client.execution.buffer import Buffer
from nnburst.control.messages import (
    Allocate,
    Executed,
    ExecuteSynchronously,
    FreeMemory,
    Message,
    Nothing,
    OpenAidlBurst,
    Release,
)
from nnburst.fmq.shared_memory import SharedMemory
from nnburst.hal.enums import MeasureTiming, OperandType, OperationType
from nnburst.hal.model import BufferToken, DataLocation
from nnburst.hal.types import Request, RequestArgument
from nnburst.hal.utils import driver_environment
from nnburst.serialize import deserialize_result, serialize_request
from nnburst.testing.fuzzing.control_fuzzer import POOL_BYTES, honest_calls, takes_a_handle
from nnburst.testing.raw_peer import RawBurst

#: 64 random bytes that the first client hands to its driver in every way that there is.
SECRET = np.frombuffer(os.urandom(64), np.float32)
INVALID = ErrorStatus.INVALID_ARGUMENT
#: Handles and tokens that a client might guess.
GUESSES = range(1, 40)


def negation() -> nnburst.Model:
    builder = ModelBuilder()
    x = builder.input(OperandType.TENSOR_INT32, (16,))
    y = builder.output(OperandType.TENSOR_INT32, (16,))
    builder.operation(OperationType.ABS, [x], [y])
    return builder.build()


class Client(NamedTuple):
    """The objects of one client."""

    device: Device
    model: PreparedModel
    memory: Memory
    burst: nnburst.Burst
    buffer: Buffer


def client(stack: ExitStack, values: np.ndarray) -> Client:
    """A client whose pool, buffer and burst all hold `values`."""
    device = stack.enter_context(nnburst.connect("shared-driver"))
    model = stack.enter_context(device.prepare(negation()))
    memory = stack.enter_context(device.allocate(4096))
    array = memory.array(np.int32, (16,))
    array[...] = values
    burst = stack.enter_context(model.open_burst())
    burst.execute([array], [memory.array(np.int32, (16,), 1024)])
    buffer = stack.enter_context(device.allocate_buffer([(model, 0)], [(model, 0)]))
    buffer.copy_from(array)
    model.execute([values.copy()])
    return Client(device, model, memory, burst, buffer)


class Served(NamedTuple):
    """Two clients of one driver; `first` has the secret."""

    supervisor: int
    first: Client
    second: Client


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", folder)
        command = [sys.executable, "-m", "nnburst.driver", "--executor", "reference"]
        driver = subprocess.Popen(
            [*command, "--serve", "shared-driver"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=driver_environment(),
        )
        try:
            assert driver.stdout is not None
            driver.stdout.readline()
            with ExitStack() as stack:
                values = SECRET.view(np.int32), np.zeros(16, np.int32)
                yield Served(driver.pid, *(client(stack, each) for each in values))
        finally:
            driver.kill()
            driver.communicate(timeout=10)


def status(
    device: Device, message: Message, expected: type[Message] = Nothing, fds: tuple[int, ...] = ()
) -> ErrorStatus:
    """The driver's answer to a call."""
    try:
        device._session.connection.call(message, expected, list(fds), timeout=30)
    except NnburstError as error:
        return error.status
    return ErrorStatus.NONE


def own_handles(one: Client) -> set[int]:
    """All of a client's handles; they are numbered from 1 for each client."""
    found = {one.model._prepared.handle, one.buffer._open_handle}
    found |= {h for h in GUESSES if status(one.device, FreeMemory(h, -7)) == ErrorStatus.NONE}
    return found


def test_each_client_has_a_process_of_its_own(served: Served) -> None:
    pids = {served.supervisor, served.first.device.pid, served.second.device.pid, os.getpid()}
    assert len(pids) == 4


def test_numbers_are_each_clients_own_and_name_only_its_own_things(served: Served) -> None:
    first, second = served.first, served.second
    assert (first.model._prepared.handle, first.buffer._token) == (
        second.model._prepared.handle,
        second.buffer._token,
    )
    assert np.all(second.buffer.copy_to() == 0)
    assert np.array_equal(first.buffer.copy_to(), SECRET.view(np.int32))


def test_guessed_handles_are_refused_by_every_call(served: Served) -> None:
    second = served.second
    guesses = [handle for handle in GUESSES if handle not in own_handles(second)]
    with SharedMemory.create(POOL_BYTES) as memory:
        for handle in guesses:
            calls = [call for call in honest_calls(handle) if takes_a_handle(type(call))]
            assert {Release, Allocate, OpenAidlBurst} < {type(call) for call in calls}
            for call in calls:
                fds = [memory.fd] * (2 if call.fd_count is None else call.fd_count)
                with pytest.raises(NnburstError, match=f"handle {handle} is not open") as caught:
                    second.device._session.connection.call(call, Message, fds, timeout=30)
                assert caught.value.status == INVALID
    assert np.array_equal(served.first.buffer.copy_to(), SECRET.view(np.int32))


def test_guessed_tokens_are_refused(served: Served) -> None:
    second = served.second
    whole = RequestArgument(location=DataLocation(0))
    for token in GUESSES:
        if token == second.buffer._token:
            continue
        request = Request((whole,), (whole,), (BufferToken(token=token),))
        message = ExecuteSynchronously(second.model._prepared.handle, request)
        assert status(second.device, message, Executed) == INVALID


def test_slot_is_resolved_by_the_client_that_named_it(served: Served) -> None:
    first, second = served.first, served.second
    before = bytes(first.memory.view())
    arguments = [RequestArgument(location=DataLocation(0, offset, 64)) for offset in (0, 1024)]
    request = Request((arguments[0],), (arguments[1],))
    with RawBurst(second.model) as burst:
        for slot in range(4):  # the first client's burst has slot 0; this burst has none
            packet = serialize_request(request, [slot], MeasureTiming.NO)
            found, _, _ = deserialize_result(burst.exchange(packet))
            assert found != ErrorStatus.NONE
    assert bytes(first.memory.view()) == before


def inodes(pid: int) -> set[int]:
    """Files that a process has open or mapped."""
    found = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.add(fd.stat().st_ino)
        except OSError:
            continue
    maps = Path(f"/proc/{pid}/maps").read_text()
    return found | {
        int(inode) for inode in re.findall(r"^\S+ \S+ \S+ \S+ (\d+) /memfd", maps, re.MULTILINE)
    }


def test_pools_of_a_client_are_open_and_mapped_in_its_own_worker_alone(served: Served) -> None:
    fd = served.first.memory.duplicate()
    try:
        pool = os.fstat(fd).st_ino
    finally:
        os.close(fd)
    assert pool in inodes(served.first.device.pid)
    assert pool not in inodes(served.second.device.pid)
    assert pool not in inodes(served.supervisor)


def memory_of(pid: int) -> Iterator[bytes]:
    """Everything that a process can read of its own, but for shared memory."""
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, rights, _, _, inode, *_ = line.split()
            if not rights.startswith("rw") or inode != "0":
                continue
            begin, end = (int(part, 16) for part in span.split("-"))
            memory.seek(begin)
            try:
                yield memory.read(end - begin)
            except OSError:
                continue


def test_bytes_of_a_client_are_in_its_own_worker_alone(served: Served) -> None:
    secret = SECRET.tobytes()
    try:
        assert any(secret in part for part in memory_of(served.first.device.pid))
    except PermissionError:
        pytest.skip("processes may not look into each other's memory here")
    for pid in (served.second.device.pid, served.supervisor):
        assert not any(secret in part for part in memory_of(pid))


def test_client_that_kills_its_worker_harms_no_other(served: Served) -> None:
    with nnburst.connect("shared-driver") as third:
        os.kill(third.pid, 9)
        with pytest.raises(nnburst.DeadObject):
            third.prepare(negation())
    for one in (served.first, served.second):
        values = np.arange(16, dtype=np.int32)
        assert np.array_equal(one.burst.execute([-values]).outputs[0], values)


def test_client_beyond_its_quota_leaves_the_others_theirs(served: Served) -> None:
    first, second = served.first, served.second
    held: list[Buffer] = []
    with pytest.raises(nnburst.ResourceExhausted):
        held.extend(first.device.allocate_buffer([(first.model, 0)]) for _ in range(2000))
    with second.device.allocate_buffer([(second.model, 0)]) as buffer:
        buffer.copy_from(np.ones(16, np.int32))
    for buffer in held:
        buffer.close()
