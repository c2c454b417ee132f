"""Chooses the best device for each operation, from the support and the speed that devices report.

Devices are asked which operations they can run (RT:S1 to S3). The cost of an operation is the one that a
device reports (RT:P5), and the cheapest device that supports the operation gets it (RT:P4 to P8).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from ctypes import c_float
from typing import Final, NamedTuple

from nnburst.hal.enums import ExecutionPreference, OperandType, OperationType, operation_name
from nnburst.hal.errors import InvalidArgument, NnburstError
from nnburst.hal.model import Model, Operation
from nnburst.hal.types import FLT_MAX, Capabilities, PerformanceInfo
from nnburst.hal.validation.operation import CONTROL_FLOW
from nnburst.runtime.planning.finished_model import FinishedModel
from nnburst.runtime.planning.plan import Candidate, Plan, SimplePlan
from nnburst.runtime.planning.slices import (
    SliceableModel,
    hal_model,
    has_unknown_sizes,
)

# -- costs -----------------------------------------------------------------------------------------
_IF_BRANCHES: Final = (1, 2)
_WHILE_MODELS: Final = (0, 1)


def _float32(value: float) -> float:
    """Round to 32 bits; too large values become infinite.

    The rounded 64-bit sum of two such numbers equals their 32-bit sum.
    """
    return c_float(value).value


class CostModel:
    """Costs of a model's operations on one device, in 32-bit floats like the original's."""

    def __init__(
        self, source: FinishedModel, capabilities: Capabilities, preference: ExecutionPreference
    ) -> None:
        """Read the capabilities.

        Args:
            source: the model.
            capabilities: capabilities of the device.
            preference: LOW_POWER takes power as the cost, others take time.
        """
        self._source = source
        self._low_power = preference == ExecutionPreference.LOW_POWER
        said = self._figure
        self._by_type = {e.type: said(e.info) for e in capabilities.operand_performance}
        self._relaxed = {
            OperandType.FLOAT32: said(capabilities.relaxed_float32_to_float16_performance_scalar),
            OperandType.TENSOR_FLOAT32: said(
                capabilities.relaxed_float32_to_float16_performance_tensor
            ),
        }
        self._if = said(capabilities.if_performance)
        self._while = said(capabilities.while_performance)
        self._graphs: dict[int, float] = {}

    def cost(self, operation: Operation, subgraph: int) -> float:
        """The cost of an operation of a subgraph."""
        operands = self._source.subgraph(subgraph).operands
        if operation.type == OperationType.IF:
            branches = [operands[operation.inputs[i]].location.offset for i in _IF_BRANCHES]
            both = _float32(sum(self._whole(branch + 1) for branch in branches))
            return _float32(self._if + 0.5 * both)
        if operation.type == OperationType.WHILE:
            cost = self._while
            for position in _WHILE_MODELS:
                inner = operands[operation.inputs[position]].location.offset
                cost = _float32(cost + self._whole(inner + 1))
            return cost
        if not operation.inputs:
            return FLT_MAX
        kind = operands[operation.inputs[0]].type
        if self._source.relaxed[subgraph] and kind in self._relaxed:
            return self._relaxed[OperandType(kind)]
        return self._by_type.get(kind, FLT_MAX)

    @property
    def whole(self) -> float:
        """The sum of the costs of the main subgraph."""
        return self._whole(0)

    def _whole(self, subgraph: int) -> float:
        """The sum of the costs of a subgraph, whether or not the device supports its operations."""
        if subgraph not in self._graphs:
            total = 0.0
            for operation in self._source.subgraph(subgraph).operations:
                total = _float32(total + self.cost(operation, subgraph))
            self._graphs[subgraph] = total
        return self._graphs[subgraph]

    def _figure(self, info: PerformanceInfo) -> float:
        return _float32(info.power_usage if self._low_power else info.exec_time)


class Share(NamedTuple):
    """The operations that one step executes.

    Attributes:
        step: index of the step; 0 for a simple plan.
        device: position among the planned devices.
        subgraph: subgraph that the operations belong to.
        operations: positions of the operations in run order.
    """

    step: int
    device: int
    subgraph: int
    operations: tuple[int, ...]


def shares(plan: Plan, source: FinishedModel) -> list[Share]:
    """The shares of all steps that devices execute."""
    if isinstance(plan, SimplePlan):
        return [Share(0, plan.device, 0, tuple(range(len(source.model.main.operations))))]
    return [
        Share(step.index, step.device, plan.source_models[step.source_model], step.operations)
        for step in plan.execution_steps
    ]


def reported_estimates(
    plan: Plan,
    source: FinishedModel,
    capabilities: Sequence[Capabilities],
    preference: ExecutionPreference,
) -> dict[int, str]:
    """For each step, the mean cost of its operations as a fraction of the CPU's (RT:P5).

    Args:
        plan: the plan.
        source: the model that it was made for.
        capabilities: capabilities of the plan's devices, in order.
        preference: preference of the compilation: with LOW_POWER the costs are power, else time.

    Returns:
        Texts such as "0.50 × CPU" by the step's index; none for a step whose device reports nothing.
    """
    found = {}
    for index, device, subgraph, positions in shares(plan, source):
        model = CostModel(source, capabilities[device], preference)
        operations = source.subgraph(subgraph).operations
        costs = [model.cost(operations[position], subgraph) for position in positions]
        mean = sum(costs) / len(costs) if costs else FLT_MAX
        if mean < FLT_MAX / max(len(costs), 1):
            found[index] = f"{mean:.2f} × CPU"
    return found


# -- the best devices ------------------------------------------------------------------------------

_log: Final = logging.getLogger("nnburst.runtime")


def supported_operations(
    device: Candidate,
    model: SliceableModel,
    pools: Sequence[int],
    failures: dict[str, str] | None = None,
) -> list[bool]:
    """For each operation of the main subgraph, whether a device can run it.

    Args:
        device: the device, which is asked about the whole model, or about a slice if it is older.
        model: the model.
        pools: for each pool of the model, its number among the client model's pools.
        failures: gets the reason, by the device's name, if the device gives no usable answer.
    """
    answer = [False] * model.number_of_operations
    failures = {} if failures is None else failures
    part = model.for_device(device.feature_level, is_runtime=device.is_cpu)
    if part is None:
        return answer
    try:
        found = list(device.supported_operations(part.model, pools))
    except NnburstError as error:
        _log.warning(
            "device %s gets no part of this model until it is compiled again, since asking for the"
            " operations that it supports failed: %s",
            device.name,
            error,
        )
        failures[device.name] = str(error)
        return answer
    if len(found) != len(part.operations):
        wrong = f"{len(found)} answers for {len(part.operations)} operations"
        _log.warning(
            "device %s gets no part of this model until it is compiled again: it gave %s",
            device.name,
            wrong,
        )
        failures[device.name] = wrong
        return answer
    for number, supported in zip(part.operations, found, strict=True):
        answer[number] = bool(supported)
    return answer


class BestDevices:
    """Finds the best device for each operation of a model's subgraphs."""

    def __init__(
        self,
        source: FinishedModel,
        devices: Sequence[Candidate],
        preference: ExecutionPreference,
        *,
        strict_slicing: bool = False,
    ) -> None:
        """Read the devices' capabilities.

        Args:
            source: the model.
            devices: the devices, in the order of the list.
            preference: whether power or time is the cost.
            strict_slicing: see `SliceableModel`.
        """
        self._source = source
        self._devices = devices
        self._strict = strict_slicing
        self._costs = [CostModel(source, device.capabilities, preference) for device in devices]
        self._models: dict[int, tuple[Model, tuple[int, ...]]] = {}
        self._cpu = next((n for n, device in enumerate(devices) if device.is_cpu), None)

    @property
    def interpreter(self) -> int:
        """The number that stands for interpreted control flow: the last device's plus one."""
        return len(self._devices)

    def model(self, subgraph: int) -> tuple[Model, tuple[int, ...]]:
        """A subgraph as a model for devices, and the client's pool number of each of its pools."""
        if subgraph not in self._models:
            self._models[subgraph] = hal_model(self._source, subgraph)
        return self._models[subgraph]

    def find(self, subgraph: int) -> list[int]:
        """Find the device of each operation of a subgraph, or `interpreter`; ask every device once.

        Raises:
            InvalidArgument: no listed device can run some operation (RT:P3); the message has the reasons.
        """
        model, pools = self.model(subgraph)
        sliceable = SliceableModel(model, strict=self._strict)
        failures: dict[str, str] = {}
        support = [supported_operations(d, sliceable, pools, failures) for d in self._devices]
        operations = self._source.subgraph(subgraph).operations
        return [
            self._best(number, operation, subgraph, answers, sliceable, failures)
            for number, (operation, answers) in enumerate(
                zip(operations, zip(*support, strict=True), strict=True)
            )
        ]

    def _best(
        self,
        number: int,
        operation: Operation,
        subgraph: int,
        supported: Sequence[bool],
        model: SliceableModel,
        failures: Mapping[str, str],
    ) -> int:
        graph = self._source.subgraph(subgraph)
        is_control_flow = operation.type in CONTROL_FLOW
        unknown = has_unknown_sizes(operation, graph, self._source.model)
        best = self._cpu if unknown else self._cheapest(operation, subgraph, supported)
        if best is None:
            reasons = (
                ["its operands have unknown sizes, so only the CPU device can run it"]
                if unknown
                else [_refusal(device, model, number, failures) for device in self._devices]
            )
            raise InvalidArgument(self._unplaced(number, operation, subgraph, reasons))
        if is_control_flow and not unknown and best == self._cpu:
            return self.interpreter
        return best

    def _cheapest(
        self, operation: Operation, subgraph: int, supported: Sequence[bool]
    ) -> int | None:
        best, lowest = None, 0.0
        for device, can in enumerate(supported):
            if can:
                cost = self._costs[device].cost(operation, subgraph)
                if best is None or cost < lowest or (cost == lowest and device == self._cpu):
                    best, lowest = device, cost
        return best

    def _unplaced(
        self, number: int, operation: Operation, subgraph: int, reasons: Sequence[str]
    ) -> str:
        client = self._source.run_orders[subgraph][number]
        where = f"referenced[{subgraph - 1}]" if subgraph else "main"
        what = f"operation {client} of {where}, {operation_name(operation.type)}"
        return f"model: no listed device can run {what}: {'; '.join(reasons)}"


def _refusal(
    device: Candidate, model: SliceableModel, number: int, failures: Mapping[str, str]
) -> str:
    if device.name in failures:
        return f"{device.name} gives no usable answer: {failures[device.name]}"
    needed = model.operation_version(number)
    if device.is_cpu:
        return f"{device.name} runs neither OEM nor extension operations"
    if needed.level > device.feature_level:
        return (
            f"{device.name} is of feature level {int(device.feature_level)}, it needs"
            f" {int(needed.level)}"
        )
    if model.for_device(device.feature_level, is_runtime=False) is None:
        return (
            f"{device.name} cannot be asked, as the part of the model that it can have is not valid"
        )
    return f"{device.name} does not report that it runs it"
