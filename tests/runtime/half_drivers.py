"""Starts drivers that are used for one operation each, so that a model takes several steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import nnburst
from nnburst.hal.enums import OperationType
from nnburst.runtime import Manager
from nnburst.runtime.devices.driver_device import DriverDevice
from nnburst.testing.partitioning.run import uniform
from shared_drivers import connect_to


class HalfDriver(DriverDevice):
    """A real driver that is asked for one operation only."""

    def __init__(self, name: str, kind: OperationType, executor: str = "reference") -> None:
        super().__init__(lambda: connect_to(executor), name=name)
        self.takes = kind
        self.capabilities = uniform(0.5)

    def supported_operations(self, model: nnburst.Model, pools: Any) -> list[bool]:
        found = super().supported_operations(model, pools)
        kinds = [operation.type == self.takes for operation in model.main.operations]
        return [a and b for a, b in zip(found, kinds, strict=True)]


HALVES: Mapping[str, OperationType] = {"first": OperationType.ADD, "second": OperationType.MUL}


@contextmanager
def two_halves(executor: str = "reference") -> Iterator[Manager]:
    """A manager over "first", which adds, and "second", which multiplies."""
    with Manager([HalfDriver(name, kind, executor) for name, kind in HALVES.items()]) as manager:
        yield manager
