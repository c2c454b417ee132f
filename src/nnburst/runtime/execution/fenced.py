"""FencedComputation: one computation of a plan behind fences, and the fence that it signals itself."""

from __future__ import annotations

from typing import Final

from nnburst.client.execution.sync_fence import SyncFence
from nnburst.hal.enums import ResultCode
from nnburst.hal.limits import DEFAULT_LOOP_TIMEOUT_NS
from nnburst.runtime.argument import Argument, Options, Outcome
from nnburst.runtime.execution.executable import Executable
from nnburst.runtime.execution.fence_chain import FenceChain


class FencedComputation:
    """Begun at most once, and concluded by what waits for its fence.

    NNAPI: RT:R20, R21. DEVIATES: in mode 1 the CPU computes in `conclude` what a driver failed at after it
    was begun, unless a dependency failed; the original has no fallback then. The fence stays in the
    error state.
    """

    def __init__(
        self,
        executable: Executable,
        arguments: tuple[list[Argument], list[Argument]],
        options: Options,
        chain: FenceChain,
    ) -> None:
        """Compute `executable` on `arguments`, which stay as they are until the end, behind `chain`."""
        self._executable: Final = executable
        self._arguments: Final = arguments
        self._options: Final = options
        self._chain: Final = chain

    @staticmethod
    def suits(executable: Executable, options: Options) -> bool:
        """Whether fences can stand for it: all sizes are known, and no loop timeout has to be carried."""
        return (
            executable.has_known_temporaries and options.loop_timeout_ns == DEFAULT_LOOP_TIMEOUT_NS
        )

    def begin(self) -> Outcome:
        """Begin the steps; those of devices that take no fences are executed, behind those before."""
        outcome = self._executable.begin(*self._arguments, self._options, self._chain)
        if outcome.code != ResultCode.NO_ERROR:
            self._chain.spoil()
        return outcome

    @property
    def fence(self) -> SyncFence | None:
        """A fence of its own for the last step; None if nothing is under way. The caller closes it.

        Raises:
            ResourceExhausted: this process may have no more descriptors.
        """
        fence = self._chain.fence
        return None if fence is None else SyncFence(fence.duplicate())

    def conclude(self) -> Outcome:
        """Wait for the end; what it came to."""
        chain, executable = self._chain, self._executable
        try:
            outcome = chain.settle(self._options.deadline_ns)
        finally:
            chain.close()
        if not outcome.has_result and executable.allows_fallback and chain.may_fall_back:
            return executable.fall_back(*self._arguments, self._options, outcome)
        return outcome

    def close(self) -> None:
        """Give it up, before it has begun or after it failed to."""
        self._chain.close()
