"""Devices at random: what they support, cost, refuse. They compute by the reference executor."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nnburst.executor.operations import SIGNATURES
from nnburst.hal.capabilities import Capabilities
from nnburst.hal.enums import ErrorStatus, FeatureLevel
from nnburst.hal.errors import GeneralFailure, NnburstError, error_for
from nnburst.hal.model import Model, Operation, Subgraph
from nnburst.testing.partitioning.device import uniform


@dataclass(frozen=True, slots=True)
class DrawnDevice:
    """A device whose answers follow from its name and its numbers.

    Attributes:
        name: of the device.
        feature_level: of the device.
        cost: performance figure of every operand type.
        share: of the operations that it supports, by name, operation and operand types.
        answers: whether it answers what it supports; an error otherwise.
        prepares: share of the models that it prepares.
        executes: share of the models that it executes.
    """

    name: str
    feature_level: FeatureLevel
    cost: float
    share: float
    answers: bool = True
    prepares: float = 1.0
    executes: float = 1.0
    version_string: str = "drawn"
    is_cpu: bool = False

    @property
    def capabilities(self) -> Capabilities:
        """One figure for everything."""
        return uniform(self.cost)

    def supported_operations(self, model: Model, pools: Sequence[int]) -> list[bool]:
        """A pseudo-random part of what the reference executor has."""
        del pools
        if not self.answers:
            raise GeneralFailure(f"{self.name}: gives no answer")
        return [self._takes(operation, model.main) for operation in model.main.operations]

    def refusal(self, model: Model) -> NnburstError | None:
        """Why it does not prepare a model; None if it does."""
        if self._lot("prepare", str(len(model.main.operands))) < self.prepares:
            return None
        return error_for(ErrorStatus.GENERAL_FAILURE, f"{self.name}: does not prepare this model")

    def failure(self, model: Model) -> NnburstError | None:
        """Why it does not execute a model; None if it does."""
        if self._lot("execute", str(len(model.main.operands))) < self.executes:
            return None
        return error_for(ErrorStatus.GENERAL_FAILURE, f"{self.name}: does not execute this model")

    def _takes(self, operation: Operation, graph: Subgraph) -> bool:
        if operation.type not in SIGNATURES:
            return False
        types = [graph.operands[index].type for index in operation.inputs]
        return self._lot(str(int(operation.type)), str(types)) < self.share

    def _lot(self, *words: str) -> float:
        """A number in [0, 1) that is the same for the same words."""
        return zlib.crc32("/".join((self.name, *words)).encode()) / 2**32


def draw_devices(rng: np.random.Generator, *, faults: bool) -> list[DrawnDevice]:
    """One to four devices.

    Args:
        rng: source of chance.
        faults: some give no answer, refuse models or fail to execute them.
    """

    def share_of_faults() -> float:
        return float(rng.uniform(0.3, 1)) if faults and rng.random() < 0.25 else 1.0

    return [
        DrawnDevice(
            name=f"drawn{number}-{int(rng.integers(1 << 30))}",
            feature_level=FeatureLevel(int(rng.integers(1, 9)) if rng.random() < 0.5 else 8),
            cost=float(rng.uniform(0.2, 1.2)),
            share=float(rng.choice([0.2, 0.5, 0.8, 1.0])),
            answers=not faults or rng.random() > 0.05,
            prepares=share_of_faults(),
            executes=share_of_faults(),
        )
        for number in range(int(rng.integers(1, 5)))
    ]
