"""Defines an exception for each ErrorStatus that a caller can act on, and names arguments in messages.

A message names an argument as a keyword of a Python function, or, within a command, as an option: commands
such as `nnburst run` call the same functions as programs, but their users never see `shapes=`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ClassVar, Final, Literal

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
    """Convert a HAL status to the framework's code (NNAPI: convertErrorStatusToResultCode)."""
    return _CODES[status]


class NnburstError(Exception):
    """Base of all errors of this package.

    Errors can be pickled.

    Attributes:
        status: the HAL status of the error.
        code: NNAPI's result code of the error.
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
        """Create an error.

        Args:
            message: readable text; names argument, value and rule.
            status: the HAL status; that of the class unless given.
            output_shapes: an `OutputShape` for each output, if they are known.
        """
        super().__init__(message)
        self.status = self.default_status if status is None else status
        self.output_shapes = tuple(output_shapes)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the attributes, not the constructor's arguments: constructors differ and extend messages."""
        return _restore, (type(self), self.args, self.__dict__)

    @property
    def code(self) -> ResultCode:
        """NNAPI's result code of the error."""
        return result_code(self.status)


def _restore(
    kind: type[NnburstError], args: tuple[object, ...], state: dict[str, Any]
) -> NnburstError:
    error = kind.__new__(kind, *args)
    error.args = args  # OSError.__new__ leaves them to __init__
    error.__dict__.update(state)
    return error


class GeneralFailure(NnburstError):
    """The driver failed for a reason that no other class describes."""


class DeviceUnavailable(NnburstError):
    """The driver is busy, offline, or of a version that this package does not speak."""

    default_status = ErrorStatus.DEVICE_UNAVAILABLE


class OutputInsufficientSize(NnburstError):
    """The room for an output is too small; `output_shapes` has the needed shapes."""

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
    """The driver lost the state of a sequence, or it is unknown; `reset` sets it to the initial state."""


class MalformedPacket(NnburstError, ValueError):
    """A burst packet breaks one of burst:D1 to D8.

    Attributes:
        index: index of the element of the packet that breaks the rule.
        rule: the broken rule, "D1" to "D8".
    """

    def __init__(self, message: str, *, index: int, rule: str) -> None:
        """Create the error with the place and the rule."""
        super().__init__(f"burst:{rule} at element {index}: {message}")
        self.index = index
        self.rule = rule


class QueueCorrupted(NnburstError):
    """A counter that the peer wrote contradicts the queue's size; the queue is unusable from now on."""


class BurstBusy(NnburstError):
    """The burst, request or reusable execution is in use, or too many of its requests are under way.

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
    """Make the exception for `status`, which must not be NONE."""
    return _BY_STATUS[status](message, status=status, output_shapes=output_shapes)


def error_for_code(
    code: ResultCode, message: str, output_shapes: Sequence[Any] = ()
) -> NnburstError:
    """Make the exception for `code`, which must not be NO_ERROR."""
    if kind := _BY_CODE.get(code):
        return kind(message, output_shapes=output_shapes)
    status = next(status for status, found in _CODES.items() if found == code)
    return error_for(status, message, output_shapes)


#: Names in messages: of arguments, of options of a command, or of settings of a model's config.pbtxt.
_NAMES: Final[ContextVar[Literal["arguments", "options", "settings"]]] = ContextVar(
    "names", default="arguments"
)
_SETTINGS: Final = {"shapes": "dims", "states": "sequence_batching.state"}


@contextmanager
def as_options(*, in_config: bool = False) -> Iterator[None]:
    """A context in which messages made by this thread name arguments as options of a command.

    Args:
        in_config: whether they are settings of config.pbtxt instead, if it has such a setting.
    """
    token = _NAMES.set("settings" if in_config else "options")
    try:
        yield
    finally:
        _NAMES.reset(token)


def spelt(name: str, key: str | None = None) -> str:
    """An argument's name, or that of one key.

    `shapes` or `shapes['x']`, in a command `--shape` or `--shape x`, in a configuration `config.pbtxt: dims`
    or `config.pbtxt: dims of 'x'`.
    """
    if _is_setting(name):
        return f"config.pbtxt: {_SETTINGS[name]}" + (f" of {key!r}" if key is not None else "")
    if _NAMES.get() != "arguments":
        return _option(name) + (f" {key}" if key is not None else "")
    return name + (f"[{key!r}]" if key is not None else "")


def keyed_value(name: str, key: str, value: str) -> str:
    """An argument with one key and value.

    `shapes={'x': (1, 3)}`, in a command `--shape x=1,3`, in a configuration `dims: [1, 3] of 'x' in
    config.pbtxt`.
    """
    if _is_setting(name):
        return f"{_SETTINGS[name]}: [{value}] of {key!r} in config.pbtxt"
    if _NAMES.get() != "arguments":
        return f"{_option(name)} {key}={value.replace(', ', ',')}"
    return f"{name}={{{key!r}: ({value})}}"


def flag(function: str, name: str) -> str:
    """A call that switches an argument on: `nnburst.load(…, as_graph=True)`, in a command `--as-graph`."""
    return _option(name) if _NAMES.get() != "arguments" else f"{function}(…, {name}=True)"


def _is_setting(name: str) -> bool:
    return _NAMES.get() == "settings" and name in _SETTINGS


def _option(name: str) -> str:
    """The option for an argument; it has a singular name if it can be repeated for several values."""
    return "--" + name.replace("_", "-").removesuffix("s")
