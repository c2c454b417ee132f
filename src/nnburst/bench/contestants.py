"""The contestants: each runs a block of exchanges and returns its duration."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from nnburst._native import ffi, lib
from nnburst.bench.peer import Peer

Samples = npt.NDArray[np.uint64]

_REQUEST_ELEMENTS: Final = 11
_RESULT_ELEMENTS: Final = 3
#: Exchanges before each block that are not counted.
WARM_UP: Final = 100
#: Blocks of which one must be answered; on a machine that others use a peer can lose its core for a second.
_ATTEMPTS: Final = 5


class Contestant(Protocol):
    """One case."""

    @property
    def name(self) -> str:
        """Of the case."""

    def block(self, count: int) -> float:
        """Exchange `count` times; nanoseconds for each, without reading a clock in between."""

    def samples(self, count: int) -> Samples:
        """Exchange `count` times; nanoseconds of each one, a clock reading included."""


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
        return np.diff(np.asarray(stamps, np.int64)).astype(np.uint64)

    def _wake(self) -> None:
        """Exchange until the other side is awake and the lines are here, as before every block in C."""
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
            self._exchange(WARM_UP, ffi.NULL)  # the peer is awake and the lines are here
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
    """11 elements there and 3 back through the queue's C functions."""

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
    """A futex wake and a futex sleep on each side, nothing else."""

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
    """What entering C from Python costs: as cffi does it, and keeping the interpreter lock."""
    return [
        Looped("empty_cffi_call", partial(lib.nnb_empty_call_unlocked, 1)),
        Looped("empty_cffi_call_lock_kept", partial(lib.nnb_empty_call, 1)),
    ]
