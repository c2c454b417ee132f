"""Keeps the settings and the state of an execution; its first computation fixes the settings (RT:E1)."""

from __future__ import annotations

import logging
import math
from abc import abstractmethod
from enum import Enum
from typing import Final

from nnburst.hal.enums import DurationCode
from nnburst.hal.errors import BadState, InvalidArgument
from nnburst.hal.limits import DEFAULT_LOOP_TIMEOUT_NS, MAX_LOOP_TIMEOUT_NS, NO_TIMING
from nnburst.runtime.argument import Outcome
from nnburst.runtime.execution.executable import Executable
from nnburst.runtime.extensions import AttributeList
from nnburst.runtime.runtime_object import RuntimeObject


class State(Enum):
    """The state of an execution."""

    PREPARATION = "in preparation"
    COMPUTATION = "computing"
    COMPLETED = "completed"


#: Longest duration that a message carries, in seconds.
_LONGEST = 4e9


def nanoseconds(what: str, seconds: float | None) -> int | None:
    """A duration in nanoseconds; None for None or 0.

    Raises:
        InvalidArgument: the duration is negative, infinite or not a number.
    """
    if seconds is None:
        return None
    if not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
        raise InvalidArgument(f"{what}: {seconds!r}, expected seconds, 0 or more and finite")
    return round(min(seconds, _LONGEST) * 1e9) or None


def measured_nanoseconds(outcome: Outcome, code: DurationCode) -> int | None:
    """One of the durations of an execution; None if the device does not measure it (RT:E8)."""
    timing = outcome.timing
    if code.is_fenced and outcome.fenced_timing is not None:
        timing = outcome.fenced_timing
    micros = timing.time_on_device if code.is_on_hardware else timing.time_in_driver
    return None if micros == NO_TIMING else min(micros * 1000, NO_TIMING - 1)


logger = logging.getLogger("nnburst.runtime")


class ExecutionSettings(RuntimeObject):
    """The settings of an execution: padding, timing, limits, and whether it may compute again."""

    def __init__(self, executable: Executable) -> None:
        """Start with NNAPI's defaults."""
        super().__init__()
        self._executable: Final = executable
        self._state = State.PREPARATION
        self._padding = self._reusable = self._measure = False
        self._timeout_ns: int | None = None
        self._attributes: Final = AttributeList()
        self._loop_timeout_ns = DEFAULT_LOOP_TIMEOUT_NS

    @property
    def _is_plain(self) -> bool:
        """Whether all settings but `reusable` have their defaults."""
        return (
            not (self._measure or self._padding or self._attributes.added)
            and self._timeout_ns is None
            and self._loop_timeout_ns == DEFAULT_LOOP_TIMEOUT_NS
        )

    @property
    @abstractmethod
    def _has_arguments(self) -> bool:
        """Whether an argument was set, even without success."""

    @property
    def padding(self) -> bool:
        """Whether arguments may be longer than their operands (RT:R23); False unless set.

        Raises:
            BadState: padding is set after a computation has started or an argument was set.
        """
        return self._padding

    @padding.setter
    def padding(self, enable: bool) -> None:
        self._check_preparation("padding")
        if self._has_arguments:
            raise BadState("padding: an argument was set before")
        self._padding = bool(enable)

    @property
    def reusable(self) -> bool:
        """Whether the execution may compute more than once; False unless set.

        Raises:
            BadState: the setting is changed after a computation has started.
        """
        return self._reusable

    @reusable.setter
    def reusable(self, value: bool) -> None:
        self._check_preparation("reusable")
        self._reusable = bool(value)

    @property
    def measure_timing(self) -> bool:
        """Whether computations are timed; False unless set. Needs one explicit device.

        Raises:
            BadState: the setting is changed after a computation has started.
            InvalidArgument: the setting is changed without one explicit device; BAD_DATA.
        """
        return self._measure

    @measure_timing.setter
    def measure_timing(self, measure: bool) -> None:
        self._check_one_device("measure_timing")
        self._check_preparation("measure_timing")
        self._measure = bool(measure)

    @property
    def timeout(self) -> float | None:
        """Seconds that a computation may take; None and 0 for no limit. Needs one explicit device.

        Raises:
            BadState: the timeout is set after a computation has started.
            InvalidArgument: the timeout is set to less than 0, or without one explicit device; BAD_DATA.
        """
        return None if self._timeout_ns is None else self._timeout_ns / 1e9

    @timeout.setter
    def timeout(self, seconds: float | None) -> None:
        self._check_one_device("timeout")
        self._check_preparation("timeout")
        self._timeout_ns = nanoseconds("timeout", seconds)

    def limit(self, seconds: float) -> None:
        """Limit the time of computations, for any devices; after the deadline the CPU computes.

        Args:
            seconds: seconds that a computation may take; 0 for no limit.

        Raises:
            BadState: a computation has started.
            InvalidArgument: `seconds` is less than 0; BAD_DATA.
        """
        self._check_preparation("limit")
        self._timeout_ns = nanoseconds("limit", seconds)

    @property
    def loop_timeout(self) -> float:
        """Seconds that a WHILE may run; 2 unless set. More than 15 become 15, which is logged.

        Raises:
            BadState: the timeout is set after a computation has started.
            InvalidArgument: the timeout is set to less than 0; BAD_DATA.
        """
        return self._loop_timeout_ns / 1e9

    @loop_timeout.setter
    def loop_timeout(self, seconds: float) -> None:
        self._check_preparation("loop_timeout")
        duration = nanoseconds("loop_timeout", seconds) or 0
        if duration > MAX_LOOP_TIMEOUT_NS:
            logger.warning("loop_timeout: %g s is cut to 15 s", seconds)
        self._loop_timeout_ns = min(duration, MAX_LOOP_TIMEOUT_NS)

    def add_extension_attribute(
        self, extension: str, code: int, value: bytes | memoryview = b""
    ) -> None:
        """Give the device an attribute of a vendor extension for the computations.

        Needs one explicit device, which reads or ignores the attribute. A device below level 8 never gets it,
        which is logged.

        Args:
            extension: name of the extension.
            code: code of the attribute, 16 bits.
            value: bytes of the attribute.

        Raises:
            UnexpectedNull: `extension` or `value` is None.
            InvalidArgument: there is not one explicit device, no device has the extension, or the code was
                added before or has more than 16 bits; BAD_DATA.
            BadState: a computation has started.
        """
        self._attributes.check_given(extension, value)
        self._check_one_device("add_extension_attribute")
        self._check_preparation("add_extension_attribute")
        self._attributes.add(extension, code, value)

    def _check_one_device(self, what: str) -> None:
        self._check_open()
        if not self._executable.interface.is_one_explicit_device:
            raise InvalidArgument(f"{what}: needs a compilation for one explicit device")

    def _check_preparation(self, what: str) -> None:
        self._check_open()
        if self._state != State.PREPARATION:
            raise BadState(f"{what}: the execution has started a computation")
