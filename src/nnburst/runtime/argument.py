"""Describes an input or output of a computation, and the outcome of the computation on a device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from nnburst.client.execution.buffer import Buffer
from nnburst.hal.enums import ResultCode
from nnburst.hal.errors import NnburstError, error_for_code
from nnburst.hal.extensions import ExtensionAttribute
from nnburst.hal.limits import DEFAULT_LOOP_TIMEOUT_NS, UINT32_MAX
from nnburst.hal.types import OutputShape, Timing, changes_dimensions, has_passed

NOT_TIMED: Final = Timing()

Bytes = npt.NDArray[np.uint8]


@dataclass(slots=True)
class Argument:
    """The place of an input or output, and its dimensions.

    Attributes:
        bytes: a view of a pool or of private memory; None if the argument is omitted or lies in a buffer.
        dimensions: the dimensions as far as they are known; 0 is unknown.
        buffer: the driver's buffer that the argument lies in, or None.
    """

    bytes: Bytes | None
    dimensions: tuple[int, ...] = ()
    buffer: Buffer | None = None

    @property
    def is_omitted(self) -> bool:
        """Whether the argument has no value."""
        return self.bytes is None and self.buffer is None


@dataclass(frozen=True, slots=True)
class Options:
    """Settings of one computation.

    Attributes:
        measure: whether the computation is timed.
        deadline_ns: the deadline on CLOCK_BOOTTIME; None for none.
        loop_timeout_ns: nanoseconds that a WHILE may run.
        attributes: attributes of vendor extensions, for the device.
        is_final: whether nothing is computed after the deadline; if not, the CPU may take over then, without
            a limit (RT:R14).
    """

    measure: bool = False
    deadline_ns: int | None = None
    loop_timeout_ns: int = DEFAULT_LOOP_TIMEOUT_NS
    attributes: tuple[ExtensionAttribute, ...] = ()
    is_final: bool = False

    @property
    def is_over(self) -> bool:
        """Whether the deadline is final and has passed."""
        return self.is_final and has_passed(self.deadline_ns)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a computation: a code, and shapes and times if it has them.

    Attributes:
        code: the framework's result code.
        output_shapes: a shape for each output with NO_ERROR and OUTPUT_INSUFFICIENT_SIZE, or empty.
        timing: durations in microseconds.
        message: the reason of a failure.
        fenced_timing: durations from the last fence on, in microseconds; None if they are the same.
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
    def error(self) -> NnburstError:
        """The exception for a failed outcome."""
        return error_for_code(self.code, self.message, self.output_shapes)

    def succeeded(self) -> Outcome:
        """Return this outcome if it is a success, else raise its error.

        Raises:
            NnburstError: the outcome is a failure.
        """
        if self.code != ResultCode.NO_ERROR:
            raise self.error
        return self

    @property
    def has_result(self) -> bool:
        """Whether the device computed: to the end, or until an output had too little room."""
        return self.code in (ResultCode.NO_ERROR, ResultCode.OUTPUT_INSUFFICIENT_SIZE)


SUCCESS: Final = Outcome()


class Mortal(Protocol):
    """A part or a burst, which can be lost with its driver and made again."""

    @property
    def died_ns(self) -> int | None:
        """When the end of the driver was noticed, on CLOCK_MONOTONIC; None while the driver is there."""

    def revive(self) -> None:
        """If the driver is dead, connect, prepare and open again. There is no time limit.

        The background thread calls this (`Background`), a computation never does.

        Raises:
            NnburstError: the driver does not come back.
        """


class BurstController(Mortal, Protocol):
    """A burst of one step."""

    def execute(self, inputs: list[Argument], outputs: list[Argument], options: Options) -> Outcome:
        """Execute once; DEAD_OBJECT if its driver is dead."""

    def close(self) -> None:
        """End the burst; twice is fine."""


class PreparedPart(Mortal, Protocol):
    """A model or a step that a device has prepared. Thread-safe."""

    def execute(self, inputs: list[Argument], outputs: list[Argument], options: Options) -> Outcome:
        """Execute once; DEAD_OBJECT if the driver is dead. Failures of drivers or of data are not raised."""

    def open_burst(self) -> BurstController | None:
        """A burst on it, which the caller closes; None if the device has no bursts."""

    def close(self) -> None:
        """Release it; twice is fine."""


Shape = tuple[int, ...]


def checked_outcome(
    outcome: Outcome, declared: Sequence[Shape], is_tensor: Sequence[bool], sizes: Sequence[int]
) -> Outcome:
    """`outcome`, without times if it is a failure; OP_FAILED if its shapes are impossible (RT:R10).

    Args:
        outcome: the outcome that a device reports.
        declared: dimensions of each output in the request.
        is_tensor: for each output, whether it is a tensor.
        sizes: for each output, the bytes of an element.
    """
    reason = _what_is_wrong(outcome, declared, is_tensor, sizes)
    if reason:
        return Outcome(ResultCode.OP_FAILED, message=f"device: it {reason}")
    if outcome.code != ResultCode.NO_ERROR:
        return replace(outcome, timing=NOT_TIMED, fenced_timing=None)
    return outcome


def _what_is_wrong(
    outcome: Outcome, declared: Sequence[Shape], is_tensor: Sequence[bool], sizes: Sequence[int]
) -> str:
    shapes = outcome.output_shapes
    if outcome.code == ResultCode.NO_ERROR:
        if not all(shape.is_sufficient for shape in shapes):
            return "reports success and an output that is too small"
        if any(t and not s.dimensions for t, s in zip(is_tensor, shapes, strict=False)):
            return "reports success and a tensor without rank"
    elif outcome.code == ResultCode.OUTPUT_INSUFFICIENT_SIZE:
        if not shapes or all(shape.is_sufficient for shape in shapes):
            return "reports OUTPUT_INSUFFICIENT_SIZE and no output that is too small"
    elif shapes:
        return f"reports {outcome.code.name} and shapes"
    if shapes and len(shapes) != len(declared):
        return f"reports {len(shapes)} shapes for {len(declared)} outputs"
    for index, (shape, known, size) in enumerate(zip(shapes, declared, sizes, strict=False)):
        if changes_dimensions(known, shape.dimensions):
            return f"reports {list(shape.dimensions)} for output {index}, which is {list(known)}"
        if size * math.prod(shape.dimensions) > UINT32_MAX:
            return f"reports {list(shape.dimensions)} for output {index}: more than 2^32 bytes"
    return ""
