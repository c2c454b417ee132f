"""One network by every route in turn, and the driver's own durations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from time import perf_counter
from typing import Any, Final

import numpy as np

from nnburst.bench.contestants import Contestant, Looped
from nnburst.bench.model.accuracy import Compute
from nnburst.bench.model.data_sets import Example
from nnburst.bench.network.networks import OnCore, aligned, in_process, litert_in_c, warm_up_of
from nnburst.bench.rounds import Measured, WarmUp, run_rounds, warm_up
from nnburst.client.burst.bound_request import BoundRequest
from nnburst.client.burst.burst import Burst
from nnburst.client.device import Device
from nnburst.client.prepared_model import PreparedModel
from nnburst.driver.executors import make_executor
from nnburst.executor.base import Argument
from nnburst.executor.litert.network import survey
from nnburst.hal.errors import GeneralFailure, NnburstError
from nnburst.testing.models.litert import interpreter
from nnburst.testing.models.network_file import NetworkFile

BURST: Final = "burst"
EXECUTE: Final = "execute"
C_API: Final = "LiteRT C API in process"
LOWERED: Final = "LiteRT C API in process, as lowered"
EXECUTOR: Final = "executor in process"
INTERPRETER: Final = "LiteRT Interpreter in process"
ONNXRUNTIME: Final = "onnxruntime in process"

#: What calls take before a block begins to count, in nanoseconds, and how many there are.
_WARM_UP_NS: Final = 1_000_000
_WARM_UP: Final = (2, 100)
#: Seconds and executions that are measured by the driver.
_DRIVER_SECONDS: Final = 0.5
_DRIVER_RUNS: Final = (5, 2000)


@dataclass(frozen=True, slots=True)
class Participant:
    """What takes part beside the driver that is measured.

    Attributes:
        network: the same one, or a variant with the same inputs and outputs.
        device: that executes it.
    """

    network: NetworkFile
    device: Device


@dataclass
class Latency:
    """Durations of one network.

    Attributes:
        cases: of each route.
        driver_us: median of the driver's own duration, from the request's arrival to its result.
        device_us: median of the executor's duration.
        warm_up: what came before the first round.
        remarks: why a route is missing.
    """

    cases: dict[str, Measured]
    driver_us: float
    device_us: float
    warm_up: WarmUp = field(default_factory=lambda: WarmUp(0.0, 0))
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
            "warm_up": asdict(self.warm_up),
            "remarks": self.remarks,
        }


def measure(
    network: NetworkFile,
    device: Device,
    core: int,
    example: Example,
    rounds: int,
    progress: Callable[[], None] = lambda: None,
    *,
    executor: str = "litert",
    reference: Compute | None = None,
    others: Mapping[str, Participant] | None = None,
    warm_up_s: float = 0.0,
    seconds: float = 0.0,
) -> Latency:
    """Run one example by all routes, in turn.

    Args:
        network: which.
        device: a driver on `core`.
        core: where the engines of this process compute, too.
        example: the inputs.
        rounds: blocks of each route; at least as many.
        progress: called after each round.
        executor: the driver's, which runs in this process if the engine cannot do so alone.
        reference: the engine of a file that is no .tflite one.
        others: what else takes part, by name.
        warm_up_s: seconds before the first round; more if routes still become faster.
        seconds: that the rounds take at least.
    """
    remarks: list[str] = []
    with ExitStack() as stack:
        contestants, timed = _routes(stack, network, device, core, example, executor, remarks)
        for name, other in (others or {}).items():
            _, _, bound = _bound(stack, other.network, other.device, example)
            contestants.append(Looped(f"{BURST}, {name}", bound.run, warm_up_of(bound)))
        if reference is not None:
            call = partial(reference, example)
            contestants.append(OnCore(Looped(ONNXRUNTIME, call, _warm_up(call)), core))
        warmed = warm_up(contestants, warm_up_s)
        if warmed.unsettled:
            remarks.append(
                f"{network.name}: {', '.join(warmed.unsettled)} still became faster after"
                f" {warmed.seconds:.1f} s of warming up"
            )
        cases = run_rounds(contestants, rounds, progress, seconds=seconds)
        driver, on_device = _driver_times(timed)
    return Latency(cases, driver, on_device, warmed, remarks)


def _bound(
    stack: ExitStack, network: NetworkFile, device: Device, example: Example
) -> tuple[PreparedModel, Burst, BoundRequest]:
    """A prepared model, a burst of its own, and a request over that, run once."""
    prepared = stack.enter_context(device.prepare(network.imported))
    burst = stack.enter_context(prepared.open_burst())
    bound = burst.bind()
    for place, values in zip(bound.inputs, network.with_states(example), strict=True):
        place[...] = values
    bound.run()
    return prepared, burst, bound


def _warm_up(call: Callable[[], object]) -> int:
    """How often to call before a block begins to count."""
    fewest, most = _WARM_UP
    return max(fewest, min(most, int(_WARM_UP_NS / Looped("", call, 1).block(1))))


def _routes(
    stack: ExitStack,
    network: NetworkFile,
    device: Device,
    core: int,
    example: Example,
    executor: str,
    remarks: list[str],
) -> tuple[list[Contestant], BoundRequest]:
    """The routes, and a request that the driver times."""
    prepared, burst, bound = _bound(stack, network, device, example)
    timed = burst.bind(bound.inputs, bound.outputs, measure=True)
    warm_up = warm_up_of(bound)
    routes: list[Contestant] = [
        Looped(BURST, bound.run, warm_up),
        Looped(EXECUTE, partial(_execute, prepared, bound), warm_up),
    ]
    try:
        name, content = _for_engine(network)
        binding, _ = in_process(network.imported.model, content, bound)
        routes.append(litert_in_c(name, binding, core, warm_up))
    except NnburstError as error:
        remarks.append(
            f"{network.name}: the executor in process instead of LiteRT's C API alone: {error}"
        )
        run = _in_this_process(stack, network, executor, bound)
        routes.append(OnCore(Looped(EXECUTOR, run, warm_up), core))
    if network.is_tflite:
        made = interpreter(network.content, fast=True)
        for detail, values in zip(made.get_input_details(), example, strict=True):
            wanted = made.get_tensor(detail["index"])
            made.set_tensor(detail["index"], values.reshape(wanted.shape).astype(wanted.dtype))
        routes.append(OnCore(Looped(INTERPRETER, made.invoke, warm_up), core))
    return routes, timed


def _in_this_process(
    stack: ExitStack, network: NetworkFile, executor: str, bound: BoundRequest
) -> Callable[[], object]:
    """What the driver's executor does for a request, here: on copies of the burst's arrays."""
    imported = network.imported
    prepared = make_executor(executor).prepare(imported.model, list(imported.pools))
    stack.callback(prepared.close)
    inputs, outputs = (
        [Argument(aligned(array), array.shape) for array in arrays]
        for arrays in (bound.inputs, bound.outputs)
    )
    execution = prepared.bind(inputs, outputs)
    stack.callback(execution.close)
    execution.run()
    return execution.run


def _for_engine(network: NetworkFile) -> tuple[str, bytes]:
    """The file for the engine's C interface: itself, or what the executor lowers the model to.

    A .tflite file with states keeps them to itself, and other files are not the engine's.

    Raises:
        GeneralFailure: not all of it is run by the engine.
    """
    if network.is_tflite and not network.imported.states:
        return C_API, network.content
    lowered = survey(network.imported.model, list(network.imported.pools)).network
    if lowered is None:
        raise GeneralFailure(f"{network.name}: the engine runs only a part of it, expected all")
    return LOWERED, bytes(lowered.content)


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
