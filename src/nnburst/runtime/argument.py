"""Argument: one input or output of a computation on a device, and what a computation gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from nnburst.client.execution.buffer import Buffer
from nnburst.hal.enums import ResultCode
from nnburst.hal.errors import NnburstError
from nnburst.hal.extensions.attributes import ExtensionAttribute
from nnburst.hal.limits import DEFAULT_LOOP_TIMEOUT_NS
from nnburst.hal.timing import OutputShape, Timing

NOT_TIMED: Final = Timing()

Bytes = npt.NDArray[np.uint8]


@dataclass(slots=True)
class Argument:
    """Where an input or output lies.

    Attributes:
        bytes: its bytes, a view of a pool or of private memory; None if it is omitted or lies in a buffer.
        dimensions: as far as they are known; 0 is unknown.
        buffer: the driver's buffer that it lies in.
    """

    bytes: Bytes | None
    dimensions: tuple[int, ...] = ()
    buffer: Buffer | None = None

    @property
    def is_omitted(self) -> bool:
        """Whether it has no value."""
        return self.bytes is None and self.buffer is None


@dataclass(frozen=True, slots=True)
class Options:
    """How one computation runs.

    Attributes:
        measure: whether it is timed.
        deadline_ns: on CLOCK_BOOTTIME; None for none.
        loop_timeout_ns: how long a WHILE may run.
        attributes: of vendor extensions, for the device.
    """

    measure: bool = False
    deadline_ns: int | None = None
    loop_timeout_ns: int = DEFAULT_LOOP_TIMEOUT_NS
    attributes: tuple[ExtensionAttribute, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a computation gave.

    Attributes:
        code: of the framework.
        output_shapes: one for each output with NO_ERROR and OUTPUT_INSUFFICIENT_SIZE, or none.
        timing: microseconds.
        message: why it failed.
        fenced_timing: microseconds from the last fence on; None if it is the same.
    """

    code: ResultCode = ResultCode.NO_ERROR
    output_shapes: tuple[OutputShape, ...] = ()
    timing: Timing = NOT_TIMED
    message: str = ""
    fenced_timing: Timing | None = None

    @classmethod
    def of(cls, error: NnburstError) -> Outcome:
        """The outcome that an exception stands for."""
        return cls(error.code, error.output_shapes, message=str(error))

    @property
    def has_result(self) -> bool:
        """Whether it has computed: to the end, or until an output had too little room."""
        return self.code in (ResultCode.NO_ERROR, ResultCode.OUTPUT_INSUFFICIENT_SIZE)


SUCCESS: Final = Outcome()


class BurstController(Protocol):
    """A burst of one step."""

    def revive(self, seconds: float | None, began_ns: int | None) -> None:
        """Open it again if its driver has died; called before a computation, never during one.

        Args:
            seconds: from now; None if it may take as long as it takes.
            began_ns: when the computation began, on CLOCK_MONOTONIC: what has died since stays dead for it.

        Raises:
            NnburstError: the driver is not there again after `seconds`, or has died since `began_ns`.
        """

    def execute(self, inputs: list[Argument], outputs: list[Argument], options: Options) -> Outcome:
        """Execute once; DEAD_OBJECT if its driver is dead."""

    def close(self) -> None:
        """End the burst; twice is fine."""


class PreparedPart(Protocol):
    """A model or a step that a device has prepared. Thread-safe."""

    def revive(self, seconds: float | None, began_ns: int | None) -> None:
        """Prepare it again if its driver has died; called before a computation, never during one.

        Args:
            seconds: from now; None if it may take as long as it takes.
            began_ns: when the computation began, on CLOCK_MONOTONIC: what has died since stays dead for it.

        Raises:
            NnburstError: the driver is not there again after `seconds`, or has died since `began_ns`.
        """

    def execute(self, inputs: list[Argument], outputs: list[Argument], options: Options) -> Outcome:
        """Execute once; DEAD_OBJECT if its driver is dead; never raises for what a driver or data do."""

    def open_burst(self) -> BurstController | None:
        """A burst on it, which the caller closes; None if the device has no bursts."""

    def close(self) -> None:
        """Release it; twice is fine."""
