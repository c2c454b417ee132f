"""Serves one burst on its own thread, and recognises requests that were bound before.

    request ring ─► C loop ─ known packet, native ──────────────► result ring
                      │ MISS: decode, resolve slots, validate, bind, run ─► reply
                      │ CALL: run the bound execution ─► reply
                      └ ATTENTION: freeMemory or close

The thread spends most of its time inside the C loop. The loop compares packets with the private copies that
`BindingTable` owns and runs native executions by itself.

NNAPI: ExecutionBurstServer.cpp. DEVIATES: it is woken by a bit of the event flag, never by a packet that
it writes into its own inbound queue; a client that does not read its results ends its burst.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from nnburst._native import ffi, lib
from nnburst.control.channel import UPCALL_TIMEOUT, Fds
from nnburst.control.connection import Connection
from nnburst.control.messages import GetMemories, Memories, OpenBurst
from nnburst.driver.confinement import IDLE_NS, SHARED_BYTES
from nnburst.driver.model.execution import run_in_time
from nnburst.driver.model.pools import Pool
from nnburst.driver.model.prepared_model import PreparedModel
from nnburst.driver.scheduler import be_nice
from nnburst.executor.base import MEASURED, Execution
from nnburst.fmq.cores import may_spin
from nnburst.fmq.message_queue import MessageQueue
from nnburst.fmq.shared_memory import Flavor, SharedMemory, close_received, decode_descriptor
from nnburst.hal.enums import ErrorStatus, ExecutionPreference, Priority
from nnburst.hal.environment import POLLING_WINDOW
from nnburst.hal.errors import (
    DeadObject,
    GeneralFailure,
    InvalidArgument,
    MalformedPacket,
    NnburstError,
    ResourceExhausted,
)
from nnburst.hal.limits import MAX_BURST_CHANNEL_LENGTH
from nnburst.hal.types import OutputShape
from nnburst.hal.utils import DaemonThread
from nnburst.serialize import DATUM_BYTES, deserialize_request, serialize_result_bytes
from nnburst.tracing.slices import Layer, Phase, flow_base, trace

if TYPE_CHECKING:
    from nnburst._native import nnb_server


# -- Bound requests, found by the bytes of their packets -------------------------------------------


CAPACITY: Final = int(lib.NNB_MAX_BINDINGS)


class BurstReply(msgspec.Struct):
    """A result packet to send.

    Attributes:
        packet: its bytes, a cffi buffer; valid as long as this object.
        count: number of elements.
        device_ns: duration in the executor, as in an `Outcome`.
        driver_ns: duration in the driver; MEASURED stands for the time since the request was read.
    """

    packet: Any
    count: int
    device_ns: int = 0
    driver_ns: int = MEASURED


def reply_with(
    status: ErrorStatus,
    shapes: tuple[OutputShape, ...] = (),
    device_ns: int = 0,
    driver_ns: int = MEASURED,
) -> BurstReply:
    """Make the reply for an outcome; its timing is filled in when it is sent."""
    packet = serialize_result_bytes(status, shapes)
    count = len(packet) // DATUM_BYTES
    return BurstReply(ffi.from_buffer("uint8_t[]", packet), count, device_ns, driver_ns)


def success_of(execution: Execution, *, shapes_vary: bool) -> BurstReply | None:
    """The reply for every success of an execution; None if the replies differ.

    Args:
        execution: the bound execution.
        shapes_vary: whether the model leaves an output's shape open, so that results must report shapes.
    """
    if not shapes_vary and not _finds_shapes(execution):
        return reply_with(ErrorStatus.NONE)
    native = execution.native
    if native is None or native.output_shapes is None:
        return None
    return reply_with(ErrorStatus.NONE, native.output_shapes)


def _finds_shapes(execution: Execution) -> bool:
    """Whether runs of an execution find out shapes that the model declares; see `Execution`."""
    return getattr(execution, "finds_shapes", False)


class RequestBinding(msgspec.Struct):
    """One bound request.

    Attributes:
        execution: executes the request.
        slots: the slots of the memory that it uses.
        success: the reply for every success; None if shapes are known only after each run.
    """

    execution: Execution
    slots: frozenset[int]
    success: BurstReply | None

    def run(self) -> BurstReply:
        """Execute once."""
        began = time.perf_counter_ns()
        with trace(Layer.DRIVER, Phase.EXECUTION, "burst: run"):
            outcome = run_in_time(self.execution, with_shapes=self.success is None)
        device_ns = outcome.device_ns
        if device_ns == MEASURED:
            device_ns = time.perf_counter_ns() - began
        is_usual = self.success is not None and not _finds_shapes(self.execution)
        if outcome.status == ErrorStatus.NONE and is_usual and self.success is not None:
            self.success.device_ns, self.success.driver_ns = device_ns, outcome.driver_ns
            return self.success
        return reply_with(outcome.status, outcome.output_shapes, device_ns, outcome.driver_ns)


class BindingTable:
    """The bindings of one burst. Used by the burst's thread only."""

    def __init__(self, server: nnb_server) -> None:
        """Manage the table in the struct `server`."""
        self._server = server
        self._bindings: dict[int, RequestBinding] = {}
        self._requests: dict[int, Any] = {}  # the C side compares with these copies
        self._hand = 0

    def __len__(self) -> int:
        return len(self._bindings)

    def __getitem__(self, index: int) -> RequestBinding:
        return self._bindings[index]

    def add(self, packet: bytes, binding: RequestBinding) -> None:
        """Add a binding under its packet; if the table is full, the oldest binding is dropped."""
        index = self._hand
        self._hand = (self._hand + 1) % CAPACITY
        self._remove(index)
        request = ffi.new("uint8_t[]", packet)
        native = binding.execution.native
        entry = ffi.new(
            "struct nnb_binding *",
            {
                "request": request,
                "request_count": len(packet) // int(lib.NNB_DATUM_BYTES),
            },
        )
        if native is not None and (binding.success is not None or native.reports_shapes):
            if binding.success is not None:
                entry.result, entry.result_count = binding.success.packet, binding.success.count
            entry.run = ffi.cast("nnb_run", native.run)
            entry.execution = ffi.cast("nnbx_execution *", native.execution)
        self._bindings[index] = binding
        self._requests[index] = request
        lib.nnb_server_bind(self._server, index, entry)

    def release(self, slot: int) -> None:
        """Drop every binding that used `slot`."""
        for index in [i for i, b in self._bindings.items() if slot in b.slots]:
            self._remove(index)

    def clear(self) -> None:
        """Drop all bindings, and with them the memory that their executions hold."""
        for index in list(self._bindings):
            self._remove(index)

    def _remove(self, index: int) -> None:
        binding = self._bindings.pop(index, None)
        if binding is None:
            return
        lib.nnb_server_bind(self._server, index, ffi.new("struct nnb_binding *"))
        del self._requests[index]
        binding.execution.close()


# -- Channels from a client ------------------------------------------------------------------------


class BurstChannels(NamedTuple):
    """The channels of a burst.

    Attributes:
        requests: the queue from the client.
        results: the queue to the client.
        wakeup_socket: receives a byte for each result that a client's event loop awaits; None without one.
    """

    requests: MessageQueue
    results: MessageQueue
    wakeup_socket: socket.socket | None = None

    def close(self) -> None:
        """Close all channels."""
        self.requests.close()
        self.results.close()
        if self.wakeup_socket is not None:
            self.wakeup_socket.close()


def adopt_channels(call: OpenBurst, fds: Fds) -> BurstChannels:
    """Map the channels that a client sent for a burst; the caller owns them from here on.

    Args:
        call: descriptors of the two channels.
        fds: one region for each channel, and a socket for wakeups if the client uses event loops.

    Raises:
        InvalidArgument: a descriptor does not describe a fresh synchronized queue of datums with an event
            flag in its region, or the third one is not a socket for wakeups.
        ResourceExhausted: the client has as much memory as it may have.
    """
    if len(fds) not in (2, 3):
        raise InvalidArgument(
            f"{len(fds)} fds, expected one for each of the two channels, and a socket or none"
        )
    wakeup_socket = _adopt_wakeup_socket(fds.take(2)) if len(fds) == 3 else None
    try:
        return BurstChannels(*_open_both(call, fds), wakeup_socket)
    except BaseException:
        if wakeup_socket is not None:
            wakeup_socket.close()
        raise


def _open_both(call: OpenBurst, fds: Fds) -> tuple[MessageQueue, MessageQueue]:
    if os.path.sameopenfile(fds[0], fds[1]):  # it would take its own results for requests
        raise InvalidArgument("result_channel: lies in the memory of request_channel")
    requests = _open_channel("request_channel", call.request_channel, fds.take(0))
    try:
        results = _open_channel("result_channel", call.result_channel, fds.take(1))
    except BaseException:
        requests.close()
        raise
    return requests, results


def _adopt_wakeup_socket(fd: int) -> socket.socket:
    """Check and own the client's socket for wakeups; bytes are only sent to it, and never block."""
    try:
        wakeup_socket = socket.socket(fileno=fd)
    except OSError as error:
        os.close(fd)
        raise InvalidArgument(f"wakeup_socket: expected a socket: {error}") from error
    if (wakeup_socket.family, wakeup_socket.type) != (socket.AF_UNIX, socket.SOCK_STREAM):
        close_received(wakeup_socket.detach())
        raise InvalidArgument("wakeup_socket: expected an AF_UNIX STREAM socket")
    if _keeps_something(wakeup_socket):
        wakeup_socket.close()
        raise InvalidArgument("wakeup_socket: expected an empty socket, bytes are in it")
    return wakeup_socket


def _keeps_something(wakeup_socket: socket.socket) -> bool:
    """Shut the socket down for reading; returns whether its queue, which is never read, has bytes already."""
    try:
        wakeup_socket.shutdown(socket.SHUT_RD)
        return bool(wakeup_socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except OSError:
        return False  # it was never connected: it cannot be sent to


def _open_channel(name: str, encoded: msgspec.Raw, fd: int) -> MessageQueue:
    try:
        memory = SharedMemory.adopt(fd)
    except InvalidArgument as error:
        raise InvalidArgument(f"{name}: {error}") from error
    try:
        charge = SHARED_BYTES.charge(memory.size)
        descriptor = decode_descriptor(encoded)
        queue_ = MessageQueue.open(descriptor, [memory], DATUM_BYTES, fresh=True)
        weakref.finalize(queue_, charge.close)
    except ResourceExhausted:
        memory.close()
        raise
    except (msgspec.MsgspecError, NnburstError) as error:
        memory.close()
        raise InvalidArgument(f"{name}: {error}") from error
    if (
        queue_.event_flag is None
        or descriptor.flags != Flavor.SYNCHRONIZED_READ_WRITE
        or not 2 <= queue_.capacity <= MAX_BURST_CHANNEL_LENGTH
    ):
        queue_.close()
        raise InvalidArgument(
            f"{name}: expected a synchronized queue with an event flag and 2 to"
            f" {MAX_BURST_CHANNEL_LENGTH} elements"
        )
    return queue_


# -- The burst -------------------------------------------------------------------------------------


logger = logging.getLogger(__name__)

#: Microseconds that the driver spins for the next request as long as no rhythm is known.
_POLLING_WINDOW: Final = POLLING_WINDOW.read()
#: Longest wait of a result for room in the queue before the burst ends. The promise is 2 s (docs/promises.md,
#: P11); the difference is for waking up on a busy machine and for notifying the client.
_STUCK_NS: Final = 1_500_000_000
#: Most file descriptors that one reply can carry.
_SLOTS_PER_CALL: Final = 64
#: Longest wait of freeMemory and close for the execution under way.
_COMMAND_TIMEOUT: Final = 30.0

_ENDINGS: Final = {
    int(lib.NNB_SERVER_CORRUPT): "the counters of its queues are impossible",
    int(lib.NNB_SERVER_STUCK): "its client does not read results",
    int(lib.NNB_SERVER_LOST): "a packet boundary was lost",
}

#: The getMemories upcall: returns one region for each slot, in order; takes a timeout in seconds.
MemoriesOfSlots = Callable[[Sequence[int], float], list[SharedMemory]]


class BurstClient(NamedTuple):
    """The upcalls from a burst to its client (NNAPI: IBurstCallback).

    Attributes:
        get_memories: the upcall that resolves slots.
        closed: notifies the client, without waiting, that the driver has ended the burst.
        released: called once when the burst's thread no longer uses any object, its model included; not if
            the burst could not be opened.
    """

    get_memories: MemoriesOfSlots
    closed: Callable[[str], None]
    released: Callable[[], None]


def start_burst(
    prepared: PreparedModel, call: OpenBurst, fds: Fds, client: BurstClient
) -> BurstContext:
    """Open a burst on `prepared` (NNAPI: configureExecutionBurst).

    Args:
        prepared: must outlive the burst.
        call: descriptors of the two channels, and the client's options; hostile until checked here.
        fds: see `adopt_channels`.
        client: its callbacks.

    Raises:
        InvalidArgument: see `adopt_channels`.
        ResourceExhausted: the client has as much memory as it may have, or no thread can be started.
    """
    channels = adopt_channels(call, fds)
    try:
        return BurstContext(prepared, call, channels, client)
    except BaseException:
        channels.close()
        raise


class SlotCache:
    """Maps slots to mapped pools, until they are freed. Used by the burst's thread only."""

    def __init__(self, get_memories: MemoriesOfSlots) -> None:
        self._get_memories = get_memories
        self._pools: dict[int, Pool] = {}

    def resolve(self, slots: Sequence[int]) -> list[Pool]:
        """Return the pools of `slots`; one upcall asks the client for all unknown ones.

        The upcall names each unknown slot once, sorted; it is left out if all are known.
        DEVIATES: of more than 64 unknown slots, each upcall asks for 64, the most descriptors that a message
        carries. One deadline holds for all of them.

        Raises:
            NnburstError: the client does not have a slot, or it sent no usable memory.
        """
        unknown = iter(sorted({slot for slot in slots if slot not in self._pools}))
        deadline = time.monotonic() + UPCALL_TIMEOUT
        while batch := list(islice(unknown, _SLOTS_PER_CALL)):
            memories = self._get_memories(batch, max(deadline - time.monotonic(), 0))
            for slot, memory in zip(batch, memories, strict=True):
                self._pools[slot] = Pool(memory)
        return [self._pools[slot] for slot in slots]

    def release(self, slot: int) -> None:
        """Forget a slot; unknown ones are ignored (NNAPI: freeMemory)."""
        pool = self._pools.pop(slot, None)
        if pool is not None:
            pool.close()

    def close(self) -> None:
        """Forget all."""
        for slot in list(self._pools):
            self.release(slot)


class _Command(NamedTuple):
    """A function for the burst's thread, and the event that is set when the thread has run it."""

    run: Callable[[], bool]
    done: threading.Event


class BurstContext:
    """Serves one burst on its own thread (IBurstContext); other threads may call `free_memory` and `close`.

    Attributes:
        reply: the answer to the client, with whether the two sides may spin.
    """

    def __init__(
        self,
        prepared: PreparedModel,
        call: OpenBurst,
        channels: BurstChannels,
        client: BurstClient,
    ) -> None:
        """Start the thread; if that succeeds, own the channels."""
        requests, results, wakeup_socket = channels
        spin = may_spin(call.cpus) if call.cpus else False
        self.reply = {"may_spin": int(spin)}
        self._prepared = prepared
        self._channels = channels
        self._slots = SlotCache(client.get_memories)
        self._client = client
        self._packet = ffi.new("uint8_t[]", requests.capacity * DATUM_BYTES)
        self._waiting = ffi.new("uint8_t[]", results.capacity * DATUM_BYTES)
        low_power = call.preference == ExecutionPreference.LOW_POWER
        self._server = _new_server(requests, results, call.max_in_flight)
        self._server.packet = self._packet
        self._server.waiting = self._waiting
        self._server.counters = self._counters = prepared.counters.take_row()
        self._server.wakeup_fd = -1 if wakeup_socket is None else wakeup_socket.fileno()
        lib.nnb_waiter_init(
            ffi.addressof(self._server, "waiter"),
            spin and not low_power,
            0 if low_power else _POLLING_WINDOW * 1000,
        )
        self._bindings = BindingTable(self._server)
        self._commands: queue.SimpleQueue[_Command] = queue.SimpleQueue()
        self._ended = threading.Event()
        try:
            self._thread = DaemonThread(self._serve)
        except BaseException:
            prepared.counters.give_row(self._counters)
            raise

    def free_memory(self, slot: int) -> None:
        """Forget `slot` after the execution under way (NNAPI: freeMemory).

        Raises:
            GeneralFailure: that execution takes longer than any client waits.
        """

        def free() -> bool:
            self._bindings.release(slot)
            self._slots.release(slot)
            return True

        self._command(free)

    def close(self) -> None:
        """End the thread after the execution under way."""
        self._command(lambda: False)
        self._thread.join(_COMMAND_TIMEOUT)

    def _command(self, command: Callable[[], bool]) -> None:
        """Run `command` on the burst's thread, which goes on serving if it returns True."""
        posted = _Command(command, threading.Event())
        self._commands.put(posted)
        lib.nnb_server_call(self._server)
        if self._ended.is_set():
            return  # everything is freed; the thread may have ended without running it
        if not posted.done.wait(_COMMAND_TIMEOUT):
            raise GeneralFailure("the burst's execution under way does not end")

    def _serve(self) -> None:
        lib.nnb_set_thread_name(b"nnburst burst")
        if self._prepared.priority == Priority.LOW:
            be_nice()
        ending = "an error in the driver"
        try:
            ending = self._loop()
        except Exception:
            logger.exception(
                "the loop of a burst raised: the burst is closed, the connection goes on"
            )
        finally:
            if ending:
                logger.warning("burst closed: %s", ending)
                self._client.closed(ending)
            self._release_all()
            self._ended.set()
            for command in self._posted():
                command.done.set()

    def _release_all(self) -> None:
        """Free all resources, even if closing one object fails."""
        self._prepared.counters.give_row(self._counters)
        steps = [self._bindings.clear, self._slots.close]
        steps += [held.close for held in self._channels if held is not None]
        for step in (*steps, self._client.released):
            try:
                step()
            except Exception:
                logger.exception(
                    "closing a burst failed: what it held is kept until the worker ends"
                )

    def _loop(self) -> str:
        """Serve until stopped; returns the reason if the burst ends by itself."""
        reply: BurstReply | None = None
        while True:
            if reply is None:
                event = lib.nnb_server_next_unlocked(self._server, ffi.NULL, 0, 0, MEASURED)
            else:
                event = lib.nnb_server_next_unlocked(
                    self._server, reply.packet, reply.count, reply.device_ns, reply.driver_ns
                )
            if event == lib.NNB_SERVER_CALL:
                reply = self._bindings[self._server.current].run()
            elif event == lib.NNB_SERVER_MISS:
                reply = self._miss()
            elif event == lib.NNB_SERVER_ATTENTION:
                reply = None
                if not self._attend():
                    return ""
            elif event == lib.NNB_SERVER_IDLE:
                reply = None
                self._bindings.clear()
            else:
                return _ENDINGS[event]

    def _attend(self) -> bool:
        lib.nnb_server_attend(self._server)
        for command in self._posted():
            try:
                if not command.run():
                    return False
            finally:
                command.done.set()
        return True

    def _posted(self) -> Iterator[_Command]:
        """The commands that were posted, each once."""
        with contextlib.suppress(queue.Empty):
            while True:
                yield self._commands.get_nowait()

    def _miss(self) -> BurstReply:
        """Decode, resolve, validate, bind and run a request that is not bound yet."""
        with trace(Layer.DRIVER, Phase.INPUTS_AND_OUTPUTS, "burst: bind a request"):
            bound = self._bind_request()
        return bound if isinstance(bound, BurstReply) else bound.run()

    def _bind_request(self) -> RequestBinding | BurstReply:
        """Bind the current packet's request and add it to the table; returns a reply if that fails."""
        packet = ffi.buffer(self._packet, self._server.packet_count * DATUM_BYTES)[:]
        try:
            request, slots, _ = deserialize_request(packet)
        except MalformedPacket:
            return reply_with(ErrorStatus.GENERAL_FAILURE)  # burst:§4; the burst goes on
        try:
            pools = self._slots.resolve(slots)
            execution = self._prepared.bind(request, pools)
        except NnburstError as error:
            # A packet has room for the status only; the reason is logged.
            by_client = isinstance(error, InvalidArgument | DeadObject)
            level = logging.INFO if by_client else logging.WARNING
            logger.log(level, "a request is not executed: %s", error)
            return reply_with(error.status)
        except Exception:
            logger.exception("binding a request raised: answered with GENERAL_FAILURE")
            return reply_with(ErrorStatus.GENERAL_FAILURE)
        success = success_of(execution, shapes_vary=self._prepared.shapes_vary)
        binding = RequestBinding(execution, frozenset(slots), success)
        self._bindings.add(packet, binding)
        return binding


def _new_server(requests: MessageQueue, results: MessageQueue, max_in_flight: int) -> nnb_server:
    """A struct nnb_server over the two channels, without its buffers."""
    if requests.event_flag is None or results.event_flag is None:
        raise InvalidArgument("both channels need an event flag")
    server = ffi.new("struct nnb_server *")
    server.requests = requests.ring[0]
    server.results = results.ring[0]
    server.request_flag = requests.event_flag.word
    server.result_flag = results.event_flag.word
    server.max_in_flight = max_in_flight
    server.flow = flow_base(requests.memories[0].fd)
    server.idle_ns = IDLE_NS
    server.stuck_ns = _STUCK_NS
    return server


def get_memories(
    upcalls: Connection, callback: int, slots: Sequence[int], timeout: float
) -> list[SharedMemory]:
    """Ask a client for the pools of slots, which the caller owns (IBurstCallback::getMemories).

    Args:
        upcalls: the connection for upcalls to the client.
        callback: the number of the burst's callback.
        slots: at most 64.
        timeout: seconds that the client has to answer.

    Raises:
        GeneralFailure: burst:§6.2: the client answers with a wrong count.
        NnburstError: the client reports it, or does not answer.
    """
    message = GetMemories(callback, tuple(slots))
    found, fds = upcalls.call(message, Memories, timeout=timeout)
    if len(found.sizes) != len(slots):
        fds.close()
        raise GeneralFailure(f"getMemories gave {len(found.sizes)} pools for {len(slots)} slots")
    memories: list[SharedMemory] = []
    with fds:
        try:
            for index, size in enumerate(found.sizes):
                memories.append(SharedMemory.adopt(fds.take(index), size))
        except BaseException:
            for memory in memories:
                memory.close()
            raise
    return memories
