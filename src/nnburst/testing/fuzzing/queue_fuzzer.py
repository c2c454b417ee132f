"""Changes every byte that the ends of a queue share, at random, while another process uses them.

The other process gets a queue over a socket, writes and reads in every way with short timeouts, and counts
what came of it: done, not now, or one of nnburst's errors. Anything else is a failure, as is a call that
takes longer than its timeout and some seconds, or the end of that process.
"""

from __future__ import annotations

import multiprocessing
import select
import socket
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from nnburst.fmq import Flavor, MessageQueue, receive_queue, send_queue
from nnburst.fmq.shared_memory import EVENT_FLAG_BYTES, SharedMemory, layout
from nnburst.hal.errors import NnburstError

if TYPE_CHECKING:
    import numpy.typing as npt

#: Calls for each queue.
CALLS: Final = 400
_CAPACITY: Final = 61
_RECORD: Final = np.dtype("V8")
#: Seconds that a call may take beyond its timeout on a busy machine.
_SLOW: Final = 20.0
#: Seconds that one queue may take.
_PATIENCE: Final = 120.0


@dataclass
class QueueReport:
    """The results of fuzzing queues.

    Attributes:
        queues: that were used.
        outcomes: of calls, by name.
        failures: what should not have happened.
    """

    queues: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)


def fuzz_queues(
    queues: int, seed: int, advance: Callable[[int], object] = lambda _: None
) -> QueueReport:
    """Use so many queues, one after the other."""
    report, rng = QueueReport(), Random(seed)  # noqa: S311 - mutations
    with closing(_Victim(seed)) as victim:
        for _ in range(queues):
            if report.failures:
                break
            _use_one(victim, rng, report)
            advance(1)
    return report


class _Victim:
    """The process that uses the queues."""

    def __init__(self, seed: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.socket, theirs = socket.socketpair()
        self.process = context.Process(target=_use_queues, args=(theirs, seed), daemon=True)
        self.process.start()
        theirs.close()
        self.socket.settimeout(_PATIENCE)

    def close(self) -> None:
        self.socket.close()
        self.process.join(10)
        if self.process.is_alive():
            self.process.kill()


def _use_one(victim: _Victim, rng: Random, report: QueueReport) -> None:
    flavor = rng.choice(tuple(Flavor))
    dtype = rng.choice((_RECORD, np.dtype("S")))
    kind: Any = bytes if dtype.kind == "S" else dtype
    # What others of a broadcast cannot write its maker changes through its own mapping.
    writes = flavor != Flavor.UNSYNCHRONIZED_WRITE and rng.random() < 0.5
    descriptor = layout(dtype.itemsize or 1, _CAPACITY * (dtype.itemsize or 8), flavor, ends=True)
    protected = descriptor.is_broadcast
    memories = [SharedMemory.create(descriptor.size_bytes(), read_only_for_others=protected)]
    memory = memories[0]
    mapped = [memory.map_then_protect() if protected else memory.map_memory(writable=True)]
    if protected:
        memories.append(SharedMemory.create(EVENT_FLAG_BYTES))
        mapped.append(memories[1].map_memory(writable=True))
    views = [np.frombuffer(view, np.uint8) for view in mapped]
    with MessageQueue(descriptor, memories, mapped, np.dtype(kind)) as queue:
        victim.socket.sendall(bytes([writes, dtype.itemsize]))
        send_queue(victim.socket, queue)
        _disturb_until_done(victim, queue, views, rng, writes=writes)
        answer = msgspec.json.decode(_line(victim.socket))
    report.queues += 1
    report.outcomes.update(answer["outcomes"])
    report.failures += answer["failures"]


def _disturb_until_done(
    victim: _Victim,
    queue: MessageQueue,
    views: list[npt.NDArray[np.uint8]],
    rng: Random,
    *,
    writes: bool,
) -> None:
    """Change bytes, most of them beside the data, and now and then do what an honest end does."""
    parts = [grantor for grantor in queue.descriptor.grantors if grantor.extent]
    deadline = time.monotonic() + _PATIENCE
    while not _has_answered(victim):
        for _ in range(rng.randrange(20)):
            part = rng.choice(parts)
            at = part.offset + rng.randrange(min(part.extent, 64))
            views[part.fd_index][at] = rng.randrange(256)
        honest = rng.random()
        if honest < 0.3:
            _suppressed(lambda: _put(queue, rng) if not writes else _take(queue, rng))
        elif honest < 0.6:  # back to counters that may be, so that calls get beyond them
            for part in parts[:2]:
                views[0][part.offset : part.offset + 8] = 0
        if time.monotonic() > deadline:
            raise TimeoutError("the process that uses the queue hangs")
        time.sleep(rng.random() * 2e-4)


def _has_answered(victim: _Victim) -> bool:
    return bool(select.select([victim.socket], [], [], 0)[0])


def _suppressed(call: Callable[[], object]) -> None:
    with suppress(NnburstError):
        call()


def _line(connection: socket.socket) -> bytes:
    found = b""
    while not found.endswith(b"\n"):
        more = connection.recv(65536)
        if not more:
            return b'{"outcomes": {}, "failures": ["the process has ended"]}'
        found += more
    return found


def _put(queue: MessageQueue, rng: Random) -> object:
    size = queue.dtype.itemsize
    timeout = rng.choice((0.0, 1e-4, 2e-3))
    if not size:
        return queue.send(bytes(rng.randrange(90)), timeout)
    count = rng.randrange(1, 9)
    way = rng.randrange(3)
    if way == 0:
        return queue.write(np.zeros(count, queue.dtype), timeout)
    if way == 1:
        return queue.sender(np.zeros(count, queue.dtype), timeout)()
    with queue.writing(count, timeout) as place:
        place[:] = np.zeros(count, queue.dtype)
    return True


def _take(queue: MessageQueue, rng: Random) -> object:
    size = queue.dtype.itemsize
    timeout = rng.choice((0.0, 1e-4, 2e-3))
    if not size:
        return queue.receive(timeout)
    count = rng.randrange(1, 9)
    way = rng.randrange(4)
    if way == 0:
        return queue.read(count, timeout)
    if way == 1:
        return queue.read_into(np.zeros(count, queue.dtype), timeout)
    if way == 2:
        return queue.receiver(np.zeros(count, queue.dtype), timeout)()
    with queue.reading(count, timeout) as found:
        return found.tobytes()


def _use_queues(connection: socket.socket, seed: int) -> None:
    """The other process: until the socket ends."""
    rng = Random(seed + 1)  # noqa: S311 - choices
    with connection:
        while kind := connection.recv(2, socket.MSG_WAITALL):
            outcomes: Counter[str] = Counter()
            failures: list[str] = []
            _use(connection, bool(kind[0]), kind[1], rng, outcomes, failures)
            answer = {"outcomes": dict(outcomes), "failures": failures}
            connection.sendall(msgspec.json.encode(answer) + b"\n")


def _use(
    connection: socket.socket,
    writes: bool,
    itemsize: int,
    rng: Random,
    outcomes: Counter[str],
    failures: list[str],
) -> None:
    dtype: Any = f"V{itemsize}" if itemsize else bytes
    try:
        with receive_queue(connection, dtype, timeout=60, spin_window=2e-5) as queue:
            for _ in range(CALLS):
                began = time.monotonic()
                try:
                    done = _put(queue, rng) if writes else _take(queue, rng)
                    outcomes["not now" if done is None or done is False else "done"] += 1
                except NnburstError as error:
                    outcomes[type(error).__name__] += 1
                took = time.monotonic() - began
                if took > _SLOW:
                    failures.append(f"a call took {took:.1f} s")
            queue.statistics()
    except NnburstError as error:
        outcomes[f"opening: {type(error).__name__}"] += 1
    except Exception:  # what must not come
        failures.append(traceback.format_exc())
