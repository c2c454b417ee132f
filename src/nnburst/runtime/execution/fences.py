"""Runs each step of a computation behind the fence of the one before, and imports foreign fences."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from nnburst.client.arguments import boottime_deadline_ns, seconds_until
from nnburst.client.execution.sync_fence import SyncFence
from nnburst.control.channel import Fds
from nnburst.control.fences import FenceStatus, Signaller
from nnburst.hal.enums import ResultCode
from nnburst.hal.errors import GeneralFailure, InvalidArgument, MissedDeadline, NnburstError
from nnburst.hal.utils import Closing, Scarce, start_thread
from nnburst.runtime.argument import SUCCESS, Argument, Options, Outcome, PreparedPart
from nnburst.runtime.devices.driver_device import DriverPart, FencedStep

#: Seconds after which a wait for a fence without a deadline is repeated.
_LONG: Final = 3600.0


class FenceChain(Closing):
    """The steps of one computation that have begun. Used by one thread at a time.

    NNAPI: RT:R20. Steps are begun in order; the first waits for the dependencies, each other one for the
    step before.

    Attributes:
        duration: seconds that a step may take once it may begin; None for no limit.
    """

    def __init__(self, dependencies: Sequence[SyncFence], duration: float | None) -> None:
        """Start a chain without steps; it duplicates the fences, which the application may close.

        Raises:
            Closed: a fence is closed.
            ResourceExhausted: this process may have no more descriptors.
        """
        self.duration: Final = duration
        self._dependencies: Final[list[SyncFence]] = []
        self._begun: list[FencedStep] = []
        self._is_settled = False
        self._outcome = SUCCESS
        self._is_spoilt = False
        self._release: Callable[[bool], None] | None = None
        try:
            for fence in dependencies:
                self._dependencies.append(SyncFence(fence.duplicate()))
        except BaseException:
            self.close()
            raise

    @property
    def fence(self) -> SyncFence | None:
        """The fence of the step that began last; None if no step is under way."""
        return None if self._is_settled or not self._begun else self._begun[-1].fence

    def lend(self, release: Callable[[bool], None]) -> None:
        """Keep memory until the chain is closed; then call `release(usable)`."""
        self._release = release

    def spoil(self) -> None:
        """Note that the memory must not be used again."""
        self._is_spoilt = True

    def begin(
        self,
        part: DriverPart,
        inputs: Sequence[Argument],
        outputs: Sequence[Argument],
        options: Options,
    ) -> None:
        """Begin a step that waits for the one before.

        Raises:
            NnburstError: the driver refuses the step.
        """
        waits_for: Sequence[SyncFence] = ()
        if not self._is_settled:
            waits_for = [self._begun[-1].fence] if self._begun else self._dependencies
        self._begun.append(part.execute_fenced(inputs, outputs, options, waits_for, self.duration))
        self._is_settled = False

    def limited(self, options: Options) -> Options:
        """The options of a computation that begins now and must end within the duration."""
        if self.duration is None:
            return options
        end_ns = boottime_deadline_ns(self.duration)
        if options.deadline_ns is not None:
            end_ns = min(end_ns, options.deadline_ns)
        return replace(options, deadline_ns=end_ns)

    def settle(self, deadline_ns: int | None) -> Outcome:
        """Wait until the dependencies have signalled and all steps that began have ended.

        Returns:
            The outcome of the last step, or of the first one that failed; OP_FAILED if a dependency failed.
        """
        if self._is_settled:
            return self._outcome
        outcome = SUCCESS
        if not self._begun:
            outcome = self._wait_for_dependencies(deadline_ns)
        for step in self._begun:
            outcome = step.outcome(_seconds_left(deadline_ns))
            if outcome.code != ResultCode.NO_ERROR:
                break
        if self._have_failed():
            outcome = _FAILED
        self._is_settled, self._outcome = True, outcome
        return outcome

    @property
    def may_fall_back(self) -> bool:
        """Whether the CPU may compute instead: every dependency has signalled, so the inputs are complete."""
        return all(fence.status == FenceStatus.SIGNALLED for fence in self._dependencies)

    def _have_failed(self) -> bool:
        return any(fence.status == FenceStatus.ERROR for fence in self._dependencies)

    def _wait_for_dependencies(self, deadline_ns: int | None) -> Outcome:
        for fence in self._dependencies:
            while True:
                left = _seconds_left(deadline_ns)
                try:
                    fence.wait(max(left, 0.001))
                    break
                except MissedDeadline as error:
                    if deadline_ns is not None:
                        return Outcome.of(error)
        return SUCCESS

    def close(self) -> None:
        """Release the fences and the memory; steps that are under way go on by themselves. Twice is fine."""
        for each in (*self._dependencies, *self._begun):
            each.close()
        release, self._release = self._release, None
        if release is not None:
            ended_well = self._is_settled and self._outcome.code == ResultCode.NO_ERROR
            release(ended_well and not self._is_spoilt)


class Behind:
    """A substitute for a part's burst, which executes the part after the fences of a chain."""

    def __init__(self, part: PreparedPart, chain: FenceChain) -> None:
        """Execute `part` by fences if its device takes them; otherwise wait for the chain first."""
        self._part: Final = part
        self._chain: Final = chain

    died_ns: Final = None  # checked before any step is begun

    def revive(self) -> None:
        """Do nothing: `Executable.revive` has reconnected its part."""

    def execute(self, inputs: list[Argument], outputs: list[Argument], options: Options) -> Outcome:
        """Begin the part, or execute it after all earlier steps have ended."""
        part, chain = self._part, self._chain
        if isinstance(part, DriverPart) and part.takes_fences:
            try:
                chain.begin(part, inputs, outputs, options)
            except NnburstError as error:
                before = chain.settle(options.deadline_ns)
                return Outcome.of(error) if before.code == ResultCode.NO_ERROR else before
            return SUCCESS
        before = chain.settle(options.deadline_ns)
        if before.code != ResultCode.NO_ERROR:
            return before
        return part.execute(inputs, outputs, chain.limited(options))

    def close(self) -> None:
        """Do nothing: the plan owns the part."""


_FAILED: Final = Outcome.of(GeneralFailure("dependencies: a fence is in the error state"))


def _seconds_left(deadline_ns: int | None) -> float:
    return _LONG if deadline_ns is None else max(0.0, seconds_until(deadline_ns))


#: SYNC_IOC_FILE_INFO of linux/sync_file.h: name, status, flags, num_fences, pad, sync_fence_info.
_FILE_INFO = struct.Struct("32s i I I I Q")
_SYNC_IOC_FILE_INFO = 0xC0383E04


def import_fence(fd: int) -> SyncFence:
    """A fence for a descriptor, which stays the caller's.

    A fence of nnburst is used as it is. For any other descriptor a thread waits until it is readable.

    Raises:
        InvalidArgument: `fd` is not open, or cannot be polled, as files cannot.
        ResourceExhausted: the process may have no more descriptors or threads.
    """
    try:
        with Scarce(f"fd: {fd} cannot be duplicated"):
            fds = Fds([os.dup(fd)])
    except OSError as error:
        raise InvalidArgument(f"fd: {fd} cannot be duplicated: {error.strerror}") from None
    if _is_ours(fds[0]):
        return SyncFence(fds.take(0))
    try:
        _check_pollable(fds[0], fd)
        fence, signaller = SyncFence.create()
    except BaseException:
        fds.close()
        raise
    thread = threading.Thread(
        target=_follow, args=(fds, signaller), name="nnburst foreign fence", daemon=True
    )
    start_thread(thread, fds, signaller, fence)
    return fence


def _is_ours(fd: int) -> bool:
    """Whether a descriptor is a local stream socket, as the ends of nnburst's fences are."""
    try:
        end = socket.socket(fileno=fd)
    except OSError:
        return False
    try:
        return (end.family, end.type) == (socket.AF_UNIX, socket.SOCK_STREAM)
    finally:
        end.detach()


def _check_pollable(own: int, fd: int) -> None:
    try:
        with (
            Scarce(f"fd: {fd} cannot be polled"),
            select.epoll() as poller,  # unlike poll, epoll refuses files, which are always ready
        ):
            poller.register(own, select.EPOLLIN)
    except OSError as error:
        raise InvalidArgument(f"fd: {fd} cannot be polled: {error.strerror}") from None


def _follow(fds: Fds, signaller: Signaller) -> None:
    """Wait for the descriptor without a deadline; this does not keep the process from ending."""
    with contextlib.closing(signaller), fds:
        poller = select.poll()
        poller.register(fds[0], select.POLLIN)
        ((_, events),) = poller.poll()
        broken = events & (select.POLLERR | select.POLLNVAL)
        if events & select.POLLIN and not broken and _sync_file_status(fds[0]) >= 0:
            signaller.signal()


def _sync_file_status(fd: int) -> int:
    """The status of a sync_file (negative is an error); 1 for other descriptors."""
    info = bytearray(_FILE_INFO.pack(b"", 0, 0, 0, 0, 0))
    try:
        fcntl.ioctl(fd, _SYNC_IOC_FILE_INFO, info)
    except OSError:
        return 1  # not a sync_file
    return int(_FILE_INFO.unpack(bytes(info))[1])
