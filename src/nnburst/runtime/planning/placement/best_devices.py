"""The best device for each operation (RT:P4 to P8)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from nnburst.hal.enums import ExecutionPreference, operation_name
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import Model, Operation
from nnburst.runtime.planning.candidate import Candidate
from nnburst.runtime.planning.models.finished_model import FinishedModel
from nnburst.runtime.planning.models.hal_model import hal_model
from nnburst.runtime.planning.models.slices import SliceableModel
from nnburst.runtime.planning.models.version import (
    CONTROL_FLOW,
    has_unknown_sizes,
)
from nnburst.runtime.planning.placement.cost import CostModel
from nnburst.runtime.planning.placement.support import supported_operations

_log: Final = logging.getLogger("nnburst.runtime")


class BestDevices:
    """Finds where each operation of a model's subgraphs is to run."""

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
            devices: in the order of the list.
            preference: what is compared.
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
        """The number that stands for interpreted control flow: one behind the last device."""
        return len(self._devices)

    def model(self, subgraph: int) -> tuple[Model, tuple[int, ...]]:
        """A subgraph as devices get it, and which of the client's pools its pools are."""
        if subgraph not in self._models:
            self._models[subgraph] = hal_model(self._source, subgraph)
        return self._models[subgraph]

    def find(self, subgraph: int) -> list[int]:
        """The device of each operation of a subgraph, or `interpreter`; asks every device once.

        Raises:
            InvalidArgument: no listed device can run some operation (RT:P3); with the reason for each.
        """
        model, pools = self.model(subgraph)
        sliceable = SliceableModel(model, strict=self._strict)
        support = [supported_operations(d, sliceable, pools) for d in self._devices]
        operations = self._source.subgraph(subgraph).operations
        return [
            self._best(number, operation, subgraph, answers, sliceable)
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
    ) -> int:
        graph = self._source.subgraph(subgraph)
        is_control_flow = operation.type in CONTROL_FLOW
        unknown = has_unknown_sizes(operation, graph, self._source.model)
        best = self._cpu if unknown else self._cheapest(operation, subgraph, supported)
        if best is None:
            reasons = (
                ["its operands have unknown sizes, so only the CPU device can run it"]
                if unknown
                else [_refusal(device, model, number) for device in self._devices]
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


def _refusal(device: Candidate, model: SliceableModel, number: int) -> str:
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
    return f"{device.name} refuses it"
