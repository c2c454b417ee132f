"""From a file to its first result: each time in a new driver, cold and with a compilation cache."""

from __future__ import annotations

import inspect
import statistics
import tempfile
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

from nnburst.client.device import Device
from nnburst.client.launch import launch
from nnburst.importer.load import load
from nnburst.testing.bench.drivers import pinned
from nnburst.testing.bench.model.data_sets import Example
from nnburst.testing.litert import interpreter
from nnburst.testing.network_file import NetworkFile

Times = dict[str, float]


def measure_preparation(
    network: NetworkFile,
    executor: str,
    core: int,
    example: Example,
    repeats: int,
    progress: Callable[[int], None] = lambda _: None,
) -> dict[str, float | None]:
    """Medians in milliseconds.

    Args:
        network: which.
        executor: what drivers are launched with.
        core: where they run, and where the engine does in this process.
        example: inputs of the first execution.
        repeats: drivers that are launched cold, and as many that find a cache.
        progress: called with 1 after each.

    Returns:
        `load_ms`, reading the file; `engine_ms`, the Interpreter's own preparation in this process;
        `launch_ms`; `prepare_cold_ms`; `first_result_ms`, from the launch to the first result, both
        included; `prepare_cached_ms` and `first_result_cached_ms`, None where the client has no cache.
    """
    cold = [_in_new_driver(network, executor, core, example, {}, progress) for _ in range(repeats)]
    cached: list[Times] = []
    if has_cache():
        with tempfile.TemporaryDirectory(prefix="nnburst-cache-") as folder:
            options = {"cache_dir": folder}
            _in_new_driver(network, executor, core, example, options, lambda _: None)
            cached += [
                _in_new_driver(network, executor, core, example, options, progress)
                for _ in range(repeats)
            ]
    with pinned(core):
        load_ms = [_timed(lambda: load(network.content)) for _ in range(repeats)]
        engine_ms = [
            _timed(lambda: interpreter(network.content, fast=True)) for _ in range(repeats)
        ]
    return {
        "load_ms": _median(load_ms),
        "engine_ms": _median(engine_ms),
        "launch_ms": _median([times["launch"] for times in cold]),
        "prepare_cold_ms": _median([times["prepare"] for times in cold]),
        "first_result_ms": _median([times["first"] for times in cold]),
        "prepare_cached_ms": _median([times["prepare"] for times in cached]),
        "first_result_cached_ms": _median([times["first"] for times in cached]),
    }


def has_cache() -> bool:
    """Whether this version of the client can keep what a driver has compiled."""
    return "cache_dir" in inspect.signature(Device.prepare).parameters


def _in_new_driver(
    network: NetworkFile,
    executor: str,
    core: int,
    example: Example,
    options: Mapping[str, Any],
    progress: Callable[[int], None],
) -> Times:
    """Milliseconds of a launch, a preparation, and of both with the first execution."""
    began = perf_counter()
    with launch(executor, cpus={core}) as device:
        launched = perf_counter()
        with device.prepare(network.imported, **options) as prepared:
            ready = perf_counter()
            with prepared.open_burst() as burst:
                burst.execute(network.with_states(example))
                done = perf_counter()
    progress(1)
    return {
        "launch": 1e3 * (launched - began),
        "prepare": 1e3 * (ready - launched),
        "first": 1e3 * (done - began),
    }


def _timed(call: Callable[[], object]) -> float:
    began = perf_counter()
    call()
    return 1e3 * (perf_counter() - began)


def _median(values: list[float]) -> float | None:
    return statistics.median(values) if values else None
