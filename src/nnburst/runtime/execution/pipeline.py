"""Executes several requests of a plan at once, each in a different step."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Final

from nnburst.client.arguments import seconds_until
from nnburst.client.session.gate import entries, leave
from nnburst.hal.enums import ResultCode
from nnburst.hal.errors import BurstBusy, GeneralFailure, NnburstError, OutOfMemory
from nnburst.hal.utils import OneTimeEvent, start_thread
from nnburst.runtime.argument import Argument, BurstController, Options, Outcome
from nnburst.runtime.execution.bound_plan import BoundPlan, Bursts

#: Executes the rest of a plan; bursts of steps that have run are replaced by substitutes.
GoOn = Callable[[BoundPlan, Sequence[BurstController | None], Options], Outcome]


class PlanInFlight:
    """A request that is under way. Any thread may wait for it."""

    def __init__(self, bound: BoundPlan, deadline_ns: int, settled: Callable[[], None]) -> None:
        """Execute `bound` until a deadline on CLOCK_BOOTTIME; `settled` is called at the end."""
        self.bound: Final = bound
        self.deadline_ns: Final = deadline_ns
        self._settled: Final = settled
        self._done: Final = OneTimeEvent()
        self._claim: Final = threading.Lock()  # its first taker decides whether it runs
        self._is_cancelled = False
        #: Whether no one waits for the result.
        self.is_abandoned = False
        self._ended: Sequence[BurstController] | None = None
        self._outcome: Outcome | NnburstError | None = None
        #: Called by the thread that settles the request; for event loops.
        self.settled_callbacks: Final[list[Callable[[], None]]] = []

    @property
    def is_done(self) -> bool:
        """Whether the outcome is known."""
        return self._done.is_set()

    def begin(self) -> bool:
        """Let the calling thread run the request; False if its submission has failed."""
        return self._claim.acquire(blocking=False)

    def cancel(self) -> bool:
        """Keep threads from running the request; False if one has begun.

        A signal handler may raise anywhere in a submission; only this call shows then whether the request
        runs.
        """
        if self._claim.acquire(blocking=False):
            self._is_cancelled = True
        return self._is_cancelled

    @property
    def seconds_left(self) -> float:
        """Seconds until the request's deadline."""
        return seconds_until(self.deadline_ns)

    def run(self, step: int) -> None:
        """Run a step, unless an earlier one has failed. Keep its error instead of raising it."""
        if self._ended is None and self._outcome is None:
            try:
                self._ended = self.bound.run_step(step, self.seconds_left)
            except Exception as error:
                self._outcome = _failure(error)

    def settle(self, go_on: Callable[[PlanInFlight, Sequence[BurstController]], Outcome]) -> None:
        """Find the outcome; if a step has failed, `go_on` executes the rest."""
        if self._outcome is None:
            try:
                if self._ended is not None:
                    self._outcome = go_on(self, self._ended)
                else:
                    self._outcome = self.bound.outcome
                if self._outcome.code == ResultCode.NO_ERROR:
                    self.bound.copy_out()
            except Exception as error:
                self._outcome = _failure(error)
        self._settled()

    def announce(self) -> None:
        """Wake the threads and event loops that wait for the outcome."""
        self._done.set()
        for tell in tuple(self.settled_callbacks):
            tell()

    def wait(self, timeout: float) -> Outcome | None:
        """Wait for the outcome; None if it is not known in `timeout` seconds or by the request's deadline.

        So this returns at the deadline even if the request still waits for its turn.

        Raises:
            Closed: the burst or a pool was closed.
        """
        if not self._done.wait(max(min(timeout, self.seconds_left), 0.0)):
            return None
        if isinstance(self._outcome, NnburstError):
            raise self._outcome
        return self._outcome


def _failure(error: Exception) -> NnburstError:
    """The error of a request whose step raised `error`; the thread goes on with the next request."""
    if isinstance(error, NnburstError):
        return error
    kind = OutOfMemory if isinstance(error, MemoryError) else GeneralFailure
    return kind(f"a step of the plan failed: {error!r}")


class Pipeline:
    """One thread for each step: a request goes from one to the next while others follow. Thread-safe.

    While requests are under way, the gate of the bursts admits no other execution.
    """

    def __init__(self, bursts: Bursts, most: int, go_on: GoOn) -> None:
        """Allow up to `most` requests at once on `bursts`; the first request starts the threads."""
        self._bursts: Final = bursts
        self._most: Final = most
        self._go_on: Final = go_on
        self._locks: Final = [threading.Lock() for _ in bursts.of_parts]
        self._inboxes: Final = [SimpleQueue[PlanInFlight | None]() for _ in bursts.of_parts]
        #: The threads of each step; more than one if a signal handler has raised in a start.
        self._threads: Final[list[list[threading.Thread]]] = [[] for _ in bursts.of_parts]
        self._is_served: Final = [False] * len(self._inboxes)
        # Reentrant: a signal handler may call while its thread is in here; its submission is refused.
        self._lock: Final = threading.RLock()
        self._is_admitting = False
        self._entry = 0
        self._under_way: Final[set[PlanInFlight]] = set()

    @property
    def has_room(self) -> bool:
        """Whether one more request may be submitted."""
        return len(self._under_way) < self._most

    @property
    def under_way(self) -> tuple[PlanInFlight, ...]:
        """The requests that are under way now."""
        return tuple(self._under_way)

    def submit(self, request: PlanInFlight) -> None:
        """Begin a request; its inputs must not change until it is settled.

        Raises:
            BurstBusy: `most` requests are under way, or another execution computes on the bursts.
            ResourceExhausted: the process may have no more threads.
        """
        try:
            with self._lock:
                self._admit(request)
            request.bound.copy_in()
            self._inboxes[0].put(request)
        except BaseException:  # of a signal handler, too: a thread may run it by now
            if request.cancel():
                self._release(request)
            raise

    def _admit(self, request: PlanInFlight) -> None:
        if self._is_admitting:
            raise BurstBusy("a signal handler cannot submit: it interrupts a submission")
        self._is_admitting = True
        try:
            self._enter(request)
            if not all(self._is_served):
                self._start()
        finally:
            self._is_admitting = False

    def _enter(self, request: PlanInFlight) -> None:
        if len(self._under_way) >= self._most:
            raise BurstBusy(f"{self._most} requests are under way, as many as agreed")
        is_first = not self._under_way
        self._under_way.add(request)  # first: `_release` undoes both
        if is_first:
            self._entry = next(entries)
            self._bursts.gate.enter(self._entry)

    def _start(self) -> None:
        """Start the threads that are missing: all, or those that an earlier call could not start."""
        for step, threads in enumerate(self._threads):
            if any(thread.is_alive() for thread in threads):
                continue
            thread = threading.Thread(
                target=self._serve, args=(step,), name=f"nnburst step {step}", daemon=True
            )
            threads.append(thread)
            start_thread(thread)

    def _serve(self, step: int) -> None:
        with self._lock:
            if self._is_served[step]:
                return  # a signal handler has raised while the first thread started
            self._is_served[step] = True
        is_first, is_last = step == 0, step + 1 == len(self._inboxes)
        while (request := self._inboxes[step].get()) is not None:
            if is_first and not request.begin():
                self._release(request)  # the submission has failed
            else:
                with self._locks[step]:
                    request.run(step)
                if is_last:
                    self._settle(request)
                else:
                    self._inboxes[step + 1].put(request)
            # While this thread waits it must not keep the request: that keeps the burst, whose end ends this.
            del request
        if not is_last:
            self._inboxes[step + 1].put(None)

    def _settle(self, request: PlanInFlight) -> None:
        try:
            request.settle(self._rest)
        finally:
            self._release(request)  # first: who has the result may submit the next request at once
            request.announce()

    def _release(self, request: PlanInFlight) -> None:
        """Remove a request from those under way, if it is one of them."""
        with self._lock:
            if request not in self._under_way:
                return
            if len(self._under_way) == 1:  # first: who sees none under way may enter at once
                leave(self._bursts.gate.struct, self._entry)
            self._under_way.discard(request)

    def _rest(self, request: PlanInFlight, ended: Sequence[BurstController]) -> Outcome:
        """Execute the rest of a request whose step has failed, between the steps of the next requests."""
        pairs = zip(self._bursts.of_parts, self._locks, strict=True)
        bursts: list[BurstController | None] = [
            None if burst is None else _InTurn(burst, lock) for burst, lock in pairs
        ]
        options = Options(deadline_ns=request.deadline_ns, is_final=True)
        return self._go_on(request.bound, [*ended, *bursts[len(ended) :]], options)

    def close_soon(self) -> None:
        """Let the threads end after the requests under way, without waiting for that."""
        self._inboxes[0].put(None)

    def close(self) -> None:
        """End the threads and wait for that; the caller closes the bursts first, so that no thread waits."""
        self._inboxes[0].put(None)
        for thread in [thread for threads in self._threads for thread in threads]:
            if thread.is_alive():
                thread.join()


class _InTurn:
    """A burst that a thread of the pipeline uses, too; a lock guards it."""

    def __init__(self, burst: BurstController, lock: threading.Lock) -> None:
        self._burst: Final = burst
        self._lock: Final = lock

    died_ns: Final = None

    def revive(self) -> None:
        """Do nothing: only requests that are submitted later may go to a driver that was started again."""

    def execute(self, inputs: list[Argument], outputs: list[Argument], options: Options) -> Outcome:
        """Execute once, between two steps of the thread."""
        with self._lock:
            return self._burst.execute(inputs, outputs, options)

    def close(self) -> None:
        """Do nothing: the pipeline owns the burst."""
