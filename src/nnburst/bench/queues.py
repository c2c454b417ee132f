"""Measures queues between Python programs: pairs that exchange messages, and one writer with several readers.

A pair uses a queue of nnburst or of an installed library. The other program is a child that reads lines "NAME
COUNT" from a socket and answers COUNT messages by the pair of that name, so that only one pair is busy at a
time. Readers share an unsynchronized queue. A stream gives the records a second of writer and readers;
periodic writes give each reader's delay after a write, and the share of a core that its waiting takes.
"""

from __future__ import annotations

import asyncio
import importlib.util
import multiprocessing
import os
import secrets
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from nnburst.bench.cases import WARM_UP, Samples, durations
from nnburst.fmq.message_queue import MessageQueue
from nnburst.fmq.object_queue import Queue
from nnburst.fmq.queue_end import SPIN_WINDOW
from nnburst.fmq.shared_memory import Flavor
from nnburst.hal.errors import Closed
from nnburst.hal.utils import Closing
from nnburst.testing.driver_under_test import deaf_to_interrupts

REQUEST_BYTES: Final = 256
RESPONSE_BYTES: Final = 64
#: Sizes of the messages of a stream.
STREAM_BYTES: Final = (24, 256, 4096, 1 << 20)
#: Sizes of the messages of an exchange, the same in both directions.
EXCHANGED_BYTES: Final = (8, 64, 1024, 16384, 1 << 18, 1 << 20)
_CAPACITY: Final = 64
#: Bytes of a stream's ring, and the least number of messages in it.
_STREAM_RING: Final = 1 << 18
_FEWEST: Final = 8
#: Number of records that one write of a batch stream has.
_BATCH: Final = 64
#: Seconds that one side waits for the other.
_PATIENCE: Final = 20.0

#: The functions of one side: (send, receive).
Side = tuple[Callable[[], object], Callable[[], object]]
#: The queues of both directions.
Both = tuple[MessageQueue, MessageQueue]


def _sizes(client: bool) -> tuple[int, int]:
    return (REQUEST_BYTES, RESPONSE_BYTES) if client else (RESPONSE_BYTES, REQUEST_BYTES)


def _own_queues() -> dict[str, Both]:
    """A pair for each way of using nnburst's queues; in a stream the second one only acknowledges."""

    def pair(there: Any, back: Any, capacity: int = _CAPACITY, window: float = SPIN_WINDOW) -> Both:  # noqa: ANN401
        first, second = (
            MessageQueue.create(kind, capacity, spin_window=window) for kind in (there, back)
        )
        return first, second

    elements = (f"V{REQUEST_BYTES}", f"V{RESPONSE_BYTES}")
    found = {
        "queue_bound": pair(*elements),
        "queue_arrays": pair(*elements),
        "queue_messages": pair(bytes, bytes, _CAPACITY * REQUEST_BYTES),
        "queue_sleeping": pair(*elements, window=0.0),
        "queue_await": pair(*elements),
    }
    for size in STREAM_BYTES:
        capacity = max(_FEWEST, _STREAM_RING // size)
        found[f"queue_stream_{size}"] = pair(f"V{size}", "u1", capacity)
    for size in EXCHANGED_BYTES:
        capacity = max(2, min(_CAPACITY, (_STREAM_RING << 2) // size))
        found[f"queue_size_{size}"] = pair(f"V{size}", f"V{size}", capacity)
    found["queue_batches_24"] = pair("V24", "u1", _STREAM_RING // 24)
    found["queue_claims_1048576"] = pair("V1048576", "u1", _FEWEST)
    return found


def _own_side(name: str, queues: Both, *, client: bool) -> Side:
    """The functions by which one program sends and receives over a pair of nnburst's queues."""
    out, back = queues if client else queues[::-1]
    if name == "queue_messages":
        message = bytes(_sizes(client)[0])
        return lambda: out.send(message, _PATIENCE), lambda: back.receive(_PATIENCE)
    if name.startswith("queue_claims"):
        return _claims(queues, client=client)
    count = _BATCH if name.startswith("queue_batches") else 1
    sent = np.zeros(count if client else 1, out.dtype)
    got = np.zeros(1 if client else count, back.dtype)
    if name == "queue_arrays":
        return lambda: out.write(sent, _PATIENCE), lambda: back.read(1, _PATIENCE)
    if name == "queue_await" and client:
        wait = back.read_async
        return out.sender(sent, _PATIENCE), partial(wait, 1, _PATIENCE)
    return out.sender(sent, _PATIENCE), back.receiver(got, _PATIENCE)


def _claims(queues: Both, *, client: bool) -> Side:
    """Functions that copy records into a claim, and out of one."""
    there, back = queues
    record = np.ones(1, there.dtype)

    def put() -> None:
        with there.writing(1, _PATIENCE) as place:
            place[:] = record

    def take() -> None:
        with there.reading(1, _PATIENCE) as found:
            record[:] = found

    word = np.zeros(1, back.dtype)
    if client:
        return put, back.receiver(word, _PATIENCE)
    return back.sender(word, _PATIENCE), take


def _cloudtoid(token: str, *, client: bool, stream: int = 0) -> Side:
    import cloudtoid_interprocess as library

    names = (f"{token}-{stream}-there", f"{token}-{stream}-back")[:: 1 if client else -1]
    room = max(65536, 2 * _FEWEST * stream)
    publisher = library.Publisher(names[0], room)
    subscriber = library.Subscriber(names[1], room)
    data = bytes((stream if client else 1) if stream else _sizes(client)[0])
    try_send, try_receive = publisher.try_send, subscriber.try_receive

    def send() -> None:
        while not try_send(data):
            pass

    def receive() -> Any:  # noqa: ANN401 - bytes
        while (found := try_receive()) is None:
            pass
        return found

    return send, receive


def _cloudtoid_arrays(token: str, *, client: bool) -> Side:
    """The same with arrays; a received array is a view of the bytes."""
    import cloudtoid_interprocess as library

    names = (f"{token}-arrays-there", f"{token}-arrays-back")[:: 1 if client else -1]
    publisher, subscriber = library.Publisher(names[0], 65536), library.Subscriber(names[1], 65536)
    mine, theirs = _sizes(client)
    array, kind, from_buffer = np.zeros(1, f"V{mine}"), np.dtype(f"V{theirs}"), np.frombuffer
    try_send, try_receive = publisher.try_send, subscriber.try_receive

    def send() -> None:
        while not try_send(array):
            pass

    def receive() -> Any:  # noqa: ANN401 - an array
        while (found := try_receive()) is None:
            pass
        return from_buffer(found, kind)

    return send, receive


def _kickmsg(token: str, *, client: bool) -> Side:
    import kickmsg as library

    config = library.Config()
    config.max_payload_size = REQUEST_BYTES
    names = (f"{token}-there", f"{token}-back")[:: 1 if client else -1]
    node = library.Node(f"{token}-{'client' if client else 'server'}")
    publisher = node.advertise_or_join(names[0], config)
    subscriber = node.subscribe_or_create(names[1], config)
    data, try_receive = bytes(_sizes(client)[0]), subscriber.try_receive

    def receive() -> Any:  # noqa: ANN401 - bytes
        while (found := try_receive()) is None:
            pass
        return found

    return partial(publisher.send, data), receive


def _iceoryx2(token: str, *, client: bool) -> Side:
    import ctypes

    import iceoryx2 as library

    def payload(size: int) -> type:
        return type(
            f"Bytes{size}", (ctypes.Structure,), {"_fields_": [("data", ctypes.c_uint8 * size)]}
        )

    library.set_log_level(library.LogLevel.Error)
    node = library.NodeBuilder.new().create(library.ServiceType.Ipc)
    mine, theirs = _sizes(client)
    names = (f"{token}-there", f"{token}-back")[:: 1 if client else -1]
    kind = payload(mine)
    open_service = [
        node.service_builder(library.ServiceName.new(name)).publish_subscribe(each).open_or_create()
        for name, each in zip(names, (kind, payload(theirs)), strict=True)
    ]
    publisher = open_service[0].publisher_builder().create()
    subscriber = open_service[1].subscriber_builder().create()
    message = kind()
    send_copy, try_receive = publisher.send_copy, subscriber.receive

    def receive() -> Any:  # noqa: ANN401 - a sample
        while (found := try_receive()) is None:
            pass
        return found.payload()

    return lambda: send_copy(message), receive


def _faster_fifo(queues: Sequence[Any], *, client: bool, stream: int = 0) -> Side:
    out, back = queues[:: 1 if client else -1]
    data = bytes((stream if client else 1) if stream else _sizes(client)[0])
    return partial(out.put, data, timeout=_PATIENCE), partial(back.get, timeout=_PATIENCE)


#: Functions that open other libraries' queues, by package; the pair's name identifies the queue.
_RIVALS: Final[dict[str, Callable[..., Side]]] = {
    "cloudtoid_interprocess": _cloudtoid,
    "kickmsg": _kickmsg,
    "iceoryx2": _iceoryx2,
}


class _Sides:
    """One program's sides of all pairs, each opened at its first use."""

    def __init__(
        self, own: dict[str, Both], token: str, fifos: Sequence[Any], *, client: bool
    ) -> None:
        self._make: dict[str, Callable[[], Side]] = {
            name: partial(_own_side, name, queues, client=client) for name, queues in own.items()
        }
        for name, rival in _RIVALS.items():
            if importlib.util.find_spec(name) is not None:
                self._make[name] = partial(rival, token, client=client)
        if "cloudtoid_interprocess" in self._make:  # other libraries may lose messages of a stream
            self._make["cloudtoid_arrays"] = partial(_cloudtoid_arrays, token, client=client)
            for size in STREAM_BYTES:
                make = partial(_cloudtoid, token, client=client, stream=size)
                self._make[f"cloudtoid_stream_{size}"] = make
        if fifos:
            self._make["faster_fifo"] = partial(_faster_fifo, fifos, client=client)
            for size in STREAM_BYTES:
                make = partial(_faster_fifo, fifos, client=client, stream=size)
                self._make[f"faster_fifo_stream_{size}"] = make
        self._open: dict[str, Side] = {}

    def names(self) -> list[str]:
        return list(self._make)

    def __getitem__(self, name: str) -> Side:
        if name not in self._open:
            self._open[name] = self._make[name]()
        return self._open[name]


def is_stream(name: str) -> bool:
    """Whether messages go one way with an acknowledgement only of the last one."""
    return any(word in name for word in ("stream", "batches", "claims"))


def _new_fifos() -> list[Any]:
    """Two queues of faster-fifo, which a child must inherit; empty if it is not installed."""
    if importlib.util.find_spec("faster_fifo") is None:
        return []
    import faster_fifo

    room = 2 * _FEWEST * max(STREAM_BYTES)
    return [faster_fifo.Queue(room), faster_fifo.Queue(room)]


class PairPeer(Closing):
    """The other program, pinned to a core, and this program's sides of all pairs."""

    def __init__(self, core: int) -> None:
        """Start the other program, with the pairs of all installed libraries."""
        token = f"nnburst-bench-{os.getpid()}-{secrets.token_hex(4)}"
        context, fifos, own = multiprocessing.get_context("spawn"), _new_fifos(), _own_queues()
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = context.Process(
                target=_serve, args=(theirs, own, token, fifos, core), daemon=True
            )
            with deaf_to_interrupts():
                self._process.start()
        self._socket.settimeout(10 * _PATIENCE)
        self._await()
        self._sides = _Sides(own, token, fifos, client=True)

    def pairs(self) -> list[Pair]:
        """The cases of pairs that spin, and of other libraries' pairs."""
        apart = ("queue_sleeping", "queue_await", "queue_size")
        names = [name for name in self._sides.names() if not is_stream(name)]
        return [Pair(name, self) for name in names if not name.startswith(apart)]

    def sizes(self) -> list[Pair]:
        """The cases of bound ends, one for each size of an exchange."""
        return [Pair(f"queue_size_{size}", self) for size in EXCHANGED_BYTES]

    def sleepers(self) -> list[Pair | AwaitedPair]:
        """The cases of the pair that never spins, and of the awaited one."""
        return [Pair("queue_sleeping", self), AwaitedPair(self)]

    def streams(self) -> list[Stream]:
        """The cases of streams."""
        return [Stream(name, self) for name in self._sides.names() if is_stream(name)]

    def side(self, name: str) -> Side:
        """The functions of this program's side of a pair, whose other side is open, too."""
        self.begin(name, 0)
        self.ended()
        return self._sides[name]

    def begin(self, name: str, count: int) -> None:
        """Let the other program answer `count` messages."""
        self._socket.sendall(f"{name} {count}".encode().ljust(64))

    def ended(self) -> None:
        """Wait until the other program has answered all messages."""
        self._await()

    def _await(self) -> None:
        if self._socket.recv(1) != b"r":
            raise ConnectionError("the benchmark's peer has ended")

    def close(self) -> None:
        """End the other program, which after an interruption may wait for messages that will not come."""
        self._socket.close()
        self._process.join(1)
        self._process.terminate()
        self._process.join(10)


class Pair:
    """A contestant (see `nnburst.bench.cases`): both programs exchange messages through one library."""

    def __init__(self, name: str, peer: PairPeer) -> None:
        self.name = name
        self._peer = peer
        self._side = peer.side(name)

    def block(self, count: int) -> float:
        """See `Contestant`."""
        send, receive = self._side
        turns = [None] * count
        self._begin(count)
        began = time.perf_counter_ns()
        for _ in turns:
            send()
            receive()
        took = time.perf_counter_ns() - began
        self._peer.ended()
        return took / count

    def samples(self, count: int) -> Samples:
        """See `Contestant`."""
        send, receive = self._side
        clock, stamps = time.perf_counter_ns, [0] * (count + 1)
        self._begin(count)
        stamps[0] = clock()
        for index in range(1, count + 1):
            send()
            receive()
            stamps[index] = clock()
        self._peer.ended()
        return durations(stamps)

    def _begin(self, count: int) -> None:
        send, receive = self._side
        self._peer.begin(self.name, WARM_UP + count)
        for _ in range(WARM_UP):
            send()
            receive()


class AwaitedPair:
    """A pair that this program awaits in an event loop; the other program spins or sleeps."""

    def __init__(self, peer: PairPeer) -> None:
        self.name = "queue_await"
        self._peer = peer
        self._side = peer.side(self.name)

    def block(self, count: int) -> float:
        """See `Contestant`."""
        return float(self.samples(count).mean())

    def samples(self, count: int) -> Samples:
        """See `Contestant`."""
        self._peer.begin(self.name, WARM_UP + count)
        stamps = asyncio.run(self._exchange(WARM_UP + count))
        self._peer.ended()
        return durations(stamps[WARM_UP:])

    async def _exchange(self, count: int) -> list[int]:
        (send, receive), clock = self._side, time.perf_counter_ns
        stamps = [clock()]
        for _ in range(count):
            send()
            await receive()  # type: ignore[misc]
            stamps.append(clock())
        return stamps


class Stream:
    """A stream of messages in one direction through one library; the last one is acknowledged."""

    def __init__(self, name: str, peer: PairPeer) -> None:
        self.name = name
        self.bytes = int(name.rpartition("_")[2])
        #: Number of messages that one call sends.
        self.each = _BATCH if "batches" in name else 1
        self._peer = peer
        self._side = peer.side(name)

    def per_second(self, count: int) -> float:
        """Measure the messages a second of `count` calls."""
        send, receive = self._side
        turns = [None] * count
        self._peer.begin(self.name, count)
        began = time.perf_counter_ns()
        for _ in turns:
            send()
        receive()
        took = time.perf_counter_ns() - began
        self._peer.ended()
        return count * self.each * 1e9 / took


def _answer(commands: socket.socket, sides: _Sides) -> None:
    commands.sendall(b"r")
    while line := commands.recv(64, socket.MSG_WAITALL):
        name, number = line.decode().split()
        (send, receive), count = sides[name], int(number)
        if is_stream(name):
            for _ in [None] * count:
                receive()
            _ = send() if count else None
        else:
            for _ in [None] * count:
                receive()
                send()
        commands.sendall(b"r")


def _serve(
    commands: socket.socket,
    own: dict[str, Both],
    token: str,
    fifos: Sequence[Any],
    core: int,
) -> None:
    """Run the other program: answer until the socket is closed."""
    os.sched_setaffinity(0, {core})
    with commands:
        _answer(commands, _Sides(own, token, fifos, client=False))


#: A record of 24 bytes: the time of the write in nanoseconds, and padding.
_RECORD: Final = np.dtype([("written", "<i8"), ("more", "V16")])
_READER_CAPACITY: Final = 4096
#: Number of periods in which readers learn the period before they are measured.
_LEARNING: Final = 40
#: Share by which periods vary.
_JITTER: Final = 0.1
#: Seconds that one side waits for the other.
_READER_PATIENCE: Final = 60.0


class ReaderFigures(msgspec.Struct, frozen=True):
    """The measurements of one reader.

    Attributes:
        read: number of records that it read.
        missed: number of records that it was too slow for.
        median_ns: median time from before a write until the record was read.
        p99_ns: 99th percentile of this time.
        core_share: share of a core that the reader used, waiting included.
        stolen_share: share of the time in which the reader was ready to run but had no core.
    """

    read: int
    missed: int
    median_ns: float
    p99_ns: float
    core_share: float
    stolen_share: float


def _waited_ns() -> int:
    """Nanoseconds in which this thread was ready to run but had no core."""
    return int(Path("/proc/thread-self/schedstat").read_text("ascii").split()[1])


def _read_all(queue: MessageQueue, ready: Queue[Any], cores: Sequence[int], skipped: int) -> None:
    """Run a reader until the end of the queue."""
    os.sched_setaffinity(0, cores)
    record = np.zeros(1, _RECORD)
    receive, found, clock = queue.receiver(record, _READER_PATIENCE), [], time.monotonic_ns
    written = record["written"]
    ready.put(None)
    began = (time.monotonic(), time.thread_time(), _waited_ns())
    try:
        while receive() is not None:
            found.append(clock() - int(written[0]))
            if len(found) == skipped:
                began = (time.monotonic(), time.thread_time(), _waited_ns())
    except Closed:
        pass
    took = time.monotonic() - began[0]
    late = np.asarray(found[skipped:] or found, np.float64)
    ready.put(
        ReaderFigures(
            len(found),
            queue.statistics().missed,
            float(np.median(late)) if len(late) else 0.0,
            float(np.percentile(late, 99)) if len(late) else 0.0,
            (time.thread_time() - began[1]) / took,
            (_waited_ns() - began[2]) * 1e-9 / took,
        )
    )


class Readers:
    """A writer in this process, and readers on other cores; `figures` ends them."""

    def __init__(self, count: int, cores: Sequence[int], *, skipped: int = 0) -> None:
        """Start the readers.

        Args:
            count: number of readers.
            cores: cores that they may use.
            skipped: number of records that each reads before it measures.
        """
        context = multiprocessing.get_context("spawn")
        self.queue = MessageQueue.create(_RECORD, _READER_CAPACITY, Flavor.UNSYNCHRONIZED_WRITE)
        self._answers: list[Queue[Any]] = [Queue() for _ in range(count)]
        self._processes = [
            context.Process(
                target=_read_all, args=(self.queue, answer, list(cores), skipped), daemon=True
            )
            for answer in self._answers
        ]
        with deaf_to_interrupts():
            for process in self._processes:
                process.start()
        for answer in self._answers:
            answer.get(_READER_PATIENCE)

    def figures(self) -> list[ReaderFigures]:
        """Close the queue; return the figures of each reader."""
        self.queue.close()
        with ExitStack() as stack:
            for answer in self._answers:
                stack.callback(answer.close)
            found = [answer.get(_READER_PATIENCE) for answer in self._answers]
        for process in self._processes:
            process.join(_READER_PATIENCE)
        return found


def stream_to(count: int, records: int, cores: Sequence[int]) -> dict[str, Any]:
    """Write records as fast as possible, without waiting for readers."""
    readers = Readers(count, cores)
    record = np.zeros(1, _RECORD)
    send = readers.queue.sender(record)
    began = time.perf_counter_ns()
    for _ in [None] * records:
        send()
    took = time.perf_counter_ns() - began
    found = readers.figures()
    return {
        "readers": count,
        "written_per_second": records * 1e9 / took,
        "read_per_second": [each.read * 1e9 / took for each in found],
        "missed": [each.missed for each in found],
    }


def period_to(count: int, period: float, events: int, cores: Sequence[int]) -> dict[str, Any]:
    """Write one record every `period` seconds, with a jitter of a tenth."""
    readers, rng = Readers(count, cores, skipped=_LEARNING), np.random.default_rng(28)
    record = np.zeros(1, _RECORD)
    send, written, clock = readers.queue.sender(record), record["written"], time.monotonic_ns
    due = time.monotonic()
    for _ in range(_LEARNING + events):
        due += period * rng.uniform(1 - _JITTER, 1 + _JITTER)
        time.sleep(max(due - time.monotonic(), 0.0))
        written[0] = clock()
        send()
    return {
        "readers": count,
        "period_ms": period * 1e3,
        "each": [msgspec.to_builtins(each) for each in readers.figures()],
    }
