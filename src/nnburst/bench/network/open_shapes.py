"""Measures an encoder whose input length changes with each request, on one burst and in process.

    python -m nnburst.bench.network.open_shapes [--requests N]

Lengths are drawn from 1 to 512. Both sides get each request twice, in turns, on one thread, and must give the
same bits. The module prints the ratio of the burst to the engine in process: of median times, and of the
processor times of all requests. The latter include client and driver, but no time of waiting for a processor,
so neither side spins. Then it prints the cost of a shape that was not seen before. It needs the extra
`onnxruntime`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from time import perf_counter_ns
from typing import Any, Final

import msgspec
import numpy as np

import nnburst
from nnburst.testing.models.transformers import ENCODER, TransformerSize, encoder

_LONGEST: Final = 512
_NAMES: Final = ("ids", "mask")


class Found(msgspec.Struct, frozen=True):
    """The measurements of one run.

    Attributes:
        requests: number of requests on each side.
        time_ratio: median of the burst's times over the median of the engine's.
        processor_ratio: processor time of all requests on the burst over the engine's.
        miss_us: median extra processor time of a request's first execution over its second one, minus the
            same of the engine.
    """

    requests: int
    time_ratio: float
    processor_ratio: float
    miss_us: float


def processor_ns(pid: int) -> int:
    """Processor time in ns that the threads of a process have used."""
    return sum(
        int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")
    )


def measure(requests: int, size: TransformerSize = ENCODER) -> Found:
    """Measure `requests` on the burst and in process.

    Raises:
        ValueError: results differ.
    """
    content = encoder(size)
    ort = import_module("onnxruntime")
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = ort.InferenceSession(content, options, ["CPUExecutionProvider"])
    random = np.random.default_rng(0)
    imported = nnburst.load(content, as_graph=True)
    with (
        nnburst.launch("onnxruntime") as device,
        device.prepare(imported) as prepared,
        prepared.open_burst(spin_window=0, driver_spins=False) as burst,
    ):

        def used(work: Callable[[], Any]) -> tuple[Any, int, int]:
            """Call `work`; return the result, the time, and the processor time of both processes."""
            pids = os.getpid(), device.pid
            before, began = sum(map(processor_ns, pids)), perf_counter_ns()
            found = work()
            took = perf_counter_ns() - began
            return found, took, sum(map(processor_ns, pids)) - before

        over: list[tuple[int, int, int]] = []
        within: list[tuple[int, int, int]] = []
        for at in range(requests):
            ids = random.integers(0, size.words, (1, int(random.integers(1, _LONGEST + 1))))
            given = [ids, np.ones_like(ids)]
            ways = [
                (over, lambda given=given: burst.execute(given).outputs[0]),
                (
                    within,
                    lambda given=given: session.run(None, dict(zip(_NAMES, given, strict=True)))[0],
                ),
            ]
            results = set()
            for side, work in ways if at % 2 else ways[::-1]:
                result, took, first = used(work)
                _, _, again = used(work)
                results.add(result.tobytes())
                side.append((took, first, again))
            if len(results) != 1:
                raise ValueError(f"results for {ids.shape[1]} tokens differ")
    times = [statistics.median(took for took, _, _ in side) for side in (over, within)]
    processor = [sum(first for _, first, _ in side) for side in (over, within)]
    misses = [statistics.median(f - again for _, f, again in side) for side in (over, within)]
    return Found(
        requests,
        times[0] / times[1],
        processor[0] / processor[1],
        (misses[0] - misses[1]) / 1e3,
    )


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description="an encoder whose shapes change, on a burst")
    parser.add_argument("--requests", type=int, default=2000, help="default: %(default)s")
    found = measure(parser.parse_args().requests)
    sys.stdout.write(
        f"{found.requests} sequences of 1 to {_LONGEST} tokens, burst over the engine in process:\n"
        f"  {found.time_ratio:.3f} at the median, {found.processor_ratio:.3f} of processor time\n"
        f"  a shape that is new costs {found.miss_us:.0f} µs more\n"
    )


if __name__ == "__main__":
    main()
