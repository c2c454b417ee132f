"""Three ways to execute the demo network, as functions from an input to the scores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any, Final

import numpy as np
import numpy.typing as npt

import nnburst
from nnburst.executor.base import Argument
from nnburst.executor.reference.executor import ReferenceExecutor
from nnburst.hal.model import Model

Array = npt.NDArray[Any]

IN_PROCESS: Final = "in process"
EXECUTE: Final = "execute (socket)"
BURST: Final = "burst (shared memory)"


@dataclass
class Route:
    """A way to execute, and what was seen of it.

    Attributes:
        name: for people.
        execute: gives the scores of one input; they may be overwritten by the next call.
        durations_ns: one per execution, from input array to scores.
        driver_us: the driver's own durations, if it is asked for them.
        found: the digit found for each input of the latest round.
    """

    name: str
    execute: Callable[[Array], Array]
    durations_ns: list[int] = field(default_factory=list)
    driver_us: list[int] = field(default_factory=list)
    found: list[int] = field(default_factory=list)

    def run_round(self, inputs: Array) -> None:
        """Execute every input once."""
        self.found.clear()
        for one in inputs:
            start = perf_counter_ns()
            scores = self.execute(one)
            self.durations_ns.append(perf_counter_ns() - start)
            self.found.append(int(scores.argmax()))


@contextmanager
def open_routes(model: Model, device: nnburst.Device, like: Array) -> Iterator[list[Route]]:
    """The three routes of `model`; `like` is any input, for its shape and type."""
    prepared = device.prepare(model, preference=nnburst.ExecutionPreference.SUSTAINED_SPEED)
    with _in_process(model, like) as local, prepared, prepared.open_burst() as burst:
        bound = burst.bind(measure=True)
        driver_us: list[int] = []

        def by_burst(one: Array) -> Array:
            bound.inputs[0][...] = one
            driver_us.append(bound.run().timing.time_in_driver)
            return bound.outputs[0]

        yield [
            Route(IN_PROCESS, local),
            Route(EXECUTE, lambda one: prepared.execute([one]).outputs[0]),
            Route(BURST, by_burst, driver_us=driver_us),
        ]


@contextmanager
def _in_process(model: Model, like: Array) -> Iterator[Callable[[Array], Array]]:
    """The reference executor in this very process: no queue, no socket, no isolation."""
    image, scores = np.zeros_like(like), np.zeros((1, 10), like.dtype)
    prepared = ReferenceExecutor().prepare(model, [])
    execution = prepared.bind([_argument(image)], [_argument(scores)])

    def execute(one: Array) -> Array:
        image[...] = one
        execution.run()
        return scores

    try:
        yield execute
    finally:
        execution.close()
        prepared.close()


def _argument(array: Array) -> Argument:
    return Argument(array.reshape(-1).view(np.uint8), array.shape)
