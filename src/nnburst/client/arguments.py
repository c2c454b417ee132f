"""Checks numpy arrays against the inputs and outputs of a model.

Everything is checked here, before anything is sent; error messages name the argument and the rule.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from nnburst.hal.errors import GeneralFailure, InvalidArgument, MissedDeadline
from nnburst.hal.extensions import Extension
from nnburst.hal.limits import INT64_MAX
from nnburst.hal.model import Model, refuse_masked
from nnburst.hal.signature import may_omit_inputs, type_name
from nnburst.hal.types import (
    ExecutionTiming,
    OutputShape,
    RequestArgument,
    Timing,
    changes_dimensions,
)
from nnburst.hal.utils import as_float, check_integer, is_number
from nnburst.hal.whole_graph import ElementTypes, engine_of

log = logging.getLogger(__name__)

Array = npt.NDArray[Any]
#: Bytes offered first for an output of unknown size, and the most that are offered later.
_FIRST_GUESS: Final = 64 * 1024
_LAST_GUESS: Final = 1 << 30
#: Longest duration that a message carries, in seconds.
_LONGEST: Final = 4e9
#: Shortest wait in seconds.
_SHORTEST: Final = 1e-3
#: Most threads that a program can ask for.
_MOST_THREADS: Final = 1024

E = TypeVar("E", bound=IntEnum)


class ExecutionResult(msgspec.Struct, frozen=True, eq=False):
    """The result of an execution. Immutable; its arrays are those of the request.

    Attributes:
        outputs: the array of each output of the model. A `Buffer` that was given for an output is returned
            in its place, although its type is declared as an array.
        output_shapes: one for each output; the model's shapes if the driver reports none, which it may do
            if the model declares them all.
        timing: microseconds; NO_TIMING unless the execution was measured.
        timing_ns: nanoseconds, from fenced and reusable executions and AIDL's bursts; None from others.
    """

    outputs: list[Array]
    output_shapes: tuple[OutputShape, ...]
    timing: Timing
    timing_ns: ExecutionTiming | None = None


@dataclass(frozen=True)
class Parameter:
    """Type and shape of the arrays for one input or output of a model. Immutable.

    Attributes:
        name: `inputs[i]` or `outputs[i]`, for messages.
        type: the operand's type.
        dtype: the dtype of its arrays. For an extension's type it is an opaque one of the size that the
            device reports, and arrays of any dtype of that size are accepted. If it is bool, arrays of uint8
            are accepted, too: 0 is false.
        dimensions: the model's dimensions; 0 is unknown.
        scalar: whether it is a scalar, whose arrays have rank 0.
        element: the type of the elements if numpy has no name for it, "bfloat16"; else empty.
        omissible: whether an operation may do without it; the driver decides then.
        may_differ: whether a run may give another shape than `dimensions`: that of a whole graph's output,
            whose engine computes what it computes even if the file declares it wrongly.
    """

    name: str
    type: int
    dtype: np.dtype[Any]
    dimensions: tuple[int, ...]
    scalar: bool
    element: str = ""
    omissible: bool = True
    may_differ: bool = False

    @property
    def known(self) -> bool:
        """Whether the model declares the whole shape."""
        return self.scalar or (bool(self.dimensions) and 0 not in self.dimensions)

    @property
    def size(self) -> int:
        """Bytes of its data; 0 if the shape is not known."""
        return self.dtype.itemsize * math.prod(self.dimensions) if self.known else 0

    @property
    def first_room(self) -> int:
        """Bytes to offer for an output at first: its size, or a guess if the size is unknown."""
        return self.size or _FIRST_GUESS

    def more_room(self, offered: int, needed: OutputShape) -> int | None:
        """Bytes to offer after `offered` were too few for the shape `needed`; None if more cannot help."""
        is_declared = self.known and (not self.may_differ or needed.dimensions == self.dimensions)
        if is_declared or offered >= _LAST_GUESS:
            return None
        wanted = self.dtype.itemsize * math.prod(needed.dimensions)
        return min(max(2 * offered, wanted), _LAST_GUESS)

    def check_input(self, value: object) -> Array:
        """Check that `value` fits this input, and return it; a numpy scalar becomes an array of rank 0.

        Raises:
            InvalidArgument: wrong type, dtype, rank, shape or layout.
        """
        array = self._check_array(value)
        self._check_shape(array.shape)
        return array

    def check_omitted(self) -> None:
        """Check that this input may be None.

        Raises:
            InvalidArgument: no operation can do without it.
        """
        if not self.omissible:
            self._check_array(None)

    def check_output(self, value: object) -> Array:
        """Check that `value` can hold this output, and return it.

        If the model does not declare the whole shape, an array of any shape may hold the output; so may a
        larger one than is declared if the shape may differ.

        Raises:
            InvalidArgument: wrong type, dtype, rank, shape or layout, or read-only.
        """
        if isinstance(value, np.generic):
            raise InvalidArgument(f"{self.name} is a numpy scalar, expected an array to write to")
        array = self._check_array(value)
        if not array.flags.writeable:
            raise InvalidArgument(f"{self.name} is read-only, expected a writable array")
        if self.known and not (self.may_differ and array.nbytes > self.size):
            self._check_shape(array.shape)
        elif not array.nbytes:
            raise InvalidArgument(f"{self.name} is empty, expected room for the output")
        return array

    def _check_array(self, value: object) -> Array:
        if value is None:
            raise InvalidArgument(f"{self.name} is None, expected an array of {self._wanted()}")
        if isinstance(value, np.generic):
            value = np.asarray(value)
        refuse_masked(self.name, value)
        if not isinstance(value, np.ndarray):
            raise InvalidArgument(
                f"{self.name} is of type {type(value).__name__},"
                f" expected a numpy array of {self._wanted()}"
            )
        if not self._takes(value.dtype):
            raise InvalidArgument(
                f"{self.name} has dtype {value.dtype}, expected {self._wanted()}"
                f" ({type_name(self.type)})"
            )
        if not value.flags.c_contiguous:
            raise InvalidArgument(f"{self.name} is not contiguous, expected C order without gaps")
        return value

    def _takes(self, dtype: np.dtype[Any]) -> bool:
        if self.dtype.type is np.void:
            return dtype.itemsize == self.dtype.itemsize and not dtype.hasobject
        return dtype == self.dtype or (dtype == np.uint8 and self.dtype == np.bool_)

    def _check_shape(self, shape: tuple[int, ...]) -> None:
        unknown_rank = not self.dimensions and not self.scalar
        if not unknown_rank and len(shape) != len(self.dimensions):
            raise InvalidArgument(
                f"{self.name} has rank {len(shape)} (shape {shape}), expected {self._wanted()}"
            )
        fits = unknown_rank or all(d in (0, s) for d, s in zip(self.dimensions, shape, strict=True))
        if not fits or 0 in shape or (unknown_rank and not shape):
            above = " with extents above 0" if 0 in shape and not self.known else ""
            raise InvalidArgument(
                f"{self.name} has shape {shape}, expected {self._wanted()}{above}"
            )

    def _wanted(self) -> str:
        name = self.dtype.name
        if self.element not in ("", name):
            name += f" ({self.element})"
        if self.scalar:
            return f"{name}, a scalar of shape ()"
        extents = ", ".join("any" if d == 0 else str(d) for d in self.dimensions)
        return f"{name} of shape ({extents or '...'})"

    def extents(self, array: Array) -> tuple[int, ...]:
        """The dimensions that a request states for an input: none if the model declares the whole shape."""
        return () if self.known else array.shape

    def shape_of(self, reported: OutputShape | None) -> tuple[int, ...]:
        """The shape of an output after an execution.

        Raises:
            GeneralFailure: the driver did not report the shape, or reported an impossible one.
        """
        found = reported.dimensions if reported else ()
        shape = found or self.dimensions
        least = 0 if found else 1  # a driver reports 0 for no elements: boxes of no object
        if (
            (not self.scalar and not shape)
            or any(extent < least for extent in shape)
            or (not self.may_differ and changes_dimensions(self.dimensions, shape))
        ):
            raise GeneralFailure(
                f"the driver reports shape {shape} for {self.name}, expected {self._wanted()}"
            )
        if self.may_differ and changes_dimensions(self.dimensions, shape):
            _tell(self.name, self.dimensions, shape)
        return () if self.scalar else shape


OMITTED: Final = RequestArgument(has_no_value=True)


def parameters(
    model: Model, extensions: Callable[[], Sequence[Extension]] = tuple
) -> tuple[list[Parameter], list[Parameter]]:
    """The inputs and outputs of a model, in order.

    Args:
        model: the model.
        extensions: returns the device's extensions; called only if the model uses any.

    Raises:
        InvalidArgument: the model lists an input or output that is no operand of it.
    """
    types = ElementTypes(model, extensions)
    main, is_whole = model.main, engine_of(model) is not None
    needed = {
        index
        for operation in main.operations
        if is_whole or not may_omit_inputs(operation.type)
        for index in operation.inputs
    }

    def parameter(name: str, index: int, *, may_differ: bool = False) -> Parameter:
        if not 0 <= index < len(main.operands):
            raise InvalidArgument(f"model: {name} is operand {index}, which is not defined")
        operand = main.operands[index]
        dtype, scalar, element = types.of(operand.type)
        omissible = index not in needed
        dimensions = operand.dimensions
        return Parameter(
            name, operand.type, dtype, dimensions, scalar, element, omissible, may_differ
        )

    return (
        [parameter(f"inputs[{n}]", index) for n, index in enumerate(main.input_indexes)],
        [
            parameter(f"outputs[{n}]", index, may_differ=is_whole)
            for n, index in enumerate(main.output_indexes)
        ],
    )


#: Types with a length that are no list of arrays. A tuple, since each execution asks.
_NO_LISTS: Final = (np.ndarray, dict)


def check_count(kind: str, given: Sequence[object], wanted: Sequence[Parameter]) -> None:
    """Check the number of arrays against the model.

    Raises:
        InvalidArgument: the numbers differ, or `given` is not a sequence, such as one array or a dict.
    """
    if not hasattr(given, "__len__") or isinstance(given, _NO_LISTS):
        raise InvalidArgument(
            f"{kind}: of type {type(given).__name__}, expected a sequence of {len(wanted)} arrays"
        )
    if len(given) != len(wanted):
        raise InvalidArgument(f"{kind}: {len(given)} arrays given, expected {len(wanted)}")


def check_timeout(timeout: float) -> float:
    """Check that `timeout` is a positive finite number of seconds; returns a float, at most 126 years.

    Raises:
        InvalidArgument: it is not.
    """
    if type(timeout) is float and 0 < timeout <= _LONGEST:
        return timeout  # nearly always, and each execution comes here
    if isinstance(timeout, bool) or not is_number(timeout):
        raise InvalidArgument(f"timeout: {timeout!r}, expected a number of seconds")
    if not 0 < timeout < math.inf:
        raise InvalidArgument(f"timeout: {timeout} s, expected more than 0 and finite")
    return min(as_float(timeout), _LONGEST)


def check_member(kind: type[E], value: int, name: str) -> E:
    """Convert `value` to a member of an enumeration (device:P3, P4).

    Raises:
        InvalidArgument: it is not a member; the message names the argument `name`.
    """
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(f"{member.name} ({int(member)})" for member in kind)
        raise InvalidArgument(f"{name}: {value!r}, expected one of {known}") from None


def check_thread_count(value: int) -> int:
    """Check a number of threads, and return it; 0 leaves the number to the driver.

    Raises:
        InvalidArgument: it is not an integer from 0 to the largest number.
    """
    return check_integer("num_threads", value, 0, _MOST_THREADS)


def check_callable(name: str, callback: object) -> None:
    """Raise InvalidArgument, naming `name`, unless an object can be called."""
    if not callable(callback):
        raise InvalidArgument(f"{name} is {callback!r}, expected a function")


def check_deadline(value: int | None) -> int | None:
    """Check a deadline in nanoseconds, and return it; None is no deadline.

    Raises:
        InvalidArgument: it is not an integer of 64 bits; the driver refuses a negative one (device:P5).
    """
    return None if value is None else check_integer("deadline_ns", value, ~INT64_MAX, INT64_MAX)


def time_left(deadline: float) -> float:
    """Seconds until `deadline` on `time.monotonic`, for a request that is about to be sent.

    Raises:
        MissedDeadline: no time is left.
    """
    left = deadline - time.monotonic()
    if left <= 0:
        raise MissedDeadline("timeout: it passed before the request could be sent")
    return left


def wait_left(deadline: float) -> float:
    """Seconds until `deadline` on `time.monotonic`; at least 1 ms, to find an outcome that has just come."""
    return max(deadline - time.monotonic(), _SHORTEST)


def in_nanoseconds(seconds: float) -> int:
    """Convert a positive duration to the nanoseconds of a message, at most about 126 years."""
    return int(min(seconds, _LONGEST) * 1e9)


def boottime_deadline_ns(timeout: float) -> int:
    """The time on CLOCK_BOOTTIME, in nanoseconds, that is `timeout` seconds from now."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) + in_nanoseconds(timeout)


def seconds_until(deadline_ns: int) -> float:
    """Seconds from now to `deadline_ns` on CLOCK_BOOTTIME; negative if it has passed."""
    return (deadline_ns - time.clock_gettime_ns(time.CLOCK_BOOTTIME)) / 1e9


#: Outputs whose declared dimensions were wrong. The log has a line for each, not for each execution.
_told: Final[set[tuple[str, tuple[int, ...]]]] = set()


def _tell(name: str, declared: tuple[int, ...], shape: tuple[int, ...]) -> None:
    """Log that an output has another shape than its file declares, once."""
    if (name, declared) not in _told:
        _told.add((name, declared))
        log.warning(
            "%s: the file declares %s, the engine computes %s; results have the computed shape",
            name,
            list(declared),
            list(shape),
        )


def complete_shapes(
    parameters: Sequence[Parameter], reported: Sequence[OutputShape]
) -> tuple[OutputShape, ...]:
    """Shapes of all outputs after a success: the reported ones, or the model's if none were reported."""
    return tuple(reported) or tuple(OutputShape(p.dimensions, True) for p in parameters)


def settle_truth(array: Array) -> Array:
    """Make each byte of a bool array 0 or 1, whatever the driver wrote; returns the array.

    numpy relies on that: with other bytes it would count and index wrongly.
    """
    if array.dtype == np.bool_:
        bytes_of = array.reshape(-1).view(np.uint8)
        np.minimum(bytes_of, 1, out=bytes_of)
    return array


def copy_elements(target: Array, source: Array) -> None:
    """Copy between arrays that fit one parameter: bytes if the dtype of one is opaque, else values."""
    if target.dtype is not source.dtype and np.void in (target.dtype.type, source.dtype.type):
        opaque = np.dtype((np.void, target.itemsize))
        target, source = target.view(opaque), source.view(opaque)
    target[...] = source


def in_shape(name: str, array: Array, shape: tuple[int, ...]) -> Array:
    """An output's array in the shape that a driver reports: itself, or a view of its beginning.

    Raises:
        GeneralFailure: the array is too small for that, which the driver should have reported.
    """
    if array.shape == shape:
        return array
    if math.prod(shape) > array.size:
        raise GeneralFailure(f"the driver reports {name} of shape {shape} in {array.size} elements")
    return head(array, shape)


def head(buffer: Array, shape: tuple[int, ...]) -> Array:
    """A view of the beginning of a contiguous array, in another shape."""
    return np.asarray(buffer).reshape(-1)[: math.prod(shape)].reshape(shape)
