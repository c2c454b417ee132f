"""Measures executions over bursts on new drivers, in a row or periodically.

A periodic caller shows the cost of a call after a pause, and the processor time of waiting for it.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from nnburst._native import ffi, lib
from nnburst.bench.peer import Peer
from nnburst.client.burst.interface import BoundRequest, Burst
from nnburst.client.device import Device
from nnburst.client.launch import launch
from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.model import Model
from nnburst.hal.model_builder import ModelBuilder

Samples = npt.NDArray[np.uint64]

_REQUEST_ELEMENTS: Final = 11
_RESULT_ELEMENTS: Final = 3
#: Number of exchanges before each block that are not counted.
WARM_UP: Final = 100
#: Attempts for a block; on a shared machine a peer can lose its core for a second.
_ATTEMPTS: Final = 5


class Contestant(Protocol):
    """A case of a benchmark."""

    @property
    def name(self) -> str:
        """The name of the case."""

    def block(self, count: int) -> float:
        """Exchange `count` times; return the mean nanoseconds, without reading the clock in between."""

    def samples(self, count: int) -> Samples:
        """Exchange `count` times; return the nanoseconds of each exchange, with a reading of the clock."""


def durations(stamps: Sequence[int]) -> Samples:
    """Nanoseconds from each reading of the clock to the next."""
    return np.diff(np.asarray(stamps, np.int64)).astype(np.uint64)


class Looped:
    """A case that is a Python call."""

    def __init__(self, name: str, call: Callable[[], object], warm_up: int = WARM_UP) -> None:
        """Measure `call`; before each block it is called `warm_up` times."""
        self.name = name
        self._call = call
        self._warm_up = warm_up

    def block(self, count: int) -> float:
        """See `Contestant`."""
        call = self._call
        turns = [None] * count
        self._wake()
        began = time.perf_counter_ns()
        for _ in turns:
            call()
        return (time.perf_counter_ns() - began) / count

    def samples(self, count: int) -> Samples:
        """See `Contestant`."""
        call, clock = self._call, time.perf_counter_ns
        stamps = [0] * (count + 1)
        self._wake()
        stamps[0] = clock()
        for index in range(1, count + 1):
            call()
            stamps[index] = clock()
        return durations(stamps)

    def _wake(self) -> None:
        """Exchange until the other side is awake and the cache is warm, as before every block in C."""
        for _ in range(self._warm_up):
            self._call()


class _InC:
    """A case that is a loop in C against the peer."""

    name: str
    _letter: bytes

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    def block(self, count: int) -> float:
        """See `Contestant`."""
        return self._run(count, None) / count

    def samples(self, count: int) -> Samples:
        """See `Contestant`."""
        found = np.zeros(count, np.uint64)
        self._run(count, ffi.from_buffer("uint64_t[]", found))
        return found

    def _run(self, count: int, samples: object | None) -> int:
        for _ in range(_ATTEMPTS):
            self._peer.begin(self._letter)
            self._exchange(WARM_UP, ffi.NULL)  # the peer is awake and the cache is warm
            total = self._exchange(count, samples or ffi.NULL)
            self._close_exchange()
            self._peer.ended()
            if total:
                return total
        raise TimeoutError(f"{self.name}: the peer did not answer")

    def _exchange(self, count: int, samples: object) -> int:
        raise NotImplementedError

    def _close_exchange(self) -> None:
        raise NotImplementedError


class FloorSpin(_InC):
    """Two processes store to one word in turn."""

    name = "floor_spin"
    _letter = b"f"

    def _exchange(self, count: int, samples: object) -> int:
        return int(lib.nnb_bench_floor_client(self._peer.exchange.floor, count, samples))

    def _close_exchange(self) -> None:
        self._peer.exchange.close_floor()


class Fmq256(_InC):
    """Sends 11 elements and receives 3 through the queue's C functions."""

    name = "fmq_256"
    _letter = b"q"

    def _exchange(self, count: int, samples: object) -> int:
        queues = self._peer.exchange.queues
        return int(
            lib.nnb_bench_queue_client(*queues, _REQUEST_ELEMENTS, _RESULT_ELEMENTS, count, samples)
        )

    def _close_exchange(self) -> None:
        self._peer.exchange.close_queue()


class BareFutex(_InC):
    """Each side wakes the other by a futex and sleeps on one; nothing else."""

    _letter = b"x"

    def __init__(self, peer: Peer, name: str = "futex_one_core") -> None:
        """Exchange with `peer`."""
        super().__init__(peer)
        self.name = name

    def _exchange(self, count: int, samples: object) -> int:
        return int(lib.nnb_bench_futex_client(self._peer.exchange.futex, count, samples))

    def _close_exchange(self) -> None:
        self._peer.exchange.close_futex()


def empty_calls() -> list[Looped]:
    """Cases of empty C calls from Python: by cffi, and with the interpreter lock kept."""
    return [
        Looped("empty_cffi_call", partial(lib.nnb_empty_call_unlocked, 1)),
        Looped("empty_cffi_call_lock_kept", partial(lib.nnb_empty_call, 1)),
    ]


#: Number of float32 elements of the large input: 150 KB, like a camera picture or a spectrogram.
LARGE = 150 * 256
_TURNS = 32
#: Number of float32 elements in 256 bytes.
SMALL = 64


def adding_model(inputs: int, outputs: int, elements: int = 4) -> Model:
    """A model with these numbers of inputs and outputs; the null executor ignores its operations."""
    builder = ModelBuilder()
    given = [builder.input(OperandType.TENSOR_FLOAT32, (1, elements)) for _ in range(inputs)]
    none = builder.scalar(0)
    for index in range(outputs):
        pair = [given[index % inputs], given[(index + 1) % inputs], none]
        target = builder.output(OperandType.TENSOR_FLOAT32, (1, elements))
        builder.operation(OperationType.ADD, pair, [target])
    return builder.build()


@contextmanager
def on_cores(cores: Collection[int]) -> Iterator[None]:
    """Within the context, keep the calling thread, and what it starts, on these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def pinned(core: int | None) -> AbstractContextManager[None]:
    """Within the context, keep the calling thread on one core; None changes nothing."""
    return on_cores(os.sched_getaffinity(0) if core is None else {core})


@contextmanager
def null_driver(core: int, *, polling_window_us: int | None = None) -> Iterator[Device]:
    """Launch a driver with the null executor on one core."""
    environment = dict(os.environ)
    if polling_window_us is not None:
        environment["NNBURST_BURST_SERVER_POLLING_WINDOW"] = str(polling_window_us)
    with launch("null", cpus={core}, env=environment) as device:
        yield device


def open_bound(
    stack: ExitStack, device: Device, model: Model, spin_window: float | None = None
) -> tuple[Burst, BoundRequest]:
    """Open a burst and bind a request; `stack` closes both."""
    prepared = stack.enter_context(device.prepare(model))
    burst = stack.enter_context(prepared.open_burst(spin_window=spin_window))
    return burst, burst.bind()


def burst_cases(stack: ExitStack, device: Device) -> Sequence[Contestant]:
    """Cases of `bound.run()` with one and with many operands, on arrays, and with a large tensor."""
    _, one = open_bound(stack, device, adding_model(1, 1))
    _, many = open_bound(stack, device, adding_model(8, 4))
    burst, _ = open_bound(stack, device, adding_model(1, 1, SMALL))
    pools, placed = open_bound(stack, device, adding_model(1, 1, SMALL))
    array = np.ones((1, SMALL), np.float32)
    pooled = [placed.inputs[0]]
    result = [placed.outputs[0]]
    function = burst.function()
    return [
        Looped("null_1in1out", one.run),
        Looped("null_8in4out", many.run),
        Looped("execute_arrays", lambda: burst.execute([array])),
        Looped("execute_pooled_arrays", lambda: pools.execute(pooled, result)),
        Looped("burst_function", lambda: function(array)),
        *_large_cases(stack, device),
    ]


def _large_cases(stack: ExitStack, device: Device) -> Sequence[Contestant]:
    """Cases that write 150 KB in place before each run: into one slot, and into 32 in turn."""
    prepared = stack.enter_context(device.prepare(adding_model(1, 1, LARGE)))
    burst = stack.enter_context(prepared.open_burst())
    source = np.ones((1, LARGE), np.float32)
    bounds = [burst.bind() for _ in range(_TURNS)]
    untouched = bounds[0]

    def one_slot() -> None:
        bounds[0].inputs[0][...] = source
        bounds[0].run()

    position = 0

    def in_turn() -> None:
        nonlocal position
        position = (position + 1) % _TURNS
        bound = bounds[position]
        bound.inputs[0][...] = source
        bound.run()

    return [
        Looped("null_150KB_not_rewritten", untouched.run),
        Looped("null_150KB_one_slot", one_slot),
        Looped("null_150KB_32_in_turn", in_turn),
    ]


_JITTER: Final = 0.02
#: Rates in Hz of periodic callers that sleep between their calls, and of those that compute, since a sleep
#: takes too long.
SLEEPING: Final = (1000, 100)
COMPUTING: Final = (12_500, 5000)
#: A polling window that is longer than every pause, in microseconds.
_FOREVER_US: Final = 10_000_000
#: Share of a segment in which the driver can learn the period again.
_SETTLING: Final = 0.2


@dataclass
class Caller:
    """A periodic caller of a driver.

    Attributes:
        name: name of the case.
        rate: calls a second.
        latencies: nanoseconds of each call after the settling time.
        segments: median of each segment.
        wall_s: seconds measured.
        cpu_s: seconds of CPU of client and driver together in that time; of the driver alone, if the client
            computes.
    """

    name: str
    rate: float
    bound: BoundRequest
    device: Device
    latencies: list[int] = field(default_factory=list)
    segments: list[float] = field(default_factory=list)
    wall_s: float = 0.0
    cpu_s: float = 0.0

    def run_segment(self, seconds: float, rng: random.Random) -> None:
        """Call periodically, with random jitter.

        The driver is stopped outside of its segments, since a driver that always spins would keep the core
        from the measured one.
        """
        os.kill(self.device.pid, signal.SIGCONT)
        try:
            self._call(seconds, rng)
        finally:
            os.kill(self.device.pid, signal.SIGSTOP)

    def _call(self, seconds: float, rng: random.Random) -> None:
        calls = max(8, int(seconds * self.rate))
        settled = int(calls * _SETTLING)
        found: list[int] = []
        due = time.perf_counter()
        began = self._cpu(), time.perf_counter()
        for turn in range(calls):
            due += (1 + rng.uniform(-_JITTER, _JITTER)) / self.rate
            self._pass_time_until(due)
            start = time.perf_counter_ns()
            self.bound.run()
            ended = time.perf_counter_ns()
            if turn == settled:
                began = self._cpu(), time.perf_counter()
            if turn > settled:
                found.append(ended - start)
        self.cpu_s += self._cpu() - began[0]
        self.wall_s += time.perf_counter() - began[1]
        self.latencies += found
        self.segments.append(float(np.median(found)))

    def _pass_time_until(self, due: float) -> None:
        if self.rate in SLEEPING:
            time.sleep(max(0.0, due - time.perf_counter()))
        while time.perf_counter() < due:
            pass

    def _cpu(self) -> float:
        clients = time.process_time() if self.rate in SLEEPING else 0.0
        return clients + process_cpu(self.device.pid)

    def as_json(self) -> dict[str, Any]:
        """As `--json` writes it."""
        return {
            "name": self.name,
            "median_ns": round(float(np.median(self.latencies)), 1),
            "p99_ns": round(float(np.percentile(self.latencies, 99)), 1),
            "p999_ns": round(float(np.percentile(self.latencies, 99.9)), 1),
            "per_second": self.rate,
            "cpu_share": round(self.cpu_s / self.wall_s, 4),
        }


def process_cpu(pid: int) -> float:
    """Seconds of CPU time that a process has used."""
    return time.clock_gettime((~pid << 3) | 2)


@contextmanager
def periodic_callers(core: int) -> Iterator[list[Caller]]:
    """Callers at some rates, each with a driver that learns the period and with one that always spins."""
    with (
        null_driver(core) as learning,
        null_driver(core, polling_window_us=_FOREVER_US) as spinning,
        ExitStack() as stack,
    ):
        callers = []
        for rate in (*COMPUTING, *SLEEPING):
            for kind, device in (("learning", learning), ("spinning", spinning)):
                _, bound = open_bound(stack, device, adding_model(1, 1))
                callers.append(Caller(f"periodic_{rate}hz_{kind}", rate, bound, device))
        for device in (learning, spinning):
            os.kill(device.pid, signal.SIGSTOP)
        try:
            yield callers
        finally:
            for device in (learning, spinning):
                os.kill(device.pid, signal.SIGCONT)


def idle_share(device: Device, seconds: float) -> float:
    """The share of a core that client and driver use between calls."""
    began = time.process_time() + process_cpu(device.pid), time.perf_counter()
    time.sleep(seconds)
    used = time.process_time() + process_cpu(device.pid) - began[0]
    return used / (time.perf_counter() - began[1])
