"""Serves one client: the main thread only receives and dispatches, calls run on threads.

When the client is gone the process ends at once, without cleaning up: the kernel frees everything
within milliseconds, whatever a thread is doing.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import singledispatchmethod
from typing import Final, NoReturn

from nnburst.control.channel import Channel, Fds, ProtocolError
from nnburst.control.connection import Connection
from nnburst.control.limits import HELLO_TIMEOUT, UPCALL_TIMEOUT
from nnburst.control.messages import (
    PROTOCOL_VERSION,
    BurstClosed,
    ConfigureExecutionBurst,
    ExecuteSynchronously,
    FreeMemory,
    GetMemories,
    GetSupportedOperations,
    Hello,
    Memories,
    Message,
    Opened,
    Ping,
    PrepareModel,
    Release,
    SupportedOperations,
    Welcome,
    decode_call,
)
from nnburst.control.objects import ObjectTable, Reference
from nnburst.control.service import Answer, Job, Service, nothing
from nnburst.driver.burst import BurstClient, BurstContext, open_burst
from nnburst.driver.device import Device
from nnburst.driver.executors import find_executor
from nnburst.driver.liveness import Liveness
from nnburst.driver.pools import adopt_pools, close_pools
from nnburst.driver.prepared_model import PreparedModel
from nnburst.driver.quotas import limit_this_process
from nnburst.fmq.shared_memory import SharedMemory
from nnburst.hal.enums import FeatureLevel
from nnburst.hal.errors import DeviceUnavailable, GeneralFailure, InvalidArgument
from nnburst.hal.validation.values import validate_execution_preference, validate_priority

logger = logging.getLogger(__name__)

#: Calls that run side by side; the rest wait for one of them.
_THREADS: Final = 16


def serve_client(connected: socket.socket, executor: str, name: str) -> NoReturn:
    """Serve the client behind `connected`, then end the process.

    Args:
        connected: SEQPACKET socket; nothing has been received from it.
        executor: name of the executor.
        name: the device's name.
    """
    limit_this_process()
    channel = Channel(connected)
    worker = Worker(executor, name)
    status = 0
    try:
        Service[Message](channel, decode_call, worker.handle, worker.submit).serve(HELLO_TIMEOUT)
    except (ProtocolError, TimeoutError) as error:
        logger.warning("connection ended: %s", error)
        status = 1
    except BaseException:
        logger.exception("connection ended")
        status = 70
    finally:
        os._exit(status)


class Worker:
    """The calls of one client."""

    def __init__(self, executor: str, name: str) -> None:
        """Serve `executor` as device `name`; nothing is started before the client's `Hello`."""
        self._executor = executor
        self._name = name
        self._device: Device | None = None
        self._upcalls: Connection | None = None
        self._liveness = Liveness()
        self._objects = ObjectTable()
        self._threads = ThreadPoolExecutor(_THREADS, "nnburst call")

    def submit(self, call: Message, job: Job) -> None:
        """Run `job`: on a thread, unless it answers at once or comes first."""
        if isinstance(call, Hello | Ping):
            job()
        else:
            self._threads.submit(job)

    @property
    def device(self) -> Device:
        """The device, once the client has introduced itself."""
        if self._device is None:
            raise InvalidArgument("the first call must be Hello")
        return self._device

    @singledispatchmethod
    def handle(self, call: Message, _fds: Fds) -> Answer:
        """Answer a call; raises what the client shall be told."""
        raise InvalidArgument(f"{type(call).__name__} is not answered here")

    @handle.register
    def _hello(self, call: Hello, fds: Fds) -> Answer:
        if self._device is not None:
            raise InvalidArgument("Hello comes once")
        if call.protocol != PROTOCOL_VERSION:
            raise DeviceUnavailable(
                f"the driver speaks protocol {PROTOCOL_VERSION}, the client {call.protocol}"
            )
        if call.feature_level < FeatureLevel.V1_2:
            raise DeviceUnavailable(
                f"the client speaks feature level {call.feature_level},"
                f" bursts came with {int(FeatureLevel.V1_2)}"
            )
        device = Device(self._name, find_executor(self._executor)())
        self._upcalls = Connection(Channel(_upcall_socket(fds)), "the client")
        self._device = device
        return Welcome(
            protocol=PROTOCOL_VERSION,
            feature_level=device.feature_level,
            name=device.name,
            version_string=device.version_string,
            type=device.type,
            pid=os.getpid(),
            death_word=self._liveness.has_death_word,
        ), self._liveness.fds()

    @handle.register
    def _ping(self, _call: Ping, _fds: Fds) -> Answer:
        return nothing()

    @handle.register
    def _supported(self, call: GetSupportedOperations, fds: Fds) -> Answer:
        pools = adopt_pools(call.model.pools, fds, "M4")
        try:
            supported = self.device.supported_operations(call.model, pools)
        finally:
            close_pools(pools)
        return SupportedOperations(tuple(supported)), Fds()

    @handle.register
    def _prepare(self, call: PrepareModel, fds: Fds) -> Answer:
        preference = validate_execution_preference(call.preference)
        priority = validate_priority(call.priority)
        pools = adopt_pools(call.model.pools, fds, "M4")
        try:
            prepared = self.device.prepare(call.model, pools, preference, priority)
        finally:
            close_pools(pools)
        return Opened(self._objects.add(prepared)), Fds()

    @handle.register
    def _release(self, call: Release, _fds: Fds) -> Answer:
        self._objects.release(call.handle)
        return nothing()

    @handle.register
    def _execute(self, call: ExecuteSynchronously, fds: Fds) -> Answer:
        pools = adopt_pools(call.request.pools, fds, "R2")
        try:
            with self._objects.acquire(call.handle, PreparedModel) as model:
                executed = model.target.execute_synchronously(
                    call.request,
                    pools,
                    measure=call.measure,
                    deadline_ns=call.deadline_ns,
                    loop_timeout_ns=call.loop_timeout_ns,
                )
        finally:
            close_pools(pools)
        return executed, Fds()

    @handle.register
    def _configure_burst(self, call: ConfigureExecutionBurst, fds: Fds) -> Answer:
        model = self._objects.acquire(call.handle, PreparedModel)
        try:
            client = BurstClient(self._memories_of(call.callback), self._closed_to(call.callback))
            context = open_burst(model.target, call, fds, client)
        except BaseException:
            model.drop()
            raise
        handle = self._objects.add(_OpenBurst(context, model))
        return Opened(handle, context.reply), Fds()

    @handle.register
    def _free_memory(self, call: FreeMemory, _fds: Fds) -> Answer:
        with self._objects.acquire(call.handle, _OpenBurst) as burst:
            burst.target.context.free_memory(call.slot)
        return nothing()

    def _closed_to(self, callback: int) -> Callable[[str], None]:
        def closed(reason: str) -> None:
            if self._upcalls is not None:
                self._upcalls.post(BurstClosed(callback, reason))

        return closed

    def _memories_of(self, callback: int) -> Callable[[Sequence[int]], list[SharedMemory]]:
        def get_memories(slots: Sequence[int]) -> list[SharedMemory]:
            if self._upcalls is None:
                raise GeneralFailure("there is no upcall socket")
            message = GetMemories(callback, tuple(slots))
            found, fds = self._upcalls.call(message, Memories, timeout=UPCALL_TIMEOUT)
            with fds:
                return _adopt(found, fds, len(slots))

        return get_memories


class _OpenBurst:
    """A burst and its hold on the prepared model, which may be released before it."""

    def __init__(self, context: BurstContext, model: Reference[PreparedModel]) -> None:
        self.context = context
        self._model = model

    def close(self) -> None:
        try:
            self.context.close()
        finally:
            self._model.drop()


def _upcall_socket(fds: Fds) -> socket.socket:
    try:
        upcalls = socket.socket(fileno=fds[0])
    except OSError as error:
        raise InvalidArgument(f"Hello: fd 0 is not a socket: {error}") from error
    fds.take(0)
    kind = upcalls.family, upcalls.type
    if kind != (socket.AF_UNIX, socket.SOCK_SEQPACKET):
        upcalls.close()
        raise InvalidArgument("Hello: fd 0 must be an AF_UNIX SEQPACKET socket")
    return upcalls


def _adopt(found: Memories, fds: Fds, wanted: int) -> list[SharedMemory]:
    """The pools that the client answered with (burst:6.2: a wrong count is GENERAL_FAILURE)."""
    if len(found.sizes) != wanted:
        raise GeneralFailure(f"getMemories gave {len(found.sizes)} pools for {wanted} slots")
    memories: list[SharedMemory] = []
    try:
        for index, size in enumerate(found.sizes):
            memories.append(SharedMemory.adopt(fds.take(index), size))
    except BaseException:
        for memory in memories:
            memory.close()
        raise
    return memories
