"""Compilation: a model, the devices that it may run on, and the plan for them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from typing import Final

from nnburst.hal.enums import NDK_PRIORITIES, ExecutionPreference
from nnburst.hal.errors import BadState, InvalidArgument, UnexpectedNull
from nnburst.hal.limits import BYTE_SIZE_OF_CACHE_TOKEN
from nnburst.hal.model import Operand
from nnburst.runtime.devices.device import Device
from nnburst.runtime.devices.manager import Manager
from nnburst.runtime.execution.executable import Executable
from nnburst.runtime.extensions.attribute_list import AttributeList
from nnburst.runtime.measuring.measuring import Measuring
from nnburst.runtime.measuring.placement_report import PlacementReport
from nnburst.runtime.objects.burst import Burst
from nnburst.runtime.objects.compile_plan import recorded_plan
from nnburst.runtime.objects.durations import nanoseconds
from nnburst.runtime.objects.execution import Execution
from nnburst.runtime.objects.model import Model
from nnburst.runtime.objects.plan_compiler import CompileOptions
from nnburst.runtime.planning.drawing.estimates import reported_estimates, shares
from nnburst.runtime.planning.memory_preference import MemoryPreference
from nnburst.runtime.planning.plan import Direction, PartitioningMode, Plan
from nnburst.runtime.runtime_object import RuntimeObject

_PRIORITIES: Final = {code: priority for priority, code in NDK_PRIORITIES.items()}


class Compilation(RuntimeObject):
    """A model that is placed on devices and prepared (NNAPI: ANeuralNetworksCompilation).

    Not thread-safe until it is finished; then executions of it may compute on any threads.

    NNAPI: RT:C1 to C4, CompilationBuilder.cpp.

    Attributes:
        model: what it compiles; kept alive.
        devices: those that it may use, in order. There is no fallback if the caller listed them.
    """

    def __init__(
        self,
        model: Model,
        devices: Sequence[Device] | None = None,
        *,
        manager: Manager | None = None,
    ) -> None:
        """Begin a compilation; `finish` compiles.

        Args:
            model: a finished one.
            devices: those to use; then there is no fallback. All of the manager's unless given.
            manager: that of this process unless given.

        Raises:
            UnexpectedNull: the model, or an entry of the list, is None.
            InvalidArgument: the list is empty, or has a device twice or one that the manager lacks; BAD_DATA.
            BadState: the model is not finished, or not valid.
        """
        super().__init__()
        if model is None:
            raise UnexpectedNull("model: it is None")
        self._manager: Final = Manager.of_process() if manager is None else manager
        listed = None if devices is None else self._manager._check_devices(devices)
        model._check_open()
        model._finished_model  # noqa: B018 - checks the state
        self.model: Final = model
        self._is_explicit: Final = listed is not None
        self.devices: Final = tuple(self._manager.devices if listed is None else listed)
        self._preference = ExecutionPreference.FAST_SINGLE_ANSWER
        self._priority = 100
        self._timeout_ns: int | None = None
        self._caching: tuple[str, bytes] | None = None
        self._completed = False
        self._measuring: Measuring | None = None
        self._attributes: Final = AttributeList()
        self._placement_report: PlacementReport | None = None
        self._executable: Executable | None = None
        self._lock = threading.Lock()

    # -- settings --------------------------------------------------------------------------------------------

    @property
    def preference(self) -> int:
        """What to optimise for, an `ExecutionPreference`; FAST_SINGLE_ANSWER unless set.

        Raises:
            BadState: it is set, and the compilation is finished.
            InvalidArgument: it is set to an unknown value; BAD_DATA.
        """
        return self._preference

    @preference.setter
    def preference(self, value: int) -> None:
        self._check_building("preference")
        try:
            self._preference = ExecutionPreference(value)
        except ValueError:
            raise InvalidArgument(f"preference: {value}, expected 0, 1 or 2") from None

    @property
    def priority(self) -> int:
        """90 (LOW), 100 (MEDIUM, the default) or 110 (HIGH).

        Raises:
            BadState: it is set, and the compilation is finished.
            InvalidArgument: it is set to another value; BAD_DATA.
        """
        return self._priority

    @priority.setter
    def priority(self, value: int) -> None:
        self._check_building("priority")
        if value not in _PRIORITIES:
            raise InvalidArgument(f"priority: {value}, expected 90, 100 or 110")
        self._priority = value

    @property
    def timeout(self) -> float | None:
        """Seconds that `finish` may take; None and 0 for no limit. Needs one explicit device.

        Raises:
            BadState: it is set, and the compilation is finished.
            InvalidArgument: it is set to less than 0, or without one explicit device; BAD_DATA.
        """
        return None if self._timeout_ns is None else self._timeout_ns / 1e9

    @timeout.setter
    def timeout(self, seconds: float | None) -> None:
        self._check_building("timeout")
        self._check_one_device("timeout")
        self._timeout_ns = nanoseconds("timeout", seconds)

    def limit(self, seconds: float) -> None:
        """Limit `finish` as `timeout` does, for any devices; steps still get no deadline (RT:P16).

        Args:
            seconds: that `finish` may take; 0 for no limit.

        Raises:
            BadState: the compilation is finished.
            InvalidArgument: `seconds` is less than 0; BAD_DATA.
        """
        self._check_building("limit")
        self._timeout_ns = nanoseconds("limit", seconds)

    def set_caching(self, directory: str | os.PathLike[str], token: bytes) -> None:
        """Let devices keep what they compile in files of `directory`, named by `token` (RT:K1 to K4).

        Raises:
            UnexpectedNull: an argument is None.
            BadState: the compilation is finished.
            InvalidArgument: the token does not have 32 bytes; BAD_DATA.
        """
        if directory is None or token is None:
            raise UnexpectedNull("set_caching: directory or token is None")
        self._check_building("set_caching")
        if len(token) != BYTE_SIZE_OF_CACHE_TOKEN:
            raise InvalidArgument(f"token: {len(token)} bytes, expected {BYTE_SIZE_OF_CACHE_TOKEN}")
        self._caching = os.fspath(directory), bytes(token)

    def add_extension_attribute(
        self, extension: str, code: int, value: bytes | memoryview = b""
    ) -> None:
        """Give the device an attribute of a vendor extension for this compilation.

        Needs one explicit device, which reads it or ignores it. One below level 8 never gets it, which
        is logged.

        Args:
            extension: its name.
            code: of the attribute, 16 bits.
            value: its bytes.

        Raises:
            UnexpectedNull: `extension` or `value` is None.
            InvalidArgument: not one explicit device, no device has the extension, or the code was added
                before or has more than 16 bits; BAD_DATA.
            BadState: the compilation is finished.
        """
        self._attributes.check_given(extension, value)
        self._check_one_device("add_extension_attribute")
        self._check_building("add_extension_attribute")
        self._attributes.add(extension, code, value)

    def place_by_measurement(self, measuring: Measuring | None = None) -> None:
        """Let `finish` place the model by what devices are measured to take, not by what they report.

        Args:
            measuring: how long and with which figures; by default at most 30 s, with those measured before.

        Raises:
            BadState: the compilation is finished.
        """
        self._check_building("place_by_measurement")
        self._measuring = Measuring() if measuring is None else measuring

    def finish(self) -> None:
        """Place the model and have its parts prepared.

        Raises:
            BadState: `finish` was called before, with or without success.
            InvalidArgument: no device can run an operation; BAD_DATA.
            MissedDeadline: it took longer than `timeout` or `limit`.
            NnburstError: what planning or a device answers, if there is no fallback (RT:P2).
        """
        self._check_building("finish")
        self._completed = True
        deadline_ns = None
        if self._timeout_ns is not None:
            deadline_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) + self._timeout_ns
        options = CompileOptions(
            self._preference,
            _PRIORITIES[self._priority],
            PartitioningMode.WITHOUT_FALLBACK
            if self._is_explicit
            else self._manager._settings.partitioning,
            deadline_ns,
            self._caching,
            self._is_explicit,
            self._measuring,
            self._attributes.added,
        )
        self._executable, self._placement_report = recorded_plan(
            self.model, self.devices, self._manager, options
        )

    # -- what it has become ----------------------------------------------------------------------------------

    @property
    def _finished_executable(self) -> Executable:
        """The plan with its prepared parts.

        Raises:
            BadState: it is not finished, or `finish` has failed.
        """
        self._check_open()
        if self._executable is None:
            state = "finishing it failed" if self._completed else "it is not finished"
            raise BadState(f"compilation: {state}")
        return self._executable

    def _estimates(self) -> dict[int, float | str]:
        """What each step should take: seconds as placement by measurement timed them, else as reported."""
        executable = self._finished_executable
        plan, source = executable.plan, self.model._finished_model
        capabilities = [device.capabilities for device in executable.devices]
        found: dict[int, float | str] = {}
        found |= reported_estimates(
            plan, source, capabilities, ExecutionPreference(self._preference)
        )
        if self._placement_report is not None:
            for share in shares(plan, source):
                name = plan.devices[share.device]
                seconds = self._placement_report._seconds_of(name, share.operations)
                if seconds is not None:
                    found[share.step] = seconds
        return found

    @property
    def is_finished(self) -> bool:
        """Whether `finish` has succeeded."""
        return self._executable is not None

    @property
    def placement_report(self) -> PlacementReport | None:
        """What placement by measurement has found; None if the model was not placed by it."""
        return self._placement_report

    @property
    def plan(self) -> Plan:
        """Which device runs what.

        Raises:
            BadState: it is not finished.
        """
        return self._finished_executable.plan

    def _operands(self, direction: Direction) -> tuple[Operand, ...]:
        """The model's inputs or outputs."""
        return self.model.inputs if direction == Direction.INPUT else self.model.outputs

    def _operand(self, direction: Direction, index: int) -> Operand:
        """Input or output number `index`.

        Raises:
            InvalidArgument: it does not exist.
        """
        operands = self._operands(direction)
        if not 0 <= index < len(operands):
            name = direction.value.lower()
            raise InvalidArgument(f"index: {name} {index} of {len(operands)}")
        return operands[index]

    def memory_preference(self, direction: Direction, index: int) -> MemoryPreference:
        """Alignment and padding that the devices like for an argument (RT:P19).

        Args:
            direction: whether `index` counts inputs or outputs.
            index: of the argument.

        Raises:
            BadState: it is not finished.
            InvalidArgument: there is no such argument.
        """
        executable = self._finished_executable
        self._operand(direction, index)
        return executable.memory_preference(direction, index)

    def execution(self) -> Execution:
        """A new execution.

        Raises:
            BadState: it is not finished.
        """
        return Execution(self._finished_executable)

    def burst(self) -> Burst:
        """A new burst: one for each step whose device has any (RT:B1).

        Raises:
            BadState: it is not finished.
        """
        return Burst(self._finished_executable)

    def _check_one_device(self, what: str) -> None:
        """Refuse what needs exactly one device that the caller has listed (RT:E6)."""
        self._check_open()
        if not self._is_explicit or len(self.devices) != 1:
            raise InvalidArgument(f"{what}: needs a compilation for one explicit device")

    def _check_building(self, call: str) -> None:
        self._check_open()
        if self._completed:
            raise BadState(f"{call}: the compilation is finished and cannot change")

    def _release(self) -> None:
        if self._executable is not None:
            self._executable.close()
