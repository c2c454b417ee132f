"""What of a client's work runs when: quick calls at once, executions and preparations by priority.

NNAPI: priority is relative among the prepared models of one client; higher may starve lower. Between
clients the kernel decides: each has a process of its own.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from nnburst.control.limits import MAX_NOTIFICATIONS
from nnburst.driver.session.lanes import Job, Lanes
from nnburst.fmq.cores import thread_budget
from nnburst.hal.enums import Priority

#: Jobs of one kind that may wait.
_CAPACITY: Final = MAX_NOTIFICATIONS


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
    """Runs one client's jobs. Thread-safe. It has no end but its process's.

    `submit(job, model.priority)` is for executions. HIGH goes before MEDIUM before LOW among those that
    wait; what runs already is never interrupted. LOW ones run on threads that are nice.
    """

    def __init__(self, lanes: int | None = None) -> None:
        """Start no thread yet.

        Args:
            lanes: executions that run side by side, LOW ones not counted; by default as many as compute
                at once, and four at least, since an executor may wait for a device.
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
            priority: of the prepared model that it is about.
            work: its kind.

        Raises:
            ResourceExhausted: too many jobs of its kind are waiting.
            GeneralFailure: device:P9: no thread can be started.
        """
        self._lanes[work].submit(job, priority)

    def waiting(self, work: Work) -> bool:
        """Whether jobs of a kind wait for their turn, as seen from the thread that submits them."""
        return self._lanes[work].waiting


def _with_low(work: Work, lanes: int) -> Lanes:
    return Lanes(work.value, lanes, low_lanes=lanes, capacity=_CAPACITY)
