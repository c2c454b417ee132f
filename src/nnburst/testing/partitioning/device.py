"""A device of a case: supports what it is given, costs one figure, prepares nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import unpack_from
from typing import Final

from nnburst.compat.layouts.performance import non_extension_operand_performance
from nnburst.hal.capabilities import Capabilities, OperandPerformance, PerformanceInfo
from nnburst.hal.enums import ErrorStatus, FeatureLevel, OperandLifeTime, OperationType
from nnburst.hal.errors import NnburstError, error_for
from nnburst.hal.model import Model, Operation, Subgraph
from nnburst.hal.operand_types import is_extension
from nnburst.testing.partitioning.cases import CaseDevice

_O = OperationType
#: Operations that are told apart by their fused activation, the third input.
_WITH_ACTIVATION: Final = frozenset({_O.ADD, _O.MUL, _O.SUB, _O.DIV})
CPU_NAME: Final = "nnapi-reference"


def uniform(figure: float, relaxed: float | None = None) -> Capabilities:
    """Capabilities with one figure for everything, and another for relaxed float32."""
    info = PerformanceInfo(figure, figure)
    relaxed_info = info if relaxed is None else PerformanceInfo(relaxed, relaxed)
    return Capabilities(
        relaxed_info, relaxed_info, non_extension_operand_performance(info), info, info
    )


_AS_THE_CPU: Final = uniform(1.0)


@dataclass(frozen=True, slots=True)
class CpuStandIn:
    """The CPU device as planning sees it (RT:D3)."""

    name: str = CPU_NAME
    version_string: str = "UNKNOWN"
    feature_level: FeatureLevel = FeatureLevel.AIDL_V4
    is_cpu: bool = True
    capabilities: Capabilities = _AS_THE_CPU

    def supported_operations(self, model: Model, pools: Sequence[int]) -> list[bool]:
        """All but OEM and extension operations."""
        del pools
        return [
            operation.type != _O.OEM_OPERATION and not is_extension(operation.type)
            for operation in model.main.operations
        ]

    def refusal(self, model: Model) -> NnburstError | None:
        """It prepares everything."""
        del model
        return None

    def failure(self, model: Model) -> NnburstError | None:
        """It executes everything."""
        del model
        return None


class MadeUpDevice:
    """A driver of a case."""

    is_cpu = False
    version_string = "1"

    def __init__(self, described: CaseDevice) -> None:
        """Take its description."""
        self.name = described.name
        self.feature_level = FeatureLevel(described.feature_level)
        self._supports = frozenset(described.supports)
        self._oem = described.oem
        found = uniform(described.perf, described.relaxed_perf)
        other = {int(code): figure for code, figure in described.perf_by_type.items()}
        table = tuple(
            OperandPerformance(e.type, PerformanceInfo(other[e.type], other[e.type]))
            if e.type in other
            else e
            for e in found.operand_performance
        )
        self.capabilities = Capabilities(
            found.relaxed_float32_to_float16_performance_scalar,
            found.relaxed_float32_to_float16_performance_tensor,
            table,
            found.if_performance,
            found.while_performance,
        )

    def supported_operations(self, model: Model, pools: Sequence[int]) -> list[bool]:
        """By code and activation; IF and WHILE only with all that they run."""
        del pools
        return [self._takes(operation, model.main, model) for operation in model.main.operations]

    def refusal(self, model: Model) -> NnburstError | None:
        """Why it does not prepare a model after all; None if it does."""
        kinds = {operation.type for operation in model.main.operations}
        if self._oem == "indecisive" and _O.OEM_OPERATION in kinds:
            message = f"{self.name}: cannot prepare its OEM operation"
            return error_for(ErrorStatus.INVALID_ARGUMENT, message)
        return None

    def _takes(self, operation: Operation, graph: Subgraph, model: Model) -> bool:
        kind = operation.type
        if kind == _O.OEM_OPERATION:
            return bool(self._oem)
        wanted: set[tuple[int, int | None]] = {(kind, None)}
        if kind in _WITH_ACTIVATION:
            wanted.add((kind, _activation(operation, graph, model)))
        if not wanted & self._supports:
            return False
        inner = [
            model.referenced[graph.operands[index].location.offset]
            for index in operation.inputs
            if graph.operands[index].lifetime == OperandLifeTime.SUBGRAPH
        ]
        return all(self._takes(o, g, model) for g in inner for o in g.operations)


def _activation(operation: Operation, graph: Subgraph, model: Model) -> int | None:
    operand = graph.operands[operation.inputs[2]]
    if operand.lifetime != OperandLifeTime.CONSTANT_COPY:
        return None
    value: int = unpack_from("<i", model.operand_values, operand.location.offset)[0]
    return value
