"""Gives the application records of its compilations and executions.

    def keep(record): ...                       # a CompilationRecord or an ExecutionRecord
    manager.records.callback = keep             # recording starts here; records stay in the process

NNAPI: RT:T4 to T6. DEVIATES: records have no process number and are not merged, since they stay in the
process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from nnburst.hal.enums import OperandType, ResultCode
from nnburst.hal.limits import NO_TIMING
from nnburst.hal.model import Operand
from nnburst.hal.types import Timing

logger = logging.getLogger("nnburst.runtime")


class OperandClass(IntEnum):
    """The kind of a model's inputs or outputs (RT:T5)."""

    UNKNOWN = 0
    OTHER = 1
    FLOAT32 = 2
    FLOAT16 = 3
    QUANT = 4
    MIXED = 5


class ExecutionMode(IntEnum):
    """The call by which an execution was computed (RT:T5)."""

    ASYNC = 0
    SYNC = 1
    BURST = 2
    ASYNC_WITH_DEPS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFacts:
    """The facts of a plan that the records of its compilation and of its executions share.

    Attributes:
        architecture_hash: 32 bytes, a hash over the model without its weights (RT:T6).
        device_id: "name=version" of all devices of the compilation's list, sorted, comma-separated.
        input_class: kind of the model's inputs.
        output_class: kind of the model's outputs.
        is_explicit: whether the caller listed the devices.
        has_caching: whether the compilation has a cache.
        has_control_flow: whether the model has an IF or a WHILE.
        has_dynamic_temporaries: whether a value between steps is of unknown size.
    """

    architecture_hash: bytes
    device_id: str
    input_class: OperandClass
    output_class: OperandClass
    is_explicit: bool
    has_caching: bool
    has_control_flow: bool
    has_dynamic_temporaries: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CompilationRecord:
    """The record of a `Compilation.finish`, with or without success.

    Attributes:
        facts: facts of the model and its plan.
        code: the result code.
        duration_ns: duration in nanoseconds.
        fell_back_to_cpu: whether the CPU has the whole model because planning failed.
    """

    facts: PlanFacts
    code: ResultCode
    duration_ns: int
    fell_back_to_cpu: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionRecord:
    """The record of a computation that has ended.

    Attributes:
        facts: facts of the model and its plan.
        mode: the call that computed.
        code: the result code.
        runtime_ns: nanoseconds from the start of the computation; None for ASYNC_WITH_DEPS.
        driver_ns: nanoseconds in the driver; None if not measured.
        hardware_ns: nanoseconds on the hardware; None if not measured.
    """

    facts: PlanFacts
    mode: ExecutionMode
    code: ResultCode
    runtime_ns: int | None
    driver_ns: int | None
    hardware_ns: int | None


Record = CompilationRecord | ExecutionRecord


class Records:
    """Gives the records of a manager's compilations to a callback. Thread-safe.

    Attributes:
        callback: called with each record, on the thread on which the compilation or computation ended;
            None for no records. Its exceptions are logged. While it is set, Python computes reusable
            executions and bound requests that were not bound before, since C keeps no records.
    """

    def __init__(self) -> None:
        """Start without a callback."""
        self.callback: Callable[[Record], None] | None = None

    def __repr__(self) -> str:
        return f"<nnburst.runtime Records, given to {self.callback}>"

    def _emit(self, record: Record) -> None:
        """Call the callback, if there is one, with a record."""
        callback = self.callback
        if callback is None:
            return
        try:
            callback(record)
        except Exception:
            logger.exception("the callback for records failed: the record is dropped")


class PlanRecorder:
    """Records the executions of one plan. Thread-safe.

    Attributes:
        facts: facts of the plan.
    """

    def __init__(self, records: Records, facts: PlanFacts) -> None:
        """Give the records to `records`."""
        self._records: Final = records
        self.facts: Final = facts

    @property
    def is_on(self) -> bool:
        """Whether records are taken."""
        return self._records.callback is not None

    def executed(self, mode: ExecutionMode, code: ResultCode, took_ns: int, timing: Timing) -> None:
        """Record a computation.

        Args:
            mode: the call that computed.
            code: the result code.
            took_ns: nanoseconds from the start.
            timing: the driver's durations in microseconds.
        """
        if not self.is_on:
            return
        is_fenced = mode == ExecutionMode.ASYNC_WITH_DEPS
        self._records._emit(
            ExecutionRecord(
                facts=self.facts,
                mode=mode,
                code=code,
                runtime_ns=None if is_fenced else took_ns,
                driver_ns=_nanoseconds(timing.time_in_driver),
                hardware_ns=_nanoseconds(timing.time_on_device),
            )
        )


_CLASSES: Final = {
    OperandType.TENSOR_FLOAT32: OperandClass.FLOAT32,
    OperandType.TENSOR_FLOAT16: OperandClass.FLOAT16,
    OperandType.TENSOR_QUANT8_ASYMM: OperandClass.QUANT,
    OperandType.TENSOR_QUANT8_ASYMM_SIGNED: OperandClass.QUANT,
    OperandType.TENSOR_QUANT8_SYMM: OperandClass.QUANT,
    OperandType.TENSOR_QUANT8_SYMM_PER_CHANNEL: OperandClass.QUANT,
    OperandType.TENSOR_QUANT16_SYMM: OperandClass.QUANT,
    OperandType.TENSOR_QUANT16_ASYMM: OperandClass.QUANT,
}


def operand_class(operands: Iterable[Operand]) -> OperandClass:
    """The class of all inputs or outputs of a model, by those that are real numbers or quantised."""
    found = OperandClass.UNKNOWN
    for operand in operands:
        kind = _CLASSES.get(operand.type)  # type: ignore[call-overload]
        if kind is None:
            found = max(found, OperandClass.OTHER)
        elif found in (OperandClass.UNKNOWN, OperandClass.OTHER):
            found = kind
        elif found != kind:
            found = OperandClass.MIXED
    return found


def _nanoseconds(micros: int) -> int | None:
    return None if micros == NO_TIMING else min(micros * 1000, NO_TIMING - 1)
