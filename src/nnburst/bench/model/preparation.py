"""From a file to its first result: each time in a new driver, cold and with a compilation cache."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from nnburst.bench.drivers import pinned
from nnburst.bench.model.data_sets import Example
from nnburst.bench.verdict.verdict import spread
from nnburst.client.launch import launch
from nnburst.testing.models.network_file import NetworkFile


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
    """Medians in milliseconds, and bytes.

    Args:
        network: which.
        executor: what drivers are launched with.
        core: where they run, and where the engine does in this process.
        example: inputs of the first execution.
        repeats: drivers that are launched cold, as many that fill a cache, and as many that find it.
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
        with tempfile.TemporaryDirectory(prefix="nnburst-cache-") as folder:
            filling.append(start(folder))
            cache_bytes = float(
                sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
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
    """One way from nothing to a result, in milliseconds.

    Attributes:
        launch_ms: until the driver answers.
        prepare_ms: of the model.
        first_ms: from the beginning to the first result.
        runs_ms: the first and the second execution.
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
    """Launch a driver and execute twice; `folder` is where compilations are kept."""
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
