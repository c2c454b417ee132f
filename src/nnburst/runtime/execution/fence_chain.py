"""FenceChain: the steps of one computation, each behind the fence of the one before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from nnburst.client.execution.sync_fence import SyncFence
from nnburst.client.memory.arguments import seconds_until
from nnburst.control.fences import FenceStatus
from nnburst.hal.closing import Closing
from nnburst.hal.enums import ResultCode
from nnburst.hal.errors import GeneralFailure, MissedDeadline, NnburstError
from nnburst.runtime.argument import SUCCESS, Argument, Options, Outcome, PreparedPart
from nnburst.runtime.devices.driver_part import DriverPart, FencedStep

#: Seconds between two looks at a fence that has no deadline.
_LONG: Final = 3600.0


class FenceChain(Closing):
    """What is under way of one computation. Used by one thread at a time.

    NNAPI: RT:R20. Steps are begun in order; the first waits for the dependencies, each other one for the
    step before.

    Attributes:
        dependencies: the application's fences; they stay its own.
        duration: seconds that a step may take once it may begin; None for no limit.
    """

    def __init__(self, dependencies: Sequence[SyncFence], duration: float | None) -> None:
        """Nothing is begun yet."""
        self.dependencies: Final = tuple(dependencies)
        self.duration: Final = duration
        self._begun: list[FencedStep] = []
        self._is_settled = False
        self._outcome = SUCCESS
        self._is_spoilt = False
        self._release: Callable[[bool], None] | None = None

    @property
    def fence(self) -> SyncFence | None:
        """Of the step begun last; None if nothing is under way."""
        return None if self._is_settled or not self._begun else self._begun[-1].fence

    def lend(self, release: Callable[[bool], None]) -> None:
        """Hold memory until the end; `release` gets whether it may be used again."""
        self._release = release

    def spoil(self) -> None:
        """The memory is not to be used again."""
        self._is_spoilt = True

    def begin(
        self,
        part: DriverPart,
        inputs: Sequence[Argument],
        outputs: Sequence[Argument],
        options: Options,
    ) -> None:
        """Begin a step behind what was begun before.

        Raises:
            NnburstError: the driver refuses it.
        """
        waits_for: Sequence[SyncFence] = ()
        if not self._is_settled:
            waits_for = [self._begun[-1].fence] if self._begun else self.dependencies
        self._begun.append(part.execute_fenced(inputs, outputs, options, waits_for, self.duration))
        self._is_settled = False

    def settle(self, deadline_ns: int | None) -> Outcome:
        """Wait until the dependencies have signalled and all that was begun has ended.

        Returns:
            What the last step came to, or the first one that failed; OP_FAILED if a dependency failed.
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
        """Whether the inputs are there: every dependency has signalled."""
        return all(fence.status == FenceStatus.SIGNALLED for fence in self.dependencies)

    def _have_failed(self) -> bool:
        return any(fence.status == FenceStatus.ERROR for fence in self.dependencies)

    def _wait_for_dependencies(self, deadline_ns: int | None) -> Outcome:
        for fence in self.dependencies:
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
        """Give up what was begun, which goes on by itself, and the memory."""
        for step in self._begun:
            step.close()
        release, self._release = self._release, None
        if release is not None:
            ended_well = self._is_settled and self._outcome.code == ResultCode.NO_ERROR
            release(ended_well and not self._is_spoilt)


class Behind:
    """Stands for the burst of a part: what it executes comes behind the fences of a chain."""

    def __init__(self, part: PreparedPart, chain: FenceChain) -> None:
        """Begin `part` if its device takes fences, else wait for them and execute it."""
        self._part: Final = part
        self._chain: Final = chain

    def revive(self, seconds: float | None, began_ns: int | None) -> None:
        """Prepare it again if its driver has died."""
        self._part.revive(seconds, began_ns)

    def execute(self, inputs: list[Argument], outputs: list[Argument], options: Options) -> Outcome:
        """Begin it, or execute it once all before it has ended."""
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
        return part.execute(inputs, outputs, options)

    def close(self) -> None:
        """Nothing: the part is the plan's."""


_FAILED: Final = Outcome.of(GeneralFailure("dependencies: a fence is in the error state"))


def _seconds_left(deadline_ns: int | None) -> float:
    return _LONG if deadline_ns is None else max(0.0, seconds_until(deadline_ns))
