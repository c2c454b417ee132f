"""Executes after given fences have signalled, and signals a fence when the execution is done."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import msgspec

from nnburst.client.arguments import (
    ExecutionResult,
    boottime_deadline_ns,
    check_timeout,
    in_nanoseconds,
    wait_left,
)
from nnburst.client.execution.aidl_burst import precise, rounded
from nnburst.client.execution.prepared import Prepared
from nnburst.client.execution.socket_request import SocketArguments, SocketRequest
from nnburst.client.execution.sync_fence import SyncFence
from nnburst.client.session.handshake import Session
from nnburst.control.channel import Fds
from nnburst.control.connection import RemoteObject
from nnburst.control.fences import FenceStatus
from nnburst.control.messages import Executed, ExecuteFenced, Fenced, GetExecutionInfo
from nnburst.control.messages import ExecutionInfo as InfoMessage
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.errors import (
    Closed,
    GeneralFailure,
    InvalidArgument,
    MissedDeadline,
    error_for,
)
from nnburst.hal.extensions import ExtensionAttribute
from nnburst.hal.types import ExecutionTiming
from nnburst.hal.utils import Closing, listed


class ExecutionInfo(msgspec.Struct, frozen=True):
    """Outcome and timing of a fenced execution that is complete (NNAPI: getExecutionInfo).

    Attributes:
        status: NONE if it succeeded.
        launched: durations in nanoseconds, counted from the call; both None if they were not measured.
        fenced: the same, counted from the last fence; never longer.
        reason: readable reason of a failure; empty if it succeeded.
    """

    status: ErrorStatus
    launched: ExecutionTiming
    fenced: ExecutionTiming
    reason: str = ""


class FencedExecution(Closing):
    """An execution that begins when fences have signalled; made by `nnburst.hal.execute_fenced`.

    Until `fence` has signalled, inputs in pools must not change and outputs are undefined; other inputs were
    copied before. Thread-safe. A context manager that closes itself.

    Attributes:
        fence: signals when the execution is done; it is in the error state if the execution failed or the
            driver died. Closed with this object.
    """

    def __init__(
        self,
        session: Session,
        placed: SocketRequest,
        answered: tuple[Fenced, Fds],
        remote: RemoteObject,
    ) -> None:
        """Own the descriptors of the driver's answer.

        Args:
            session: the session of the driver.
            placed: the request; released when the driver no longer uses its memory.
            answered: the driver's answer.
            remote: the execution in the driver.
        """
        answer, fds = answered
        self._session = session
        self._connection = session.connection
        self._remote = remote
        self._placed = placed
        # Reentrant: a signal handler may ask for the result while its thread is in here.
        self._lock = threading.RLock()
        self._is_taking = False
        self._info: ExecutionInfo | None = None
        self._result: ExecutionResult | None = None
        try:
            with fds:
                self.fence = _signalled() if answer.is_done else SyncFence(fds.take(0))
        except InvalidArgument as error:
            raise GeneralFailure(f"the driver answered with {error}") from error
        # When the driver dies, the fence fails at once: the kernel closes a driver's descriptors only after
        # it has freed all its memory.
        self._connection.on_end_weakly(self.fence._fail)

    def done(self) -> bool:
        """Whether `result` returns, or raises, at once."""
        return (
            self._result is not None
            or self._info is not None
            or self.fence.status != FenceStatus.ACTIVE
        )

    def info(self, timeout: float = 30.0) -> ExecutionInfo:
        """Status and timing of an execution that has completed.

        Args:
            timeout: seconds that the driver has to answer.

        Raises:
            GeneralFailure: the execution has not completed.
            MissedDeadline: the driver does not answer.
            DeadObject: the driver has died.
            Closed: this object was closed before the first call of `info`.
        """
        self._session.check_process()
        if self._info is None:
            if not self._remote.is_open:
                raise Closed("the fenced execution is closed")
            seconds = check_timeout(timeout)
            message = GetExecutionInfo(self._remote.number)
            found, _ = self._connection.call(message, InfoMessage, timeout=seconds)
            self._info = ExecutionInfo(
                found.status, precise(*found.launched), precise(*found.fenced), found.reason
            )
        return self._info

    def result(self, timeout: float = 30.0) -> ExecutionResult:
        """Wait for outputs, shapes, and timing counted from the call. May be called again.

        Args:
            timeout: seconds to wait.

        Raises:
            MissedDeadline: it is not done in time; or it failed at its own deadline, as `info` then reports.
            DeadObject: the driver has died.
            Closed: this object was closed, perhaps by another thread, before the execution was done.
            NnburstError: the driver reports it.
        """
        deadline = time.monotonic() + check_timeout(timeout)
        self._session.check_process()
        if self._result is None:  # without the lock: each thread waits as long as it likes
            if self._info is None and self._remote.is_open:
                self.fence.wait(timeout)
            info = self.info(wait_left(deadline))
            with self._lock:
                if self._is_taking:
                    what = "it interrupts the call that takes the result"
                    raise MissedDeadline(f"a signal handler cannot wait for the execution: {what}")
                if self._result is None:
                    self._is_taking = True
                    try:
                        self._result = self._take(info)
                    finally:
                        self._is_taking = False
        return self._result

    def _take(self, info: ExecutionInfo) -> ExecutionResult:
        try:
            if info.status != ErrorStatus.NONE:
                self._placed.arguments.fail()
                what = info.reason or f"the driver answered {info.status.name}"
                raise error_for(info.status, what)
            result = self._placed.result(Executed((), rounded(info.launched)))
        finally:
            self._placed.private.release()
        return msgspec.structs.replace(result, timing_ns=info.launched)

    def close(self) -> None:
        """Close the fence and release the driver's handle; the execution goes on. Twice is fine."""
        self._remote.release_later()
        self.fence.close()

    def __repr__(self) -> str:
        state = "closed" if not self._remote.is_open else "done" if self.done() else "under way"
        return f"<nnburst.hal.FencedExecution: {state}>"


def execute_fenced(
    prepared: Prepared,
    arguments: SocketArguments,
    wait_for: Sequence[SyncFence],
    duration: float | None,
    measure: bool,
    timeout: float,
    attributes: Sequence[ExtensionAttribute] = (),
) -> FencedExecution:
    """Start a fenced execution; see `nnburst.hal.execute_fenced`."""
    duration_ns, hints = duration_in_ns(duration), prepared.session.hints(attributes)
    placed = SocketRequest(arguments)
    placed.stage()
    remote, user = RemoteObject(prepared.session.connection), object()
    try:
        message = ExecuteFenced(
            prepared.hold(user),  # so that another thread's `close` does not matter meanwhile
            placed.request,
            measure,
            boottime_deadline_ns(timeout),
            hints=hints,
            wait_for=len(wait_for),
            duration_ns=duration_ns,
        )
        answer = placed.call(message, Fenced, timeout, wait_for, remote)
    except BaseException as error:
        placed.fail(error)
        raise
    finally:
        prepared.release(user)
    return FencedExecution(prepared.session, placed, answer, remote)


def check_fences(wait_for: Sequence[SyncFence]) -> list[SyncFence]:
    """Check that `wait_for` is a sequence of fences, and return it.

    Raises:
        InvalidArgument: it is not.
    """
    fences = list(listed("wait_for", wait_for))
    for index, fence in enumerate(fences):
        if not isinstance(fence, SyncFence):
            raise InvalidArgument(
                f"wait_for[{index}] is of type {type(fence).__name__}, expected a SyncFence"
            )
    return fences


def duration_in_ns(duration: float | None) -> int | None:
    """Convert a duration in seconds to the nanoseconds of a message.

    Raises:
        InvalidArgument: it is not positive and finite.
    """
    if duration is None:
        return None
    try:
        return in_nanoseconds(check_timeout(duration))
    except InvalidArgument as error:
        raise InvalidArgument(str(error).replace("timeout", "duration", 1)) from None


def _signalled() -> SyncFence:
    fence, signaller = SyncFence.create()
    signaller.signal()
    return fence
