"""Starts a computation that waits for events and fences."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final

from nnburst.client.execution.sync_fence import SyncFence
from nnburst.control.fences import FenceStatus
from nnburst.hal.enums import ResultCode
from nnburst.hal.errors import GeneralFailure, NnburstError, UnexpectedNull
from nnburst.hal.limits import DEFAULT_LOOP_TIMEOUT_NS
from nnburst.runtime.argument import Argument, Options, Outcome
from nnburst.runtime.execution.executable import Executable
from nnburst.runtime.execution.fences import FenceChain
from nnburst.runtime.objects.event import Event


class FencedComputation:
    """A computation with fences. It begins at most once; the waiter for its fence concludes it.

    NNAPI: RT:R20, R21. DEVIATES: if a step fails in a driver after it was begun, the CPU computes in
    `conclude` in mode 1, unless a dependency failed; the original has no fallback then. The fence stays in
    the error state.
    """

    def __init__(
        self,
        executable: Executable,
        arguments: tuple[list[Argument], list[Argument]],
        options: Options,
        chain: FenceChain,
    ) -> None:
        """Compute `executable` in `chain`; `arguments` must stay the same until the end."""
        self._executable: Final = executable
        self._arguments: Final = arguments
        self._options: Final = options
        self._chain: Final = chain

    @staticmethod
    def suits(executable: Executable, options: Options) -> bool:
        """Whether fences suffice: all sizes are known, and there is no loop timeout."""
        return (
            executable.has_known_temporaries and options.loop_timeout_ns == DEFAULT_LOOP_TIMEOUT_NS
        )

    def begin(self) -> Outcome:
        """Begin the steps; steps of devices without fences are executed after those before."""
        outcome = self._executable.begin(*self._arguments, self._options, self._chain)
        if outcome.code != ResultCode.NO_ERROR:
            self._chain.spoil()
        return outcome

    @property
    def fence(self) -> SyncFence | None:
        """A new fence for the end of the last step, which the caller closes; None if no step is under way.

        Raises:
            ResourceExhausted: this process may have no more descriptors.
        """
        fence = self._chain.fence
        return None if fence is None else SyncFence(fence.duplicate())

    def conclude(self) -> Outcome:
        """Wait for the end, close the chain, and return the outcome."""
        executable = self._executable
        with self._chain as chain:
            outcome = chain.settle(self._options.deadline_ns)
            may_fall_back = executable.allows_fallback and chain.may_fall_back
        if outcome.has_result or not may_fall_back:
            return outcome
        return executable.fall_back(*self._arguments, self._options, outcome)

    def abandon(self) -> None:
        """Close the chain after an interruption, which may have come before `conclude` could."""
        self._chain.close()


def check_dependencies(dependencies: Sequence[Event]) -> None:
    """Refuse a list that is None or has an entry None.

    Raises:
        UnexpectedNull: the list or an entry is None.
    """
    if dependencies is None or any(event is None for event in dependencies):
        raise UnexpectedNull("dependencies: the list or an entry is None")


def fences_of(dependencies: Sequence[Event]) -> list[SyncFence]:
    """The fences of events. Wait for events without a fence, whatever their outcome (RT:V4).

    Raises:
        GeneralFailure: a fence is in the error state.
    """
    for event in dependencies:
        if event.fence is None:
            with contextlib.suppress(NnburstError):
                event.wait()
    fences = [event.fence for event in dependencies if event.fence is not None]
    if any(fence.status == FenceStatus.ERROR for fence in fences):
        raise GeneralFailure("dependencies: a fence is in the error state")
    return fences
