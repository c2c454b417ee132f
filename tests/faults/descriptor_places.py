"""Lists every place of the protocol in which a client sends a descriptor, each as a function.

A place takes a client and returns a function that sends one descriptor there and returns the status of the
answer; a notification has the same status.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

import msgspec
import numpy as np

from driver.conftest import RawClient, add_model
from nnburst._native import lib
from nnburst.control.messages import (
    PROTOCOL_VERSION,
    Allocate,
    Allocated,
    BurstExecute,
    CopyFrom,
    CopyTo,
    CreateReusableExecution,
    Execute,
    ExecuteFenced,
    ExecuteReusableFenced,
    ExecuteSynchronously,
    Fenced,
    GetMemories,
    GetSupportedOperations,
    Hello,
    Memories,
    Message,
    OpenAidlBurst,
    OpenBurst,
    Opened,
    PrepareGraph,
    PrepareModel,
    PrepareModelFromCache,
    Release,
    ReleaseMemoryResource,
    Reply,
    decode_upcall,
    encode,
)
from nnburst.fmq.event_flag import EventFlagBits
from nnburst.fmq.message_queue import MessageQueue
from nnburst.fmq.shared_memory import SharedMemory, layout
from nnburst.hal.enums import ErrorStatus, MeasureTiming, OperandType, OperationType
from nnburst.hal.model import DataLocation, MemoryPool, Model
from nnburst.hal.model_builder import ModelBuilder
from nnburst.hal.types import BufferDesc, BufferRole, Request, RequestArgument
from nnburst.serialize import (
    DATUM_BYTES,
    REQUEST_DATUM,
    RESULT_DATUM,
    deserialize_result,
    serialize_request,
)

#: Elements of a burst's queues.
_CAPACITY: Final = 509
#: Bytes that every place is promised: exactly those of a queue, and more than a page.
SIZE: Final = layout(DATUM_BYTES, _CAPACITY).size_bytes()
#: What a channel's event flag is waited for, in seconds.
_PATIENCE: Final = 30.0

Send = Callable[[int], ErrorStatus]
Place = Callable[[RawClient], Send]

#: Where sealed memory of SIZE bytes is expected.
MEMORY_PLACES: Final[list[Place]] = []
#: Messages that a place below hands its descriptor over with.
COVERED: Final[set[type[Message]]] = set()


def descriptor_beside(kind: type[Message]) -> Callable[[Place], Place]:
    """Mark the decorated place as one for descriptors of messages of this kind."""
    COVERED.add(kind)
    return lambda place: place


def memory_beside(kind: type[Message]) -> Callable[[Place], Place]:
    """Mark a place for sealed memory, in which every kind of bad memory is tried."""

    def register(place: Place) -> Place:
        MEMORY_PLACES.append(place)
        return descriptor_beside(kind)(place)

    return register


def _with_pool(model: Model) -> Model:
    return msgspec.structs.replace(model, pools=(MemoryPool(SIZE),))


@memory_beside(PrepareModel)
def model_pool(client: RawClient) -> Send:
    """Constants of a model to be prepared."""
    message = PrepareModel(_with_pool(add_model()), 7)

    def send(fd: int) -> ErrorStatus:
        reply, notified = client.launch(message, [fd])
        assert reply.status == notified.status
        if notified.handle is not None:
            client.call(Release(notified.handle))
        return reply.status

    return send


@memory_beside(GetSupportedOperations)
def model_pool_of_an_inquiry(client: RawClient) -> Send:
    """Constants of a model in a query for supported operations."""
    message = GetSupportedOperations(_with_pool(add_model()))
    return lambda fd: client.call(message, [fd]).status


@descriptor_beside(PrepareGraph)
def graph_file(client: RawClient) -> Send:
    """A network file, of any size."""
    return lambda fd: client.call(PrepareGraph(), [fd]).status


def request(*pools: MemoryPool) -> Request:
    """A request for a sum of the first elements of the first pool."""
    at = [RequestArgument(location=DataLocation(0, offset, 24)) for offset in (0, 64, 128)]
    return Request((at[0], at[1]), (at[2],), pools)


@memory_beside(ExecuteSynchronously)
def request_pool(client: RawClient) -> Send:
    """Arguments of a synchronous execution."""
    message = ExecuteSynchronously(client.prepare(add_model()), request(MemoryPool(SIZE)))
    return lambda fd: client.call(message, [fd]).status


@memory_beside(ExecuteSynchronously)
def second_request_pool(client: RawClient) -> Send:
    """Arguments of a synchronous execution beside valid memory, which must be released again."""
    pools = MemoryPool(4096), MemoryPool(SIZE, 1)
    message = ExecuteSynchronously(client.prepare(add_model()), request(*pools))
    good = SharedMemory.create(4096)
    return lambda fd: client.call(message, [good.fd, fd]).status


@memory_beside(Execute)
def request_pool_of_a_launch(client: RawClient) -> Send:
    """Arguments of an asynchronous execution."""
    message = Execute(client.prepare(add_model()), request(MemoryPool(SIZE)), callback=9)

    def send(fd: int) -> ErrorStatus:
        reply, notified = client.launch(message, [fd])
        assert reply.status == notified.status
        return reply.status

    return send


def _released(client: RawClient, reply: Reply) -> ErrorStatus:
    """The status of an answer; the object that it opened is released at once."""
    if isinstance(reply.result, Opened | Fenced):
        assert client.call(Release(reply.result.handle)).status == ErrorStatus.NONE
    return reply.status


@memory_beside(ExecuteFenced)
def pool_of_a_fenced_execution(client: RawClient) -> Send:
    """Arguments of an execution that may wait for fences."""
    message = ExecuteFenced(client.prepare(add_model()), request(MemoryPool(SIZE)))
    return lambda fd: _released(client, client.call(message, [fd]))


@memory_beside(CreateReusableExecution)
def pool_of_a_reusable_execution(client: RawClient) -> Send:
    """Arguments of a request that is bound once."""
    message = CreateReusableExecution(client.prepare(add_model()), request(MemoryPool(SIZE)))
    return lambda fd: _released(client, client.call(message, [fd]))


@memory_beside(BurstExecute)
def pool_of_a_burst_over_the_socket(client: RawClient) -> Send:
    """Arguments of a request whose pool an AIDL burst would keep."""
    opened = client.call(OpenAidlBurst(client.prepare(add_model())))
    assert isinstance(opened.result, Opened), opened
    handle = opened.result.handle
    message = BurstExecute(handle, request(MemoryPool(SIZE)), memory_identifiers=(6,))

    def send(fd: int) -> ErrorStatus:
        status = client.call(message, [fd]).status
        assert client.call(ReleaseMemoryResource(handle, 6)).status == ErrorStatus.NONE
        return status

    return send


@descriptor_beside(ExecuteFenced)
def fence(client: RawClient) -> Send:
    """A sync fence that an execution waits for."""
    message = ExecuteFenced(client.prepare(add_model()), request(MemoryPool(SIZE)), wait_for=1)
    good = SharedMemory.create(SIZE)
    return lambda fd: _released(client, client.call(message, [good.fd, fd]))


@descriptor_beside(ExecuteReusableFenced)
def fence_of_a_reusable_execution(client: RawClient) -> Send:
    """A sync fence that a run of a bound request waits for."""
    with SharedMemory.create(SIZE) as good:
        create = CreateReusableExecution(client.prepare(add_model()), request(MemoryPool(SIZE)))
        opened = client.call(create, [good.fd])
    assert isinstance(opened.result, Opened), opened
    message = ExecuteReusableFenced(opened.result.handle, wait_for=1)
    return lambda fd: _released(client, client.call(message, [fd]))


class _Channels:
    """Two queues in memory of SIZE bytes each, and the call that opens a burst on them."""

    def __init__(self, client: RawClient) -> None:
        self.requests = MessageQueue.create(REQUEST_DATUM, _CAPACITY, ends=False)
        self.results = MessageQueue.create(RESULT_DATUM, _CAPACITY, ends=False)
        self.message = OpenBurst(
            handle=client.prepare(add_model()),
            callback=3,
            request_channel=msgspec.Raw(msgspec.msgpack.encode(self.requests.descriptor)),
            result_channel=msgspec.Raw(msgspec.msgpack.encode(self.results.descriptor)),
        )

    @property
    def fds(self) -> list[int]:
        return [self.requests.memories[0].fd, self.results.memories[0].fd]


def _ring(client: RawClient, at: int) -> Send:
    channels = _Channels(client)

    def send(fd: int) -> ErrorStatus:
        with ExitStack() as used:
            fds = [used.enter_context(SharedMemory.create(SIZE)).fd for _ in range(2)]
            fds[at] = fd
            return _released(client, client.call(channels.message, fds))

    return send


@memory_beside(OpenBurst)
def request_ring(client: RawClient) -> Send:
    """The queue of a burst's requests."""
    return _ring(client, 0)


@memory_beside(OpenBurst)
def result_ring(client: RawClient) -> Send:
    """The queue of a burst's results."""
    return _ring(client, 1)


@descriptor_beside(OpenBurst)
def both_rings(client: RawClient) -> Send:
    """Both queues of a burst in one memory, if the driver would read its own results."""
    channels = _Channels(client)
    return lambda fd: _released(client, client.call(channels.message, [fd, fd]))


@descriptor_beside(OpenBurst)
def wakeup_socket(client: RawClient) -> Send:
    """The socket on which a burst's client awaits results in an event loop."""
    channels = _Channels(client)

    def send(fd: int) -> ErrorStatus:
        with ExitStack() as used:
            fds = [used.enter_context(SharedMemory.create(SIZE)).fd for _ in range(2)]
            return _released(client, client.call(channels.message, [*fds, fd]))

    return send


@memory_beside(Memories)
def slot(client: RawClient) -> Send:
    """The answer to getMemories: arguments of a burst's request."""
    channels = _Channels(client)
    assert client.call(channels.message, channels.fds).status == ErrorStatus.NONE
    packet = serialize_request(request(), [5], MeasureTiming.NO)

    def send(fd: int) -> ErrorStatus:
        assert channels.requests.write(packet)
        flags = channels.requests.event_flag, channels.results.event_flag
        assert flags[0] is not None
        assert flags[1] is not None
        lib.nnb_event_flag_notify(flags[0].word, int(EventFlagBits.NOT_EMPTY))
        asked = client.upcall_channel.receive(_PATIENCE)
        assert isinstance(decode_upcall(asked.body), GetMemories)
        client.upcall_channel.send(asked.id, encode(Reply(result=Memories((SIZE,)))), [fd])
        while not channels.results.available_to_read():
            assert flags[1].wait(EventFlagBits.NOT_EMPTY, _PATIENCE)
        answer = channels.results.read(channels.results.available_to_read())
        assert answer is not None
        return deserialize_result(np.asarray(answer).tobytes())[0]

    return send


def _buffer(client: RawClient) -> int:
    """A buffer of SIZE bytes that holds zeros."""
    builder = ModelBuilder()
    kind = OperandType.TENSOR_FLOAT32
    a, b = builder.input(kind, (SIZE // 4,)), builder.output(kind, (SIZE // 4,))
    builder.operation(OperationType.RELU, [a], [b])
    model = client.prepare(builder.build())
    reply = client.call(Allocate(BufferDesc(), (model,), (BufferRole(0, 0),)))
    assert isinstance(reply.result, Allocated), reply
    with SharedMemory.create(SIZE) as memory:
        copied = client.call(CopyFrom(reply.result.handle, SIZE), [memory.fd])
    assert copied.status == ErrorStatus.NONE, copied
    return reply.result.handle


@memory_beside(CopyFrom)
def copy_from(client: RawClient) -> Send:
    """The source of a buffer's content."""
    message = CopyFrom(_buffer(client), SIZE)
    return lambda fd: client.call(message, [fd]).status


@memory_beside(CopyTo)
def copy_to(client: RawClient) -> Send:
    """The destination of a buffer's content."""
    message = CopyTo(_buffer(client), SIZE)
    return lambda fd: client.call(message, [fd]).status


@descriptor_beside(Hello)
def upcall_socket(client: RawClient) -> Send:
    """The driver's end of the upcall socket, sent a second time."""
    message = Hello(PROTOCOL_VERSION, 8)
    return lambda fd: client.call(message, [fd]).status


@descriptor_beside(PrepareModelFromCache)
def cache_file(client: RawClient) -> Send:
    """A file with a compilation."""
    message = PrepareModelFromCache(8, 1, 0, b"\x01" * 32)

    def send(fd: int) -> ErrorStatus:
        reply, notified = client.launch(message, [fd])
        assert notified.status != ErrorStatus.NONE
        return reply.status

    return send


def sealed(size: int = SIZE) -> int:
    """A descriptor that every memory place accepts."""
    with SharedMemory.create(size) as memory:
        return os.dup(memory.fd)
