"""One network by every route in turn, and the driver's own durations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any, Final

import numpy as np

from nnburst.bench.contestants import Contestant, Looped
from nnburst.bench.model.data_sets import Example
from nnburst.bench.network.networks import InProcess, OnCore, in_process, warm_up_of
from nnburst.bench.rounds import Measured, run_rounds
from nnburst.client.burst.bound_request import BoundRequest
from nnburst.client.device import Device
from nnburst.client.prepared_model import PreparedModel
from nnburst.hal.errors import NnburstError
from nnburst.testing.models.litert import interpreter
from nnburst.testing.models.network_file import NetworkFile

BURST: Final = "burst"
EXECUTE: Final = "execute"
C_API: Final = "LiteRT C API in process"
INTERPRETER: Final = "LiteRT Interpreter in process"

#: Seconds and executions that are measured by the driver.
_DRIVER_SECONDS: Final = 0.5
_DRIVER_RUNS: Final = (5, 2000)


@dataclass
class Latency:
    """Durations of one network.

    Attributes:
        cases: of each route.
        driver_us: median of the driver's own duration, from the request's arrival to its result.
        device_us: median of the executor's duration.
        remarks: why a route is missing.
    """

    cases: dict[str, Measured]
    driver_us: float
    device_us: float
    remarks: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """As `--json` writes it; ratios are medians over the rounds."""
        burst = self.cases[BURST]
        others = [case for name, case in self.cases.items() if name != BURST]
        return {
            "cases": [case.as_json() for case in self.cases.values()],
            "ratios": {f"{BURST} / {case.name}": burst.ratio_to(case) for case in others},
            "typical_ratios": {
                f"{BURST} / {case.name}": burst.typical_ratio_to(case) for case in others
            },
            "typical_more_ns": {
                f"{BURST} - {case.name}": burst.typical_difference_to(case) for case in others
            },
            "driver_us": self.driver_us,
            "device_us": self.device_us,
            "remarks": self.remarks,
        }


def measure(
    network: NetworkFile,
    device: Device,
    core: int,
    example: Example,
    rounds: int,
    progress: Callable[[], None] = lambda: None,
) -> Latency:
    """Run one example by all routes, in turn.

    Args:
        network: which.
        device: a driver on `core`.
        core: where the engines of this process compute, too.
        example: the inputs.
        rounds: blocks of each route.
        progress: called after each round.
    """
    remarks: list[str] = []
    with _routes(network, device, core, example, remarks) as (contestants, timed):
        cases = run_rounds(contestants, rounds, progress)
        driver, on_device = _driver_times(timed)
    return Latency(cases, driver, on_device, remarks)


@contextmanager
def _routes(
    network: NetworkFile, device: Device, core: int, example: Example, remarks: list[str]
) -> Iterator[tuple[Sequence[Contestant], BoundRequest]]:
    """The routes, and a request that the driver times."""
    with ExitStack() as stack:
        prepared = stack.enter_context(device.prepare(network.imported))
        burst = stack.enter_context(prepared.open_burst())
        bound = burst.bind()
        timed = burst.bind(bound.inputs, bound.outputs, measure=True)
        for place, values in zip(bound.inputs, network.with_states(example), strict=True):
            place[...] = values
        bound.run()
        warm_up = warm_up_of(bound)
        routes: list[Contestant] = [
            Looped(BURST, bound.run, warm_up),
            Looped(EXECUTE, partial(_execute, prepared, bound), warm_up),
        ]
        if network.imported.states:
            remarks.append(f"{network.name}: no {C_API}: the file keeps its states to itself")
        else:
            try:
                binding, _ = in_process(network.imported.model, network.content, bound)
                routes.append(InProcess(C_API, binding, core, warm_up))
            except NnburstError as error:
                remarks.append(f"{network.name}: no {C_API}: {error}")
        made = interpreter(network.content, fast=True)
        for detail, values in zip(made.get_input_details(), example, strict=True):
            wanted = made.get_tensor(detail["index"])
            made.set_tensor(detail["index"], values.reshape(wanted.shape).astype(wanted.dtype))
        routes.append(OnCore(Looped(INTERPRETER, made.invoke, warm_up), core))
        yield routes, timed


def _execute(prepared: PreparedModel, bound: BoundRequest) -> None:
    """Over the socket, on arrays that lie in a pool."""
    prepared.execute(bound.inputs, bound.outputs)


def _driver_times(timed: BoundRequest) -> tuple[float, float]:
    """Medians of what the driver and its device took, in microseconds."""
    fewest, most = _DRIVER_RUNS
    driver: list[int] = []
    device: list[int] = []
    until = perf_counter() + _DRIVER_SECONDS
    while len(driver) < fewest or (len(driver) < most and perf_counter() < until):
        timing = timed.run().timing
        driver.append(timing.time_in_driver)
        device.append(timing.time_on_device)
    return float(np.median(driver)), float(np.median(device))
