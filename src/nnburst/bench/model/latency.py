"""Measures a network's latency by every route in turn, and the time from its file to a first result."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from time import perf_counter
from typing import Any, Final, NamedTuple

import numpy as np

from nnburst.bench.cases import Contestant, Looped, pinned
from nnburst.bench.model.accuracy import Compute
from nnburst.bench.model.data_sets import Example
from nnburst.bench.network.networks import (
    InProcess,
    OnCore,
    aligned,
    in_process,
    lower,
    warm_up_of,
)
from nnburst.bench.rounds import Measured, WarmUp, run_rounds, warm_up
from nnburst.bench.verdict import spread
from nnburst.client.burst.interface import BoundRequest, Burst
from nnburst.client.device import Device
from nnburst.client.launch import launch
from nnburst.client.prepared_model import PreparedModel
from nnburst.driver.executors import make_executor
from nnburst.executor.base import Argument
from nnburst.hal.errors import NnburstError
from nnburst.hal.own_folder import OwnFolder
from nnburst.testing.models.litert import interpreter
from nnburst.testing.models.network_file import NetworkFile

BURST: Final = "burst"
EXECUTE: Final = "execute"
C_API: Final = "LiteRT C API in process"
LOWERED: Final = "LiteRT C API in process, as lowered"
EXECUTOR: Final = "executor in process"
INTERPRETER: Final = "LiteRT Interpreter in process"
ONNXRUNTIME: Final = "onnxruntime in process"

#: Seconds and number of executions that the driver measures.
_DRIVER_SECONDS: Final = 0.5
_DRIVER_RUNS: Final = (5, 2000)


@dataclass(frozen=True, slots=True)
class Participant:
    """A further device or variant that takes part in the rounds.

    Attributes:
        network: the same network, or a variant with the same inputs and outputs.
        device: device that executes it.
    """

    network: NetworkFile
    device: Device


@dataclass
class Latency:
    """The durations of one network.

    Attributes:
        cases: measurements of each route.
        driver_us: median of the driver's own duration, from the request's arrival to its result.
        device_us: median of the executor's duration.
        warm_up: the runs before the first round.
        remarks: reasons why a route is missing.
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
    """Execute one example by all routes, in turn.

    Args:
        network: the network.
        device: a driver on `core`.
        core: core on which the engines of this process compute, too.
        example: the inputs.
        rounds: least number of blocks of each route.
        progress: called after each round.
        executor: the driver's executor, which runs in this process if the engine cannot run alone.
        reference: the engine of a file other than .tflite.
        others: further participants, by name.
        warm_up_s: seconds before the first round; more if routes still become faster.
        seconds: least duration of the rounds.
    """
    remarks: list[str] = []
    with ExitStack() as stack:
        contestants, timed = _routes(stack, network, device, core, example, executor, remarks)
        for name, other in (others or {}).items():
            _, _, bound = _bound(stack, other.network, other.device, example)
            contestants.append(Looped(f"{BURST}, {name}", bound.run, warm_up_of(bound.run)))
        if reference is not None:
            call = partial(reference, example)
            contestants.append(OnCore(Looped(ONNXRUNTIME, call, warm_up_of(call)), core))
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
    """Prepare a model, open a burst, bind a request, and run it once."""
    prepared = stack.enter_context(device.prepare(network.imported))
    burst = stack.enter_context(prepared.open_burst())
    bound = burst.bind()
    for place, values in zip(bound.inputs, network.with_states(example), strict=True):
        place[...] = values
    bound.run()
    return prepared, burst, bound


def _routes(
    stack: ExitStack,
    network: NetworkFile,
    device: Device,
    core: int,
    example: Example,
    executor: str,
    remarks: list[str],
) -> tuple[list[Contestant], BoundRequest]:
    """The cases of all routes, and a request that the driver times."""
    prepared, burst, bound = _bound(stack, network, device, example)
    timed = burst.bind(bound.inputs, bound.outputs, measure=True)
    warm_up = warm_up_of(bound.run)
    routes: list[Contestant] = [
        Looped(BURST, bound.run, warm_up),
        Looped(EXECUTE, partial(_execute, prepared, bound), warm_up),
    ]
    try:
        name, content = _for_engine(network)
        binding, _ = in_process(network.imported.model, content, bound)
        routes.append(InProcess(name, binding, core, warm_up))
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
    """A case of the driver's executor in this process, on copies of the burst's arrays."""
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
    """The file for the engine's C interface: the network's own, or the lowered one.

    A .tflite file with states hides them, and the engine cannot read other formats.

    Raises:
        GeneralFailure: the engine does not run the whole network.
    """
    if network.is_tflite and not network.imported.states:
        return C_API, network.content
    lowered = lower(network.name, network.imported.model, network.imported.pools)
    return LOWERED, bytes(lowered.content)


def _execute(prepared: PreparedModel, bound: BoundRequest) -> None:
    """A call that executes over the socket, on arrays in a pool."""
    prepared.execute(bound.inputs, bound.outputs)


def _driver_times(timed: BoundRequest) -> tuple[float, float]:
    """Median durations of the driver and of its device, in microseconds."""
    fewest, most = _DRIVER_RUNS
    driver: list[int] = []
    device: list[int] = []
    until = perf_counter() + _DRIVER_SECONDS
    while len(driver) < fewest or (len(driver) < most and perf_counter() < until):
        timing = timed.run().timing
        driver.append(timing.time_in_driver)
        # The device reports no time of its own: the driver's is an upper bound.
        device.append(min(timing.time_on_device, timing.time_in_driver))
    return float(np.median(driver)), float(np.median(device))


# -- preparation -----------------------------------------------------------------------------------


def measure_preparation(
    network: NetworkFile,
    executor: str,
    core: int,
    example: Example,
    repeats: int,
    progress: Callable[[int], None] = lambda _: None,
    *,
    engine: Callable[[], object],
) -> dict[str, float | None]:
    """Measure the preparation of a network: medians in milliseconds, and bytes.

    Args:
        network: the network.
        executor: the drivers' executor.
        core: core of the drivers, and of the engine in this process.
        example: inputs of the first execution.
        repeats: number of drivers that start cold, that fill a cache, and that find it.
        progress: called with 1 after each.
        engine: prepares the network in this process.

    Returns:
        `load_ms`, reading the file; `engine_ms`, the engine's own preparation in this process;
        `launch_ms`; `prepare_cold_ms`; `first_result_ms`, from the launch to the first result, both
        included; `first_run_ms` and `second_run_ms`, the first executions alone; `prepare_to_cache_ms`,
        cold and written to a cache, and its `cache_bytes`; `prepare_cached_ms` and
        `first_result_cached_ms`, None if nothing came from a cache. Of the three ways to prepare also the
        spread from the first quartile to the third, as a share of the median: `prepare_cold_spread`,
        `prepare_to_cache_spread`, `prepare_cached_spread`. All are None if `repeats` is 0.
    """

    def start(folder: str | None) -> Start:
        began = _in_new_driver(network, executor, core, example, folder)
        progress(1)
        return began

    cold = [start(None) for _ in range(repeats)]
    filling, found, cache_bytes = [], [], None
    for _ in range(repeats):
        with OwnFolder() as own:
            folder = str(own.path)
            filling.append(start(folder))
            cache_bytes = float(
                sum(path.stat().st_size for path in own.path.rglob("*") if path.is_file())
            )
            found.append(start(folder))
    cached = [once for once in found if once.from_cache]
    with pinned(core):
        load_ms = [_timed(lambda: network.reading(network.content)) for _ in range(repeats)]
        engine_ms = [_timed(engine) for _ in range(repeats)]
    return {
        "load_ms": _median(load_ms),
        "engine_ms": _median(engine_ms),
        "launch_ms": _median([once.launch_ms for once in cold]),
        "prepare_cold_ms": _median([once.prepare_ms for once in cold]),
        "prepare_cold_spread": _spread([once.prepare_ms for once in cold]),
        "first_result_ms": _median([once.first_ms for once in cold]),
        "first_run_ms": _median([once.runs_ms[0] for once in cold]),
        "second_run_ms": _median([once.runs_ms[1] for once in cold]),
        "prepare_to_cache_ms": _median([once.prepare_ms for once in filling]),
        "prepare_to_cache_spread": _spread([once.prepare_ms for once in filling]),
        "cache_bytes": cache_bytes,
        "prepare_cached_ms": _median([once.prepare_ms for once in cached]),
        "prepare_cached_spread": _spread([once.prepare_ms for once in cached]),
        "first_result_cached_ms": _median([once.first_ms for once in cached]),
    }


class Start(NamedTuple):
    """The times from a driver's launch to a result, in milliseconds.

    Attributes:
        launch_ms: time until the driver answers.
        prepare_ms: time of preparing the model.
        first_ms: time from the beginning to the first result.
        runs_ms: times of the first and the second execution.
        from_cache: whether the driver compiled nothing.
    """

    launch_ms: float
    prepare_ms: float
    first_ms: float
    runs_ms: tuple[float, float]
    from_cache: bool


def _in_new_driver(
    network: NetworkFile, executor: str, core: int, example: Example, folder: str | None
) -> Start:
    """Launch a driver and execute twice; `folder` is the compilation cache."""
    began = perf_counter()
    with launch(executor, cpus={core}) as device:
        launched = perf_counter()
        with device.prepare(network.imported, cache_dir=folder) as prepared:
            ready = perf_counter()
            inputs = network.with_states(example)
            with prepared.open_burst() as burst:
                opened = perf_counter()
                burst.execute(inputs)
                done = perf_counter()
                burst.execute(inputs)
                second = perf_counter()
            from_cache = prepared.from_cache
    return Start(
        1e3 * (launched - began),
        1e3 * (ready - launched),
        1e3 * (done - began),
        (1e3 * (done - opened), 1e3 * (second - done)),
        from_cache,
    )


def _timed(call: Callable[[], object]) -> float:
    began = perf_counter()
    call()
    return 1e3 * (perf_counter() - began)


def _median(values: list[float]) -> float | None:
    return statistics.median(values) if values else None


def _spread(values: list[float]) -> float | None:
    return spread(values) if values else None
