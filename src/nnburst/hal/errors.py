"""Defines an exception for each ErrorStatus that a caller can act on, and spells arguments in messages.

A message names an argument as Python's functions take it, or as an option within a command: `nnburst run`
and its like call the same functions as programs do, and their users never see `shapes=`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ClassVar, Final

from nnburst.hal.enums import ErrorStatus, ResultCode

_CODES: dict[ErrorStatus, ResultCode] = {
    ErrorStatus.NONE: ResultCode.NO_ERROR,
    ErrorStatus.DEVICE_UNAVAILABLE: ResultCode.UNAVAILABLE_DEVICE,
    ErrorStatus.GENERAL_FAILURE: ResultCode.OP_FAILED,
    ErrorStatus.OUTPUT_INSUFFICIENT_SIZE: ResultCode.OUTPUT_INSUFFICIENT_SIZE,
    ErrorStatus.INVALID_ARGUMENT: ResultCode.BAD_DATA,
    ErrorStatus.MISSED_DEADLINE_TRANSIENT: ResultCode.MISSED_DEADLINE_TRANSIENT,
    ErrorStatus.MISSED_DEADLINE_PERSISTENT: ResultCode.MISSED_DEADLINE_PERSISTENT,
    ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT: ResultCode.RESOURCE_EXHAUSTED_TRANSIENT,
    ErrorStatus.RESOURCE_EXHAUSTED_PERSISTENT: ResultCode.RESOURCE_EXHAUSTED_PERSISTENT,
    ErrorStatus.DEAD_OBJECT: ResultCode.DEAD_OBJECT,
}


def result_code(status: ErrorStatus) -> ResultCode:
    """The framework's code for a HAL status (NNAPI: convertErrorStatusToResultCode)."""
    return _CODES[status]


class NnburstError(Exception):
    """Root of every error of this package.

    Errors can be pickled.

    Attributes:
        status: the HAL status that the error stands for.
        code: NNAPI's result code for it.
        output_shapes: the `OutputShape` that the driver reported for each output, if it reported any.
    """

    default_status: ClassVar[ErrorStatus] = ErrorStatus.GENERAL_FAILURE

    def __init__(
        self,
        message: str,
        *,
        status: ErrorStatus | None = None,
        output_shapes: Sequence[Any] = (),
    ) -> None:
        """Make an error that can be raised.

        Args:
            message: for people; names argument, value and rule.
            status: the HAL status; that of the class unless given.
            output_shapes: an `OutputShape` for each output, if they are known.
        """
        super().__init__(message)
        self.status = self.default_status if status is None else status
        self.output_shapes = tuple(output_shapes)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what the error holds, and not how it was made: constructors differ, and add to messages."""
        return _restore, (type(self), self.args, self.__dict__)

    @property
    def code(self) -> ResultCode:
        """NNAPI's result code for it."""
        return result_code(self.status)


def _restore(
    kind: type[NnburstError], args: tuple[object, ...], state: dict[str, Any]
) -> NnburstError:
    error = kind.__new__(kind, *args)
    error.args = args  # OSError.__new__ leaves them to __init__
    error.__dict__.update(state)
    return error


class GeneralFailure(NnburstError):
    """The driver failed for a reason that the other classes do not name."""


class DeviceUnavailable(NnburstError):
    """The driver is busy, offline, or of a version that this package does not speak."""

    default_status = ErrorStatus.DEVICE_UNAVAILABLE


class OutputInsufficientSize(NnburstError):
    """The room for an output is too small; `output_shapes` has what is needed."""

    default_status = ErrorStatus.OUTPUT_INSUFFICIENT_SIZE


class InvalidArgument(NnburstError, ValueError):
    """An argument breaks a rule; the message names the argument and the rule."""

    default_status = ErrorStatus.INVALID_ARGUMENT


class MissedDeadline(NnburstError, TimeoutError):
    """A deadline or timeout has passed. `status` shows whether a retry may help (TRANSIENT)."""

    default_status = ErrorStatus.MISSED_DEADLINE_TRANSIENT


class ResourceExhausted(NnburstError):
    """A quota or the memory is used up. `status` shows whether a retry may help (TRANSIENT)."""

    default_status = ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT


class DeadObject(NnburstError, ConnectionError):
    """The process behind the object has died; the message has the cause, if that is known."""

    default_status = ErrorStatus.DEAD_OBJECT


class StateLost(DeadObject):
    """The state of a sequence in its driver is lost, or not known; `reset` begins anew."""


class MalformedPacket(NnburstError, ValueError):
    """A burst packet breaks one of burst:D1 to D8.

    Attributes:
        index: element of the packet at which the rule broke.
        rule: "D1" to "D8".
    """

    def __init__(self, message: str, *, index: int, rule: str) -> None:
        """Keep the place and the rule beside the message."""
        super().__init__(f"burst:{rule} at element {index}: {message}")
        self.index = index
        self.rule = rule


class QueueCorrupted(NnburstError):
    """A counter that the peer wrote contradicts the queue's size; the queue is unusable from now on."""


class BurstBusy(NnburstError):
    """The burst, the request or the reusable execution is in use, or as many requests are out as it allows.

    NDK: BAD_STATE.
    """

    code = ResultCode.BAD_STATE


class Closed(NnburstError, ValueError):
    """The object was closed or cancelled, before or during this call, or this is a forked child."""

    default_status = ErrorStatus.INVALID_ARGUMENT
    code = ResultCode.BAD_STATE


class UnexpectedNull(InvalidArgument):
    """An argument is None that must not be (NNAPI: UNEXPECTED_NULL)."""

    code = ResultCode.UNEXPECTED_NULL


class BadState(NnburstError):
    """The object is not in the state that the call needs (NNAPI: BAD_STATE)."""

    code = ResultCode.BAD_STATE


class Unmappable(NnburstError):
    """A memory cannot be mapped (NNAPI: UNMAPPABLE)."""

    code = ResultCode.UNMAPPABLE


class OutOfMemory(NnburstError):
    """This process has no memory left (NNAPI: OUT_OF_MEMORY)."""

    code = ResultCode.OUT_OF_MEMORY


class Incomplete(NnburstError):
    """The call did not finish (NNAPI: INCOMPLETE)."""

    code = ResultCode.INCOMPLETE


_BY_CODE: dict[ResultCode, type[NnburstError]] = {
    kind.code: kind for kind in (UnexpectedNull, BadState, Unmappable, OutOfMemory, Incomplete)
}
_BY_STATUS: dict[ErrorStatus, type[NnburstError]] = {
    ErrorStatus.DEVICE_UNAVAILABLE: DeviceUnavailable,
    ErrorStatus.GENERAL_FAILURE: GeneralFailure,
    ErrorStatus.OUTPUT_INSUFFICIENT_SIZE: OutputInsufficientSize,
    ErrorStatus.INVALID_ARGUMENT: InvalidArgument,
    ErrorStatus.MISSED_DEADLINE_TRANSIENT: MissedDeadline,
    ErrorStatus.MISSED_DEADLINE_PERSISTENT: MissedDeadline,
    ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT: ResourceExhausted,
    ErrorStatus.RESOURCE_EXHAUSTED_PERSISTENT: ResourceExhausted,
    ErrorStatus.DEAD_OBJECT: DeadObject,
}


def error_for(status: ErrorStatus, message: str, output_shapes: Sequence[Any] = ()) -> NnburstError:
    """The exception that stands for `status`, which must not be NONE."""
    return _BY_STATUS[status](message, status=status, output_shapes=output_shapes)


def error_for_code(
    code: ResultCode, message: str, output_shapes: Sequence[Any] = ()
) -> NnburstError:
    """The exception that stands for `code`, which must not be NO_ERROR."""
    if kind := _BY_CODE.get(code):
        return kind(message, output_shapes=output_shapes)
    status = next(status for status, found in _CODES.items() if found == code)
    return error_for(status, message, output_shapes)


_IS_COMMAND: Final[ContextVar[bool]] = ContextVar("is_command", default=False)


@contextmanager
def as_options() -> Iterator[None]:
    """Spell arguments as options in all messages that this thread makes within."""
    token = _IS_COMMAND.set(True)
    try:
        yield
    finally:
        _IS_COMMAND.reset(token)


def spelt(name: str, key: str | None = None) -> str:
    """`shapes`, or of one key `shapes['x']`; in a command `--shape` and `--shape x`."""
    if _IS_COMMAND.get():
        return _option(name) + (f" {key}" if key is not None else "")
    return name + (f"[{key!r}]" if key is not None else "")


def keyed_value(name: str, key: str, value: str) -> str:
    """The way to write the value of one key: `shapes={'x': (1, 3)}`, in a command `--shape x=1,3`."""
    if _IS_COMMAND.get():
        return f"{_option(name)} {key}={value.replace(', ', ',')}"
    return f"{name}={{{key!r}: ({value})}}"


def flag(function: str, name: str) -> str:
    """The way to switch an argument on: `nnburst.load(…, as_graph=True)`, in a command `--as-graph`."""
    return _option(name) if _IS_COMMAND.get() else f"{function}(…, {name}=True)"


def _option(name: str) -> str:
    """The option of an argument: one that has several values is repeated, and its name is of one."""
    return "--" + name.replace("_", "-").removesuffix("s")
