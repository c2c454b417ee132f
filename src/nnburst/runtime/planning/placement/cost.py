"""The cost of an operation that a device reports (RT:P5)."""

from __future__ import annotations

from ctypes import c_float
from typing import Final

from nnburst.compat.layouts.performance import FLT_MAX
from nnburst.hal.capabilities import Capabilities, PerformanceInfo
from nnburst.hal.enums import ExecutionPreference, OperandType, OperationType
from nnburst.hal.model import Operation
from nnburst.runtime.planning.models.finished_model import FinishedModel

_IF_BRANCHES: Final = (1, 2)
_WHILE_MODELS: Final = (0, 1)


def _float32(value: float) -> float:
    """Rounded to 32 bits; what is too large becomes infinite.

    The sum of two such numbers in 64 bits, rounded, is their sum in 32 bits.
    """
    return c_float(value).value


class CostModel:
    """Costs of a model's operations on one device, as the original compares them: in 32-bit floats."""

    def __init__(
        self, source: FinishedModel, capabilities: Capabilities, preference: ExecutionPreference
    ) -> None:
        """Read the capabilities.

        Args:
            source: the model.
            capabilities: the device's.
            preference: LOW_POWER compares power, every other time.
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

    def _whole(self, subgraph: int) -> float:
        """The sum over a referenced subgraph, whether or not the device supports its operations."""
        if subgraph not in self._graphs:
            total = 0.0
            for operation in self._source.subgraph(subgraph).operations:
                total = _float32(total + self.cost(operation, subgraph))
            self._graphs[subgraph] = total
        return self._graphs[subgraph]

    def _figure(self, info: PerformanceInfo) -> float:
        return _float32(info.power_usage if self._low_power else info.exec_time)
