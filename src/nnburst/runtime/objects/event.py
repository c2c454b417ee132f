"""Provides events: computations under way, or fences, that any number of threads may wait for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from nnburst.client.arguments import seconds_until
from nnburst.client.execution.sync_fence import SyncFence
from nnburst.control.fences import FenceStatus
from nnburst.hal.enums import ResultCode
from nnburst.hal.errors import GeneralFailure, InvalidArgument, MissedDeadline, NnburstError
from nnburst.hal.utils import start_thread
from nnburst.runtime.argument import Outcome
from nnburst.runtime.execution.fences import import_fence
from nnburst.runtime.runtime_object import RuntimeObject

INTERRUPTED: Final = Outcome(ResultCode.OP_FAILED, message="it was interrupted")


def outcome_of(error: BaseException) -> Outcome:
    """The outcome for an exception that has interrupted a computation."""
    return Outcome.of(error) if isinstance(error, NnburstError) else INTERRUPTED


#: Seconds after which a wait for a fence without a deadline is repeated.
_LONG = 3600.0


class Event(RuntimeObject):
    """A computation under way, or a fence. Thread-safe: any number of threads may wait for one.

    Made by `Execution.start` and `start_after`, or by `from_sync_fence`. `close` first waits for the end.

    NNAPI: RT:V1 to V4, Event.cpp.
    """

    def __init__(
        self,
        work: Callable[[], Outcome] | None = None,
        *,
        fence: SyncFence | None = None,
        outcome: Outcome | None = None,
        deadline_ns: int | None = None,
        abandon: Callable[[Outcome], None] | None = None,
    ) -> None:
        """Use `Execution.start`, `start_after` or `from_sync_fence`.

        Args:
            work: runs on a new thread and returns the outcome; with a fence, called after its signal instead.
            fence: signals the end.
            outcome: the outcome if it is already known.
            deadline_ns: on CLOCK_BOOTTIME; `work` is called then even if the fence has not signalled.
            abandon: with a fence, called with the outcome if `work` raises.

        Raises:
            ResourceExhausted: the process may have no more threads.
        """
        super().__init__()
        self._fence = fence
        self._outcome = outcome
        self._deadline_ns = deadline_ns
        self._abandon = abandon
        self._finish: Callable[[], Outcome] | None = None
        self._lock = threading.RLock()  # a signal handler may wait while its thread is in here
        self._is_finishing = False
        self._thread: threading.Thread | None = None
        if work is not None and fence is None and outcome is None:
            self._thread = threading.Thread(
                target=self._run, args=(work,), name="nnburst computation", daemon=True
            )
            start_thread(self._thread)
        else:
            self._finish = work

    @classmethod
    def from_sync_fence(cls, fd: int) -> Event:
        """Make an event from a foreign fence (NNAPI: createFromSyncFenceFd).

        The fence may be nnburst's, a sync_file, or any other descriptor that can be polled. It has signalled
        when it is readable. POLLERR, a sync_file's error status, or an end without a signal is an error.

        Args:
            fd: the descriptor, which stays the caller's.

        Raises:
            InvalidArgument: `fd` is 0, negative, not open, or cannot be polled; BAD_DATA.
        """
        if not isinstance(fd, int) or fd <= 0:
            raise InvalidArgument(f"fd: {fd!r}, expected a descriptor above 0")
        return cls(fence=import_fence(fd))

    @property
    def fence(self) -> SyncFence | None:
        """The fence, borrowed: valid until `close`. None if the event has no fence."""
        return self._fence

    def sync_fence(self) -> int:
        """A new descriptor of the fence, which the caller closes (NNAPI: getSyncFenceFd).

        Raises:
            InvalidArgument: the event has no fence; BAD_DATA.
        """
        self._check_open()
        if self._fence is None:
            raise InvalidArgument("event: it has no sync fence")
        return self._fence.duplicate()

    def wait(self) -> None:
        """Wait until the computation has ended or the fence has signalled; every call has the same outcome.

        Raises:
            NnburstError: the computation failed; OP_FAILED for a fence in the error state.
        """
        self._known_outcome().succeeded()

    def _known_outcome(self) -> Outcome:
        """Wait as `wait` does; return the outcome instead of raising it."""
        self._check_open()
        if self._thread is not None:
            self._thread.join()
        elif self._outcome is None:
            self._wait_for_fence()
        assert self._outcome is not None
        return self._outcome

    def _run(self, work: Callable[[], Outcome]) -> None:
        try:
            self._outcome = work()
        except NnburstError as error:
            self._outcome = Outcome.of(error)
        except BaseException as error:
            self._outcome = Outcome(
                ResultCode.OP_FAILED, message=f"{type(error).__name__}: {error}"
            )
            raise

    def _wait_for_fence(self) -> None:
        assert self._fence is not None
        while (status := self._fence.status) == FenceStatus.ACTIVE:
            left = _LONG if self._deadline_ns is None else seconds_until(self._deadline_ns)
            if left <= 0:
                break
            try:
                status = self._fence.wait(left)
                break
            except TimeoutError:
                continue
        with self._lock:
            if self._outcome is not None:
                return
            if self._is_finishing:
                what = "it interrupts the call that takes the outcome"
                raise MissedDeadline(f"a signal handler cannot wait for the event: {what}")
            if self._finish is not None:
                self._is_finishing = True
                try:
                    self._outcome = self._finish()
                except BaseException as error:  # before or after the work of the call, too
                    self._outcome = outcome_of(error)
                    if self._abandon is not None:
                        self._abandon(self._outcome)
                    self._finish = None  # it holds the arguments of the computation
                    if not isinstance(error, NnburstError):
                        raise
                finally:
                    self._is_finishing = False
            elif status == FenceStatus.SIGNALLED:
                self._outcome = Outcome()
            else:
                self._outcome = Outcome.of(GeneralFailure("event: its fence is in the error state"))

    def _summary(self) -> str:
        return "under way" if self._outcome is None else self._outcome.code.name

    def _release(self) -> None:
        """Wait first (RT:E9), then close the fence."""
        self._closed = False
        self._known_outcome()
        self._closed = True
        if self._fence is not None:
            self._fence.close()
