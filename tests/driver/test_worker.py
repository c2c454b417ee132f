from __future__ import annotations

import os
import re
import signal
import socket
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nnburst.control.channel import MAX_MODELS, Disconnected
from nnburst.control.messages import (
    PROTOCOL_VERSION,
    ExecuteSynchronously,
    FreeMemory,
    GetSupportedOperations,
    Hello,
    OpenBurst,
    Ping,
    PrepareModel,
    Release,
    encode,
)
from nnburst.fmq.shared_memory import SharedMemory
from nnburst.hal import environment
from nnburst.hal.enums import ErrorStatus, OperandType, OperationType
from nnburst.hal.model import DataLocation, MemoryPool, Model
from nnburst.hal.model_builder import ModelBuilder
from nnburst.hal.types import Request, RequestArgument
from waiting import wait_for

INVALID, NONE = ErrorStatus.INVALID_ARGUMENT, ErrorStatus.NONE


def request(*pools: MemoryPool) -> Request:
    at = [RequestArgument(location=DataLocation(0, offset, 24)) for offset in (0, 64, 128)]
    return Request((at[0], at[1]), (at[2],), pools)


def prepare(client: Any, model: Model) -> int:
    return int(client.prepare(model))


def assert_alive(client: Any) -> None:
    assert client.call(Ping()).status == NONE


def test_first_call_must_be_hello(raw: Any, model: Model) -> None:
    for message in (PrepareModel(model, 1), GetSupportedOperations(model)):
        reply = raw.call(message)
        text = f"the first call is {type(message).__name__}, expected Hello"
        assert (reply.status, reply.message) == (INVALID, text)
    raw.introduce()
    assert raw.hello().message == "Hello: a second one, expected one for each connection"


@pytest.mark.parametrize(
    ("protocol", "level", "text"),
    [(0, 8, "the client 0"), (PROTOCOL_VERSION, 2, "the client speaks feature level 2")],
)
def test_client_of_another_protocol_gets_the_drivers_version(
    raw: Any, protocol: int, level: int, text: str
) -> None:
    reply = raw.hello(protocol, level)
    assert reply.status == ErrorStatus.DEVICE_UNAVAILABLE
    assert text in reply.message
    raw.introduce()


def _stream() -> int:
    return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM).detach()


@pytest.mark.parametrize("open_fd", [lambda: os.open("/dev/null", os.O_RDWR), _stream])
def test_hello_without_an_upcall_socket_is_refused(raw: Any, open_fd: Callable[[], int]) -> None:
    fd = open_fd()
    for _ in range(20):
        assert raw.call(Hello(PROTOCOL_VERSION, 8), [fd]).status == INVALID
    before = raw.count_fds()
    assert raw.call(Hello(PROTOCOL_VERSION, 8), [fd]).status == INVALID
    assert raw.call(Hello(PROTOCOL_VERSION, 8), []).status == INVALID
    wait_for(lambda: raw.count_fds() == before)
    os.close(fd)
    raw.introduce()


def test_end_of_the_connection_ends_the_process(raw: Any) -> None:
    raw.introduce()
    raw.channel.close()
    assert raw.process.wait(timeout=60) == 0


@pytest.mark.parametrize("data", [b"\xc1", b"", b"x" * 70_000, msgspec.msgpack.encode([1, 2])])
def test_malformed_packet_ends_this_connection(raw: Any, data: bytes) -> None:
    raw.introduce()
    raw.socket.send(data)
    with pytest.raises(Disconnected):
        raw.channel.receive(timeout=10)
    assert raw.process.wait(timeout=60) in (0, 1)


def test_interrupt_from_the_terminal_does_not_reach_the_driver(raw: Any) -> None:
    raw.introduce()
    os.kill(raw.process.pid, signal.SIGINT)
    assert_alive(raw)


@given(body=st.binary(max_size=64))
@settings(
    max_examples=2 * environment.EXAMPLES.read(),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_body_that_is_not_a_call_is_answered(known: Any, body: bytes) -> None:
    assert known.send(body).status == INVALID
    assert_alive(known)


@pytest.mark.parametrize("tag", ["GetMemories", "Welcome", "Reply", "hello", 7, None])
def test_message_of_another_kind_is_answered(known: Any, tag: object) -> None:
    reply = known.send(msgspec.msgpack.encode({"message": tag, "callback": 1, "slots": []}))
    assert reply.status == INVALID


@pytest.mark.parametrize("handle", [1_000_000, 2**63 - 1])
def test_unknown_handle_is_answered(known: Any, handle: int) -> None:
    memory = SharedMemory.create(4096)
    for message, fds in (
        (Release(handle), []),
        (FreeMemory(handle, 0), []),
        (ExecuteSynchronously(handle, request(MemoryPool(4096))), [memory.fd]),
        (OpenBurst(handle, 1, msgspec.Raw(b"\x80"), msgspec.Raw(b"\x80")), []),
    ):
        reply = known.call(message, fds)
        assert reply.status == INVALID
        assert f"handle {handle} is not open" in reply.message
    memory.close()


def test_handle_of_a_model_is_not_a_burst(known: Any, model: Model) -> None:
    handle = prepare(known, model)
    assert "expected a" in known.call(FreeMemory(handle, 0)).message
    assert known.call(Release(handle)).status == NONE
    assert known.call(Release(handle)).status == INVALID


def test_more_models_than_a_connection_may_hold_are_refused(raw: Any, model: Model) -> None:
    raw.introduce()
    handles = [prepare(raw, model) for _ in range(MAX_MODELS)]
    reply, notified = raw.launch(PrepareModel(model, 1))
    assert (reply.status, notified.status) == (NONE, ErrorStatus.RESOURCE_EXHAUSTED_PERSISTENT)
    assert notified.handle is None
    assert raw.call(Release(handles[0])).status == NONE
    prepare(raw, model)


def _unsealed() -> int:
    fd = os.memfd_create("x", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, 4096)
    return fd


def _short() -> int:
    memory = SharedMemory.create(100)
    fd = os.dup(memory.fd)
    memory.close()
    return fd


_POOLS = {
    "unsealed": _unsealed,
    "short": _short,
    "device": lambda: os.open("/dev/zero", os.O_RDWR),
    "directory": lambda: os.open("/", os.O_RDONLY),
    "file": lambda: os.open(__file__, os.O_RDONLY),
    "socket": _stream,
    "pipe": lambda: os.pipe()[0],
}


@pytest.mark.rule("R2")
@pytest.mark.parametrize("kind", _POOLS)
def test_pool_that_is_not_a_sealed_memfd_of_its_size_is_refused_1000_times(
    known: Any, model: Model, kind: str
) -> None:
    fd = _POOLS[kind]()
    handle = prepare(known, model)
    message = encode(ExecuteSynchronously(handle, request(MemoryPool(4096))))
    memory = SharedMemory.create(4096)
    assert known.send(message, [memory.fd]).status == NONE
    memory.close()
    refused = known.send(message, [fd])
    assert (refused.status, refused.message[:24]) == (INVALID, "validation:R2: pools[0]:")
    before = known.count_fds()
    for _ in range(1000):
        assert known.send(message, [fd]).status == INVALID
    known.wait_for_fds(before)
    assert known.call(Release(handle)).status == NONE
    os.close(fd)


@pytest.mark.parametrize("index", [1, -1, 2**62])
def test_pool_that_names_another_descriptor_is_refused(
    known: Any, model: Model, index: int
) -> None:
    memory = SharedMemory.create(4096)
    handle = prepare(known, model)
    reply = known.call(ExecuteSynchronously(handle, request(MemoryPool(4096, index))), [memory.fd])
    assert (reply.status, reply.message) == (
        INVALID,
        f"validation:R2: pools[0]: fd_index is {index}, expected 0",
    )
    memory.close()


@pytest.fixture(scope="module")
def relu(known: Any) -> int:
    """Handle of a model with one input and one output of (2, 3) floats."""
    builder = ModelBuilder()
    kind = OperandType.TENSOR_FLOAT32
    a, b = builder.input(kind, (2, 3)), builder.output(kind, (2, 3))
    builder.operation(OperationType.RELU, [a], [b])
    return prepare(known, builder.build())


_numbers = st.sampled_from([0, 1, 23, 24, 4072, 4096, 2**31, 2**32 - 1, 2**62, -1, -24])


@given(
    index=_numbers,
    offset=_numbers,
    length=_numbers,
    size=_numbers,
    dimensions=st.lists(_numbers, max_size=3).map(tuple),
)
@settings(
    max_examples=4 * environment.EXAMPLES.read(),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_request_with_any_numbers_is_executed_or_refused(
    known: Any,
    relu: int,
    index: int,
    offset: int,
    length: int,
    size: int,
    dimensions: tuple[int, ...],
) -> None:
    memory = SharedMemory.create(4096)
    argument = RequestArgument(location=DataLocation(index, offset, length), dimensions=dimensions)
    fine = RequestArgument(location=DataLocation(0, 0, 24))
    for inputs, outputs in (((argument,), (fine,)), ((fine,), (argument,))):
        message = ExecuteSynchronously(relu, Request(inputs, outputs, (MemoryPool(size),)))
        reply = known.call(message, [memory.fd])
        valid = (
            index == 0
            and length == 24
            and 0 < size <= 4096
            and 0 <= offset <= size - 24
            and size >= 24
            and dimensions in ((), (2, 3))
        )
        assert reply.status == (NONE if valid else INVALID), reply.message
    memory.close()


def test_passed_deadline_is_missed_for_good(known: Any, model: Model) -> None:
    memory = SharedMemory.create(4096)
    message = ExecuteSynchronously(prepare(known, model), request(MemoryPool(4096)), deadline_ns=1)
    reply = known.call(message, [memory.fd])
    assert reply.status == ErrorStatus.MISSED_DEADLINE_PERSISTENT
    assert reply.output_shapes == ()
    memory.close()


def test_invalid_model_is_answered_with_its_rule(known: Any, model: Model) -> None:
    main = msgspec.structs.replace(model.main, output_indexes=(99,))
    reply, notified = known.launch(PrepareModel(msgspec.structs.replace(model, main=main), 1))
    assert (reply.status, reply.message) == (notified.status, notified.reason)
    assert reply.status == INVALID
    assert re.match(r"validation:[MOP]", reply.message)


def test_burst_with_invalid_descriptors_is_refused(known: Any, model: Model) -> None:
    handle = prepare(known, model)
    memory = SharedMemory.create(65536)
    before = known.count_fds()
    for raw in (b"\x80", b"\xc0", msgspec.msgpack.encode({"grantors": []})):
        message = OpenBurst(handle, 1, msgspec.Raw(raw), msgspec.Raw(raw))
        for count in (0, 1, 2, 3):
            assert known.call(message, [memory.fd] * count).status == INVALID
    wait_for(lambda: known.count_fds() == before)
    memory.close()
    assert known.call(Release(handle)).status == NONE
