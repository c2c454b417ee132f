"""Pipeline: several requests of a plan under way at once, each on another step."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Final

from nnburst.client.session.gate import entries, leave
from nnburst.hal.enums import ResultCode
from nnburst.hal.errors import BurstBusy, NnburstError
from nnburst.runtime.argument import Argument, BurstController, Options, Outcome
from nnburst.runtime.execution.bound_plan import BoundPlan
from nnburst.runtime.execution.bursts import Bursts

#: Executes the rest of a plan: what stands for the bursts of the steps, and the time that is left.
GoOn = Callable[[BoundPlan, Sequence[BurstController | None], Options], Outcome]


class PlanInFlight:
    """A request that is under way. Any thread may wait for it."""

    def __init__(self, bound: BoundPlan, timeout: float, settled: Callable[[], None]) -> None:
        """Execute `bound` within `timeout` seconds; `settled` is called when that is over."""
        self.bound: Final = bound
        self._deadline: Final = time.monotonic() + timeout
        self._settled: Final = settled
        self._done: Final = threading.Event()
        self._ended: Sequence[BurstController] | None = None
        self._outcome: Outcome | NnburstError | None = None

    @property
    def seconds_left(self) -> float:
        """Until its deadline."""
        return self._deadline - time.monotonic()

    def run(self, step: int) -> None:
        """Run a step, unless one before it has failed. Never raises for what comes of it."""
        if self._ended is None and self._outcome is None:
            try:
                self._ended = self.bound.run_step(step, self.seconds_left)
            except NnburstError as error:
                self._outcome = error

    def settle(self, go_on: Callable[[PlanInFlight, Sequence[BurstController]], Outcome]) -> None:
        """Note what came of it; `go_on` executes the rest if a step has failed."""
        if self._outcome is None:
            try:
                if self._ended is not None:
                    self._outcome = go_on(self, self._ended)
                else:
                    self._outcome = self.bound.outcome
                if self._outcome.code == ResultCode.NO_ERROR:
                    self.bound.copy_out()
            except NnburstError as error:
                self._outcome = error
        self._settled()
        self._done.set()

    def wait(self, timeout: float) -> Outcome | None:
        """What came of it, as soon as that is known; None if it is not in `timeout` seconds.

        Raises:
            Closed: the burst or a pool was closed.
        """
        if not self._done.wait(timeout):
            return None
        if isinstance(self._outcome, NnburstError):
            raise self._outcome
        return self._outcome


class Pipeline:
    """One thread for each step: a request goes from one to the next while others follow. Thread-safe.

    While requests are under way the gate of the bursts is closed to all others.
    """

    def __init__(self, bursts: Bursts, most: int, go_on: GoOn) -> None:
        """Keep up to `most` requests under way on `bursts`; threads start with the first one."""
        self._bursts: Final = bursts
        self._most: Final = most
        self._go_on: Final = go_on
        self._locks: Final = [threading.Lock() for _ in bursts.of_parts]
        self._inboxes: Final = [SimpleQueue[PlanInFlight | None]() for _ in bursts.of_parts]
        self._threads: list[threading.Thread] = []
        self._lock: Final = threading.Lock()
        self._entry = 0
        self._count = 0

    def submit(self, request: PlanInFlight) -> None:
        """Begin a request; its inputs are not to be changed until it is settled.

        Raises:
            BurstBusy: as many as agreed are under way, or another execution computes on the bursts.
        """
        with self._lock:
            if self._count >= self._most:
                raise BurstBusy(f"{self._most} requests are under way, as many as agreed")
            if not self._count:
                self._entry = next(entries)
                self._bursts.gate.enter(self._entry)
            self._count += 1
            if not self._threads:
                self._start()
        request.bound.copy_in()
        self._inboxes[0].put(request)

    def _start(self) -> None:
        for step in range(len(self._inboxes)):
            thread = threading.Thread(
                target=self._serve, args=(step,), name=f"nnburst step {step}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def _serve(self, step: int) -> None:
        is_last = step + 1 == len(self._inboxes)
        while (request := self._inboxes[step].get()) is not None:
            with self._locks[step]:
                request.run(step)
            if is_last:
                self._settle(request)
            else:
                self._inboxes[step + 1].put(request)
        if not is_last:
            self._inboxes[step + 1].put(None)

    def _settle(self, request: PlanInFlight) -> None:
        try:
            request.settle(self._rest)
        finally:
            with self._lock:
                self._count -= 1
                if not self._count:
                    leave(self._bursts.gate.struct, self._entry)

    def _rest(self, request: PlanInFlight, ended: Sequence[BurstController]) -> Outcome:
        """Execute what a failed step leaves, between the steps of the requests that follow."""
        pairs = zip(self._bursts.of_parts, self._locks, strict=True)
        bursts: list[BurstController | None] = [
            None if burst is None else _InTurn(burst, lock) for burst, lock in pairs
        ]
        now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        options = Options(deadline_ns=now + int(request.seconds_left * 1e9))
        return self._go_on(request.bound, [*ended, *bursts[len(ended) :]], options)

    def close_soon(self) -> None:
        """End the threads behind what is under way, without waiting for them."""
        self._inboxes[0].put(None)

    def close(self) -> None:
        """End the threads, once the bursts are closed, so that nothing waits any more."""
        with self._lock:
            threads, self._threads = self._threads, []
        if threads:
            self._inboxes[0].put(None)
        for thread in threads:
            thread.join()


class _InTurn:
    """A burst that a thread of the pipeline uses, too."""

    def __init__(self, burst: BurstController, lock: threading.Lock) -> None:
        self._burst: Final = burst
        self._lock: Final = lock

    def revive(self, seconds: float | None, began_ns: int | None) -> None:
        """Nothing: a driver that died is there again for the requests that are submitted later."""

    def execute(self, inputs: list[Argument], outputs: list[Argument], options: Options) -> Outcome:
        """Execute once, between two of the thread's."""
        with self._lock:
            return self._burst.execute(inputs, outputs, options)

    def close(self) -> None:
        """Nothing: the burst is the pipeline's."""
