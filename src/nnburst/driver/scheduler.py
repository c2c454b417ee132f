"""Decides when a client's work runs: quick calls at once, executions and preparations by priority.

NNAPI: priority is relative among the prepared models of one client; higher may starve lower. Between
clients the kernel decides: each has a process of its own.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Final

from nnburst.control.channel import MAX_NOTIFICATIONS
from nnburst.fmq.cores import thread_budget
from nnburst.hal.enums import Priority
from nnburst.hal.errors import GeneralFailure, ResourceExhausted

logger = logging.getLogger(__name__)

Job = Callable[[], None]

#: Most jobs of one kind that may wait.
_CAPACITY: Final = MAX_NOTIFICATIONS
#: Seconds without a job after which a thread ends, unless it is the last one of its kind.
_REST: Final = 10.0
#: Increase of niceness of a thread for LOW work: it gets a tenth of the others' share of a core.
NICER: Final = 10


class Work(Enum):
    """Kinds of jobs; those of one kind never wait for another."""

    CALL = "nnburst call"
    """Answered soon: release, freeMemory, copies."""

    INQUIRY = "nnburst inquiry"
    """Looks at a whole model: getSupportedOperations, the check before a preparation."""

    START = "nnburst start"
    """Checks and binds a request whose execution comes later."""

    PREPARATION = "nnburst preparation"
    """The executor's part of prepareModel."""

    EXECUTION = "nnburst execution"
    """An execution over the socket. Bursts have threads of their own."""


class Scheduler:
    """Runs one client's jobs. Thread-safe. It ends only with its process.

    `submit(job, model.priority)` is for executions. Of the waiting jobs, HIGH ones run before MEDIUM, and
    those before LOW; a running job is never interrupted. LOW jobs run on threads with higher niceness.
    """

    def __init__(self, lanes: int | None = None) -> None:
        """Create the lanes without starting a thread.

        Args:
            lanes: most executions that run at once, without LOW ones; by default as many as can compute at
                once, and at least four, since an executor may wait for a device.
        """
        cores = thread_budget()
        executions = lanes or max(4, cores)
        self._lanes: Final = {
            Work.CALL: Lanes(Work.CALL.value, 16, capacity=_CAPACITY),
            Work.INQUIRY: Lanes(Work.INQUIRY.value, max(2, cores), capacity=_CAPACITY),
            Work.START: Lanes(Work.START.value, max(2, cores), capacity=_CAPACITY),
            Work.PREPARATION: _with_low(Work.PREPARATION, max(2, cores)),
            Work.EXECUTION: _with_low(Work.EXECUTION, executions),
        }

    def submit(
        self, job: Job, priority: Priority = Priority.MEDIUM, work: Work = Work.EXECUTION
    ) -> None:
        """Run `job` when its turn comes.

        Args:
            job: reports its failures by itself.
            priority: the priority of the prepared model.
            work: the kind of the job.

        Raises:
            ResourceExhausted: too many jobs of its kind are waiting.
            GeneralFailure: device:P9: no thread can be started.
        """
        self._lanes[work].submit(job, priority)

    def waiting(self, work: Work) -> bool:
        """Whether jobs of a kind are waiting; exact only for the thread that submits them."""
        return self._lanes[work].waiting


def _with_low(work: Work, lanes: int) -> Lanes:
    return Lanes(work.value, lanes, low_lanes=lanes, capacity=_CAPACITY)


def be_nice() -> None:
    """Raise the niceness of the calling thread; an unprivileged thread cannot lower it again.

    Linux keeps niceness per thread, so other threads are not affected.
    """
    os.setpriority(
        os.PRIO_PROCESS,
        threading.get_native_id(),
        min(19, os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) + NICER),
    )


class Lanes:
    """A bounded queue of jobs and the threads that run them. Thread-safe.

    A job starts when no job of a higher priority is waiting; jobs of one priority start in order. LOW jobs
    have their own threads, with higher niceness. Threads start when needed. The most recently busy thread
    gets the next job, so that surplus threads stay idle and end; the last thread stays.
    """

    def __init__(self, name: str, lanes: int, *, low_lanes: int = 0, capacity: int) -> None:
        """Run at most `lanes` jobs at once.

        Args:
            name: the name of the threads.
            lanes: most threads for all jobs, or for all except LOW ones.
            low_lanes: most threads for LOW jobs; 0 to run them with the others.
            capacity: most jobs that may wait.
        """
        self._name = name
        self._capacity = capacity
        self._lock = threading.Lock()
        self._waiting: dict[Priority, deque[Job]] = {
            priority: deque() for priority in (Priority.HIGH, Priority.MEDIUM, Priority.LOW)
        }
        self._usual = _Crew(lanes)
        self._low = _Crew(low_lanes) if low_lanes else self._usual

    def submit(self, job: Job, priority: Priority = Priority.MEDIUM) -> None:
        """Queue `job` for one of the threads.

        Args:
            job: reports its failures by itself; its exceptions are only logged.
            priority: priority among the queued jobs.

        Raises:
            ResourceExhausted: the queue is full.
            GeneralFailure: device:P9: no thread can be started.
        """
        crew = self._crew(priority)
        with self._lock:
            if sum(map(len, self._waiting.values())) >= self._capacity:
                raise ResourceExhausted(
                    f"{self._capacity} jobs are waiting for a {self._name}, as many as may wait"
                )
            self._waiting[priority].append(job)
            # Woken threads count as idle until they run, so compare the number of jobs with the idle threads.
            grow = self._jobs_of(crew) > crew.idle and crew.threads < crew.limit
            crew.threads += grow
            crew.wake()
        if grow:
            self._start(crew, job, priority)

    @property
    def waiting(self) -> bool:
        """Whether jobs wait for a thread."""
        return any(self._waiting.values())

    def _start(self, crew: _Crew, job: Job, priority: Priority) -> None:
        try:
            threading.Thread(target=self._serve, args=(crew,), name=self._name, daemon=True).start()
        except (RuntimeError, MemoryError) as error:
            with self._lock:
                crew.threads -= 1
                if crew.threads or job not in self._waiting[priority]:
                    return  # another thread will run it
                self._waiting[priority].remove(job)
            raise GeneralFailure(f"device:P9: cannot start a thread: {error}") from error

    def _serve(self, crew: _Crew) -> None:
        if crew is not self._usual:
            be_nice()
        bell = threading.Semaphore(0)
        while (job := self._next(crew, bell)) is not None:
            try:
                job()
            except BaseException:  # SystemExit too: an ended thread would still be counted
                logger.exception("a job raised; its lane goes on with the next")
            del job  # free its objects before the next job comes

    def _next(self, crew: _Crew, bell: threading.Semaphore) -> Job | None:
        """Wait for the next job; returns None if the thread is to end, after a time without jobs."""
        while True:
            with self._lock:
                if queue := self._foremost(crew):
                    job = queue.popleft()
                    if self._waiting[Priority.LOW]:
                        self._low.wake()  # its jobs may have waited for this one
                    return job
                crew.idle += 1
                crew.resting.append(bell)
                patience = None if crew.threads == 1 else _REST
            rung = bell.acquire(timeout=patience)
            with self._lock:
                crew.idle -= 1
                if rung:
                    continue
                if bell not in crew.resting:
                    bell.acquire()  # woken just after the timeout
                    continue
                crew.resting.remove(bell)
                if crew.threads > 1:
                    crew.threads -= 1
                    return None

    def _jobs_of(self, crew: _Crew) -> int:
        return sum(
            len(jobs) for priority, jobs in self._waiting.items() if self._crew(priority) is crew
        )

    def _crew(self, priority: Priority) -> _Crew:
        return self._low if priority == Priority.LOW else self._usual

    def _foremost(self, crew: _Crew) -> deque[Job] | None:
        """The queue of the waiting jobs with the highest priority, if they are for this crew."""
        for priority, queue in self._waiting.items():
            if queue:
                return queue if self._crew(priority) is crew else None
        return None


class _Crew:
    """A group of threads that run the same kinds of jobs."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.threads = 0
        self.idle = 0
        #: The semaphores of the sleeping threads; that of the thread which fell asleep last comes last.
        self.resting: list[threading.Semaphore] = []

    def wake(self) -> None:
        """Wake the thread that fell asleep last; the lanes' lock is held."""
        if self.resting:
            self.resting.pop().release()
