"""ResilientPreparedModel: prepared again for every driver that comes after a dead one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nnburst.client.device import Device
from nnburst.client.memory.arguments import Array, ExecutionResult, Parameter
from nnburst.client.prepared_model import PreparedModel
from nnburst.client.resilient.recovery import Recoverable
from nnburst.client.resilient.resilient_burst import ResilientBurst
from nnburst.hal.closing import Closing
from nnburst.hal.model import Model


class ResilientPreparedModel(Closing):
    """Like a `PreparedModel`, but outlives its driver. Thread-safe. A context manager.

    An execution during which the driver dies raises DeadObject and is not retried; the call after it
    finds the driver dead, connects and prepares again, and goes on.
    """

    def __init__(
        self, devices: Recoverable[Device], prepare: Callable[[Device], PreparedModel]
    ) -> None:
        """Prepare; raises like `Device.prepare`."""
        self._models = Recoverable(devices.call(prepare), lambda _dead: devices.call(prepare))

    @property
    def current(self) -> PreparedModel:
        """The prepared model as it is now; one whose driver has died is prepared again first.

        Raises:
            DeadObject: no driver serves it now.
            Closed: `close` was called.
        """
        return self._models.get()

    @property
    def last(self) -> PreparedModel:
        """The one prepared last, dead or alive."""
        return self._models.last

    def recover(self, seconds: float | None, began_ns: int | None = None) -> None:
        """Prepare again if the driver has died.

        Args:
            seconds: that this call may wait; a recovery that takes longer goes on. None for no limit.
            began_ns: moment on CLOCK_MONOTONIC: a driver that has died since is not replaced now. None
                replaces it.

        Raises:
            MissedDeadline: it is still being prepared.
            DeadObject: it could not be prepared, or its driver has died since `began_ns`.
            Closed: `close` was called.
        """
        self._models.get_within(seconds, began_ns)

    @property
    def model(self) -> Model:
        """As given to `prepare`."""
        return self._models.last.model

    @property
    def pid(self) -> int:
        """Number of the process that served it last."""
        return self._models.last.pid

    @property
    def inputs(self) -> Sequence[Parameter]:
        """What each input must look like."""
        return self._models.last.inputs

    @property
    def outputs(self) -> Sequence[Parameter]:
        """What each output must look like."""
        return self._models.last.outputs

    @property
    def recoveries(self) -> int:
        """How often it was prepared again."""
        return self._models.recoveries

    def execute(
        self,
        inputs: Sequence[Array | None],
        outputs: Sequence[Array | None] | None = None,
        **options: Any,  # noqa: ANN401 - those of PreparedModel.execute
    ) -> ExecutionResult:
        """Execute once over the socket; see `PreparedModel.execute`.

        Raises:
            DeadObject: the driver died meanwhile, possibly of this execution; nothing is retried, and the
                next call recovers.
            NnburstError: as for `PreparedModel.execute`.
        """
        return self.current.execute(inputs, outputs, **options)

    def open_burst(self, **options: Any) -> ResilientBurst:  # noqa: ANN401
        """Open a burst that outlives its driver; see `PreparedModel.open_burst`."""
        return ResilientBurst(self._models, lambda prepared: prepared.open_burst(**options))

    def close(self) -> None:
        """Release the model; twice is fine, and so is a dead driver."""
        self._models.close()
