"""A case that a driver supports, and what the checks do with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nnburst.client.burst.bound_request import BoundRequest
from nnburst.client.device import Device
from nnburst.client.memory.memory import Memory
from nnburst.client.prepared_model import PreparedModel
from nnburst.hal.model import Model
from nnburst.testing.pack.cases import Case
from nnburst.testing.pack.trial import inputs_of, model_of, outputs_of

#: What lies in an output before an execution: no float, and no likely integer.
_STALE: Final = 0xA5


class Broken(Exception):
    """The driver does not keep to the contract; the message has the cause."""


@dataclass(frozen=True)
class Subject:
    """A case on one connection.

    Attributes:
        device: a connection of the check's own.
        case: one that the driver has executed rightly.
        others: cases of the pack, supported or not.
    """

    device: Device
    case: Case
    others: tuple[Case, ...] = ()

    @contextmanager
    def prepared(self, case: Case | None = None) -> Iterator[PreparedModel]:
        """A case prepared (its own unless given), with its pools."""
        model, pools = self.model(case or self.case)
        with self.device.prepare(model, pools=pools) as prepared:
            yield prepared

    def model(self, case: Case) -> tuple[Model, list[Memory]]:
        """A case's model, and its pools as memory of this connection."""
        built = model_of(case)
        pools = []
        for data in built.pools:
            memory = self.device.allocate(len(data))
            np.asarray(memory)[:] = np.frombuffer(data, np.uint8)
            pools.append(memory)
        return built.model, pools


def is_whole(case: Case) -> bool:
    """Whether every input of a case has a value: what a burst binds once."""
    return all(array is not None for array in inputs_of(case, case.feeds[0]))


def run_once(bound: BoundRequest, case: Case, number: int, timeout: float | None = None) -> bytes:
    """Execute with set `number` of a case's inputs and return the bits of all outputs.

    Raises:
        Broken: an input was written to.
    """
    given = inputs_of(case, case.feeds[number % len(case.feeds)])
    arrays: list[npt.NDArray[Any]] = [a for a in given if a is not None]
    for memory, array in zip(bound.inputs, arrays, strict=True):
        memory[...] = array
    for memory in bound.outputs:
        memory.view(np.uint8)[...] = _STALE
    result = bound.run(timeout)
    for memory, array in zip(bound.inputs, arrays, strict=True):
        if memory.tobytes() != array.tobytes():
            raise Broken("an input was written to")
    assert len(result.outputs) == len(outputs_of(case))
    return b"".join(np.ascontiguousarray(output).tobytes() for output in result.outputs)
