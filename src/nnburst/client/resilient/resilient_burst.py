"""ResilientBurst: opened again, and its requests bound again, when the driver has died."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nnburst.client.burst.bound_request import BoundRequest
from nnburst.client.burst.burst import Burst
from nnburst.client.memory.arguments import Array, ExecutionResult
from nnburst.client.prepared_model import PreparedModel
from nnburst.client.resilient.recovery import Recoverable
from nnburst.hal.closing import Closing
from nnburst.hal.process.of_one_process import OfOneProcess


class ResilientBurst(Closing):
    """Like a `Burst`, but outlives its driver. One thread at a time. A context manager."""

    def __init__(
        self, models: Recoverable[PreparedModel], open_burst: Callable[[PreparedModel], Burst]
    ) -> None:
        """Open it; raises like `PreparedModel.open_burst`."""
        self._bursts = Recoverable(models.call(open_burst), lambda _dead: models.call(open_burst))

    @property
    def current(self) -> Burst:
        """The burst as it is now; one whose driver has died is opened again first.

        Raises:
            DeadObject: no driver serves it now.
            Closed: `close` was called.
        """
        return self._bursts.get()

    @property
    def last(self) -> Burst:
        """The one opened last, dead or alive."""
        return self._bursts.last

    def recover(self, seconds: float | None, began_ns: int | None = None) -> None:
        """Open it again if the driver has died.

        Args:
            seconds: that this call may wait; a recovery that takes longer goes on. None for no limit.
            began_ns: moment on CLOCK_MONOTONIC: a driver that has died since is not replaced now. None
                replaces it.

        Raises:
            MissedDeadline: it is still being opened.
            DeadObject: it could not be opened, or its driver has died since `began_ns`.
            Closed: `close` was called.
        """
        self._bursts.get_within(seconds, began_ns)

    @property
    def recoveries(self) -> int:
        """How often it was opened again."""
        return self._bursts.recoveries

    def bind(
        self,
        inputs: Sequence[Array | None] | None = None,
        outputs: Sequence[Array | None] | None = None,
        **options: Any,  # noqa: ANN401 - those of Burst.bind
    ) -> ResilientBoundRequest:
        """Bind a request; see `Burst.bind`. Its arrays stay the same whatever happens to the driver."""
        return ResilientBoundRequest(self._bursts, inputs, outputs, options)

    def execute(
        self,
        inputs: Sequence[Array | None],
        outputs: Sequence[Array | None] | None = None,
        **options: Any,  # noqa: ANN401 - those of Burst.execute
    ) -> ExecutionResult:
        """Execute once on numpy arrays; see `Burst.execute`.

        Raises:
            DeadObject: the driver died meanwhile; nothing is retried, and the next call recovers.
            NnburstError: as for `Burst.execute`.
        """
        return self.current.execute(inputs, outputs, **options)

    def close(self) -> None:
        """Close the burst; twice is fine, and so is a dead driver."""
        self._bursts.close()


class ResilientBoundRequest(OfOneProcess):
    """Like a `BoundRequest`; bound again to the same arrays after a recovery. Made by `ResilientBurst.bind`.

    Usable by the thread that uses the burst.

    Attributes:
        inputs: views of the pools; None if omitted.
        outputs: views of the pools, written by every run.
    """

    _instead = "bind one in the other process; results can be pickled"

    __slots__ = ("_bound", "_burst", "_bursts", "_measure", "inputs", "outputs")

    def __init__(
        self,
        bursts: Recoverable[Burst],
        inputs: Sequence[Array | None] | None,
        outputs: Sequence[Array | None] | None,
        options: dict[str, Any],
    ) -> None:
        """Bind to the current burst."""
        self._bursts = bursts
        self._burst = bursts.get()
        self._measure = bool(options.get("measure", False))
        self._bound: BoundRequest = self._burst.bind(inputs, outputs, **options)
        self.inputs, self.outputs = self._bound.inputs, self._bound.outputs

    def run(self, timeout: float | None = None) -> ExecutionResult:
        """Execute once; see `BoundRequest.run`.

        Raises:
            DeadObject: the driver died meanwhile; nothing is retried, and the next run recovers.
        """
        return self._current().run(timeout)

    async def run_async(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - as for `run`
    ) -> ExecutionResult:
        """Execute once; the event loop goes on meanwhile. See `BoundRequest.run_async`.

        Connecting and preparing again after a death happens in the call and holds up the loop.

        Raises:
            DeadObject: the driver died meanwhile; nothing is retried, and the next run recovers.
        """
        return await self._current().run_async(timeout)

    def _current(self) -> BoundRequest:
        """The request as it is now, bound again if its driver has died."""
        burst = self._burst
        if not burst.is_alive:
            burst = self._bursts.get()
        if burst is not self._burst:
            self._bound = burst.bind(self.inputs, self.outputs, measure=self._measure)
            self._burst = burst
        return self._bound
