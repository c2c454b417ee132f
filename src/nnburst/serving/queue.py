"""Queues the requests of a model by priority until a lane is free or they are given up.

A lane executes one request at a time. The queue has no threads: the thread that submits a request executes it
at once if a lane is free, and then the requests that wait. So a model takes as many threads as it has lanes,
however many requests wait, and a request that finds a free lane stays on its thread. One clock for the whole
front answers requests whose deadline passes, even while they execute. An engine cannot be interrupted, so
their lanes stay busy until it is done.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from abc import ABC, abstractmethod
from bisect import insort
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import Any, Final, Generic, NamedTuple, TypeVar

from nnburst.hal.errors import DeviceUnavailable, MissedDeadline, NnburstError, ResourceExhausted
from nnburst.hal.utils import Closing, start_thread

logger = logging.getLogger(__name__)

L = TypeVar("L")
#: Priority of a request without one; 1 is served first.
DEFAULT_PRIORITY: Final = 5
_NEVER: Final = math.inf


class Batching(NamedTuple):
    """Limits of batches.

    Attributes:
        rows: greatest number of rows of a batch; 1 for no batches.
        delay: seconds that the first request of a batch waits for others.
    """

    rows: int = 1
    delay: float = 0.0


class Job(ABC):
    """A request that is answered once: by `run`, `refuse` or its cancellation. Thread-safe.

    Attributes:
        deadline_ns: time on CLOCK_MONOTONIC by which it must be answered.
        priority: requests with a lower number run first.
        key: requests with the same key run one at a time, in order of arrival; None for no key.
        size: bytes that it holds while it waits.
        number: order of arrival in the queue.
        form: requests of the same form can be executed together; None if it must run alone.
        rows: rows of a batch that it fills.
    """

    form: Hashable = None
    rows = 1

    def __init__(
        self,
        deadline_ns: int,
        *,
        priority: int = DEFAULT_PRIORITY,
        key: Hashable = None,
        size: int = 0,
    ) -> None:
        """Make a request without an answer."""
        self.deadline_ns = deadline_ns
        self.priority = priority if key is None else DEFAULT_PRIORITY
        self.key = key
        self.size = size
        self.number = 0
        self._answer = threading.Lock()

    def settle(self) -> bool:
        """Claim the right to answer; only the first call returns True."""
        return self._answer.acquire(blocking=False)

    @property
    def settled(self) -> bool:
        """Whether the request was answered, or is about to be."""
        return self._answer.locked()

    @abstractmethod
    def run(self, lane: Any) -> None:  # noqa: ANN401 - a lane from `open`
        """Execute and answer; raise nothing."""

    def run_with(self, others: list[Any], lane: Any) -> None:  # noqa: ANN401 - others of its class
        """Execute this request and `others` of its form, and answer each; raise nothing."""
        for each in (self, *others):
            each.run(lane)

    @abstractmethod
    def refuse(self, error: NnburstError) -> None:
        """Answer with an error, unless the request was answered; raise nothing."""


class RequestQueue(Generic[L]):
    """The requests of one model that wait or run. Thread-safe.

    Attributes:
        most: greatest number of waiting requests.
        most_bytes: greatest number of bytes that these hold.
    """

    def __init__(
        self,
        model: str,
        most: int,
        most_bytes: int,
        clock: Clock,
        batching: Batching = Batching(),  # noqa: B008 - it is immutable
    ) -> None:
        """Start without lanes, so that requests wait until `open`.

        Args:
            model: name of the model, for errors.
            most: greatest number of waiting requests; more are refused.
            most_bytes: greatest number of bytes that these hold.
            clock: clock that must call `look`.
            batching: limits of batches.
        """
        self._batching = batching
        #: Free rows of batches that wait for more requests, by form.
        self._room: dict[Hashable, int] = {}
        self.most, self.most_bytes = most, most_bytes
        self._model = model
        self._clock = clock
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._joined = threading.Condition(self._lock)
        self._lanes: list[L] = []
        #: The waiting requests, in the order in which they run.
        self._waiting: list[Job] = []
        self._running: set[Job] = set()
        self._busy: set[Hashable] = set()
        self._bytes = self._came = 0
        #: Requests that came after `park`; None before it.
        self._parked: list[Job] | None = None
        self._closed = False

    def __len__(self) -> int:
        """The number of waiting requests."""
        return len(self._waiting)

    def open(self, lanes: Iterable[L]) -> None:
        """Add lanes; call this before there are requests."""
        with self._lock:
            self._lanes.extend(lanes)

    def submit(
        self, job: Job, hand_over: Callable[[Callable[[], None]], object] | None = None
    ) -> None:
        """Execute a request if a lane is free, and then the waiting ones; otherwise let it wait.

        Args:
            job: the request.
            hand_over: runs a function on another thread, if the caller's thread is not to execute others'
                requests.

        Raises:
            ResourceExhausted: the queue is full, and no waiting request of lower priority can be refused
                instead.
            DeviceUnavailable: the queue was closed.
        """
        lane: L | None = None
        displaced: list[Job] = []
        with self._lock:
            if self._closed:
                raise self._refusal()
            if job.settled and job.key is None:
                return  # its caller is gone; with a key it may still have to end a sequence
            if self._parked is not None:
                self._parked.append(job)
                return
            joins = job.form is not None and self._room.get(job.form, 0) >= job.rows
            if self._lanes and job.key not in self._busy and not joins:
                lane = self._lanes.pop()
                self._start(job)
            else:
                displaced = self._make_room(job)
                self._came += 1
                job.number = self._came
                self._bytes += job.size
                insort(self._waiting, job, key=_order)
                if joins:
                    self._room[job.form] -= job.rows
                    self._joined.notify_all()
        for other in displaced:
            other.refuse(self._full())
        self._clock.look_by(job.deadline_ns)
        if lane is not None:
            self._work(lane, job, hand_over)

    def abandon(self, job: Job) -> None:
        """Remove a waiting request; a running one keeps its lane until it is done."""
        with self._lock:
            if job in self._waiting:
                self._waiting.remove(job)
                self._bytes -= job.size
                self._idle.notify_all()

    def look(self, now_ns: int) -> float:
        """Refuse requests that missed their deadlines; return the next deadline, on CLOCK_MONOTONIC."""
        with self._lock:
            late = [job for job in self._waiting if job.deadline_ns <= now_ns]
            for job in late:
                self._waiting.remove(job)
                self._bytes -= job.size
            running = [job for job in self._running if not job.settled]
            late_running = [job for job in running if job.deadline_ns <= now_ns]
            left = (
                job.deadline_ns for job in (*self._waiting, *running) if job.deadline_ns > now_ns
            )
            earliest = min(left, default=_NEVER)
            if late:
                self._idle.notify_all()
        for job in late:
            job.refuse(MissedDeadline(f"timeout: model {self._model!r} was busy until then"))
        for job in late_running:
            job.refuse(MissedDeadline(f"timeout: passed while model {self._model!r} executed it"))
        return earliest

    def park(self) -> None:
        """Execute present requests, and hold new ones until `release` refuses them."""
        with self._lock:
            self._parked = []

    def release(self) -> None:
        """Refuse the requests since `park`, and all new ones."""
        with self._lock:
            self._closed = True
            parked, self._parked = self._parked or [], []
        for job in parked:
            job.refuse(self._refusal())

    def wait_until_idle(self, seconds: float) -> bool:
        """Wait until no request waits or runs; False after `seconds`."""
        with self._lock:
            return self._idle.wait_for(lambda: not (self._waiting or self._running), seconds)

    def close(self) -> None:
        """Refuse waiting and new requests, and drop the lanes; running requests go on."""
        self.release()
        with self._lock:
            waiting, self._waiting, self._bytes = self._waiting, [], 0
            self._lanes.clear()
            self._idle.notify_all()
        for job in waiting:
            job.refuse(self._refusal())

    def _work(
        self, lane: L, job: Job, hand_over: Callable[[Callable[[], None]], object] | None
    ) -> None:
        following: Job | None = job
        while following is not None:
            job = following
            others = self._gather(job) if self._batching.rows > 1 else []
            try:
                if others:
                    job.run_with(others, lane)
                else:
                    job.run(lane)
            finally:
                with self._lock:
                    self._running.difference_update(others)
                    following = self._next(lane, job)
            if following is not None and hand_over is not None:
                try:
                    hand_over(partial(self._work, lane, following, None))
                except RuntimeError:  # its threads have ended, so this one goes on
                    hand_over = None
                else:
                    return

    def _gather(self, job: Job) -> list[Job]:
        """Collect the batch of `job`: waiting requests of its form, and those that come within the delay."""
        form, found, rows = job.form, list[Job](), job.rows
        if form is None:
            return found
        until = time.monotonic() + self._batching.delay
        with self._lock:
            while True:
                for other in [each for each in self._waiting if each.form == form]:
                    if rows + other.rows <= self._batching.rows:
                        self._waiting.remove(other)
                        self._bytes -= other.size
                        self._running.add(other)
                        found.append(other)
                        rows += other.rows
                left = until - time.monotonic()
                if rows >= self._batching.rows or left <= 0 or form in self._room or self._closed:
                    break
                self._room[form] = self._batching.rows - rows
                self._joined.wait(left)
                del self._room[form]
        return found

    def _start(self, job: Job) -> None:
        self._running.add(job)
        if job.key is not None:
            self._busy.add(job.key)

    def _next(self, lane: L, job: Job) -> Job | None:
        """Choose the request that runs next on `lane`; None leaves the lane free."""
        self._running.discard(job)
        self._busy.discard(job.key)
        for place, waiting in enumerate(self._waiting):
            if waiting.key is None or waiting.key not in self._busy:
                del self._waiting[place]
                self._bytes -= waiting.size
                self._start(waiting)
                return waiting
        self._lanes.append(lane)
        self._idle.notify_all()
        return None

    def _make_room(self, job: Job) -> list[Job]:
        """Remove waiting requests of lower priority until there is room for `job`."""
        count, size = len(self._waiting) + 1, self._bytes + job.size
        lowest = len(self._waiting)
        while count > self.most or size > self.most_bytes:
            if lowest == 0 or self._waiting[lowest - 1].priority <= job.priority:
                raise self._full()
            lowest -= 1
            count -= 1
            size -= self._waiting[lowest].size
        displaced = self._waiting[lowest:]
        del self._waiting[lowest:]
        self._bytes -= sum(other.size for other in displaced)
        return displaced

    def _full(self) -> ResourceExhausted:
        return ResourceExhausted(
            f"model {self._model!r}: its queue is full, it has {self.most} requests or"
            f" {self.most_bytes} bytes (--max-queue)"
        )

    def _refusal(self) -> DeviceUnavailable:
        return DeviceUnavailable(f"model {self._model!r}: the server is ending")


def _order(job: Job) -> tuple[int, int]:
    return job.priority, job.number


class Clock(Closing):
    """A thread that checks deadlines: when the next one passes, and once a period. Thread-safe."""

    def __init__(self, period: float) -> None:
        """Keep the period; the thread begins with `start`.

        Args:
            period: greatest number of seconds between two checks.
        """
        self._period_ns = int(period * 1e9)
        self._wake = threading.Condition()
        self._looks: list[Callable[[int], float]] = []
        #: Time of the next check, and the earliest time that was requested during a check.
        self._next = self._asked = _NEVER
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="clock", daemon=True)

    def start(self, looks: Iterable[Callable[[int], float]]) -> None:
        """Call each of `looks` with the present time; each returns the time when it must be called again.

        Raises:
            ResourceExhausted: this process may have no more threads.
        """
        self._looks.extend(looks)
        start_thread(self._thread)

    def look_by(self, moment_ns: float) -> None:
        """Check again at this time at the latest."""
        # A check under way misses nothing: it resets `_next` first, and the caller has added its deadline
        # before this call.
        if moment_ns < self._next:
            with self._wake:
                self._asked = min(self._asked, moment_ns)
                self._wake.notify()

    def close(self) -> None:
        """End the thread; twice is fine."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(1.0)

    def _run(self) -> None:
        while not self._closed:
            with self._wake:
                self._next = self._asked = _NEVER
            now = time.monotonic_ns()
            following = float(now + self._period_ns)
            for look in self._looks:
                try:
                    following = min(following, look(now))
                except Exception:
                    logger.exception("a look at deadlines failed, it is tried again")
            with self._wake:
                while not self._closed:
                    self._next = min(following, self._asked)
                    left = self._next - time.monotonic_ns()
                    if left <= 0:
                        break
                    self._wake.wait(left / 1e9)
