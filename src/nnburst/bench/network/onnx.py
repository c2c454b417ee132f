"""Real ONNX networks: by operations and as whole graphs beside onnxruntime in process.

    python -m nnburst.bench.network.onnx DIRECTORY [--inputs 200] [--only NAME]

For each network how far the results by operations (executors litert and onnxruntime) are from onnxruntime's,
in parts of the output's range over all inputs; whether those of the whole graph through a driver have the
same bits; and what a burst takes beside the engines in process: onnxruntime by its C library with bound
buffers, and LiteRT on what the network was lowered to. All compute on the driver's core with one thread, in
turn, in blocks that begin with runs that do not count; times are medians of single runs, ratios those of a
round. The shortest times are for a machine that is busy with other work.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

import nnburst
from nnburst.bench.contestants import Contestant, Looped
from nnburst.bench.drivers import pinned
from nnburst.bench.network.networks import in_process, litert_in_c, warm_up_of
from nnburst.bench.network.whole_graphs import (
    InProcessGraph,
    bind_in_process,
    graph_in_c,
    graph_lineup,
)
from nnburst.bench.rounds import Measured, run_rounds
from nnburst.executor.litert.network import survey
from nnburst.hal.enums import OperationType
from nnburst.hal.errors import NnburstError
from nnburst.testing.models.onnx_networks import NETWORKS, OnnxNetwork

Array = npt.NDArray[Any]

#: That run networks by operations.
EXECUTORS: Final = ("litert", "onnxruntime")
#: Rounds of each network, as many more as the time allows.
_FEWEST_ROUNDS: Final = 5
_SECONDS: Final = 4.0


def by_operations(
    executor: str, network: OnnxNetwork, content: bytes, engine: InProcessGraph, inputs: int
) -> dict[str, Any]:
    """The network imported and run through a driver of an executor."""
    try:
        imported = nnburst.load(
            content, shapes=network.shapes, constants=network.constants, states=network.states
        )
    except NnburstError as error:
        return {"refused": str(error)}
    here, there = sorted(os.sched_getaffinity(0))[:2]
    main = imported.model.main
    kinds = Counter(OperationType(operation.type).name for operation in main.operations)
    kept = [at for at, name in enumerate(engine.names) if name not in network.constants]
    random, distances = np.random.default_rng(0), Distances()
    with ExitStack() as stack:
        device = stack.enter_context(nnburst.launch(executor, cpus={there}))
        try:
            prepared = stack.enter_context(device.prepare(imported))
        except NnburstError as error:
            return {"refused": str(error)}
        burst = stack.enter_context(prepared.open_burst())
        stack.enter_context(pinned(here))
        bound = burst.bind()
        for _ in range(inputs):
            values = engine.values(random, network.shapes, network.constants)
            for room, at in zip(bound.inputs, kept, strict=True):
                room[...] = values[at].reshape(room.shape)
            bound.run(timeout=60)
            expected = engine.run(values)
            distances.add(bound.outputs, expected)
        warm_up = warm_up_of(bound)
        cases: dict[str, Contestant] = {"burst": Looped("burst", bound.run, warm_up)}
        refusal = ""
        try:
            floor = bind_in_process(content, values, [array.shape for array in expected])
            cases["onnxruntime"] = graph_in_c("onnxruntime", floor, there, warm_up)
        except NnburstError as error:  # such as a file that declares another rank than it computes
            refusal = str(error)
        if executor == "litert":
            lowered = survey(imported.model, list(imported.pools)).network
            if lowered is not None:
                same, _ = in_process(imported.model, bytes(lowered.content), bound)
                cases["litert"] = litert_in_c("litert", same, there, warm_up)
        measured = _measure(cases)
    ratios = {name: measured["burst"].typical_ratio_to(other) for name, other in measured.items()}
    return {
        "operations": sum(kinds.values()),
        "transposes": kinds["TRANSPOSE"],
        "off": distances.in_parts_of_range(),
        "off_at_worst": distances.at_worst,
        "us": _medians(measured),
        "shortest_us": {name: float(case.samples.min()) / 1e3 for name, case in measured.items()},
        "to_litert": ratios.get("litert"),
        "to_onnxruntime": refusal or ratios["onnxruntime"],
    }


class Distances:
    """How far results are from those expected, over many inputs.

    Of an output with few numbers, or one that is nearly constant for an input, the range over all inputs
    is what tells a small difference from a large one: a probability of 1e-5 may be off by 1e-8.

    Attributes:
        at_worst: the largest difference in parts of the range of the same output for the same input.
    """

    def __init__(self) -> None:
        """Of nothing yet."""
        self.at_worst = 0.0
        self._largest: dict[int, float] = {}
        self._borders: dict[int, tuple[float, float]] = {}

    def add(self, found: Sequence[Array], expected: Sequence[Array]) -> None:
        """Compare the outputs of one run."""
        for at, (result, wanted) in enumerate(zip(found, expected, strict=True)):
            numbers = wanted.astype(np.float64).reshape(-1)
            off = float(np.abs(result.reshape(-1).astype(np.float64) - numbers).max())
            low, high = float(numbers.min()), float(numbers.max())
            self.at_worst = max(self.at_worst, off / _range(low, high))
            lowest, highest = self._borders.get(at, (low, high))
            self._borders[at] = min(lowest, low), max(highest, high)
            self._largest[at] = max(self._largest.get(at, 0.0), off)

    def in_parts_of_range(self) -> float:
        """The largest difference of any output, in parts of its range over all inputs."""
        return max(
            (off / _range(*self._borders[at]) for at, off in self._largest.items()), default=0.0
        )


def _range(low: float, high: float) -> float:
    """Of what is nearly one number its size."""
    reach, size = high - low, max(abs(low), abs(high))
    return max(reach if reach > 1e-3 * size else size, 1e-9)


def as_graph(
    network: OnnxNetwork, content: bytes, engine: InProcessGraph, inputs: int
) -> dict[str, Any]:
    """The whole graph through an onnxruntime driver."""
    imported = nnburst.load(content, as_graph=True)
    here, there = sorted(os.sched_getaffinity(0))[:2]
    random, different = np.random.default_rng(1), 0
    with (
        nnburst.launch("onnxruntime", cpus={there}) as device,
        device.prepare(imported) as prepared,
        prepared.open_burst() as burst,
        pinned(here),
    ):
        for _ in range(inputs):
            values = engine.values(random, network.shapes, network.constants)
            given = [value.reshape(value.shape or (1,)) for value in values]
            found = burst.execute(given, timeout=120).outputs
            expected = engine.run(values)
            different += any(
                a.tobytes() != b.tobytes() for a, b in zip(found, expected, strict=True)
            )
        try:
            with graph_lineup(content, engine, device, there, values) as lineup:
                different += lineup.different
                measured = _measure({"graph": lineup.burst, "bound": lineup.bound})
        except NnburstError as error:
            return {"different": different, "with_shapes": f"refused: {error}"}
    graph, bound = measured["graph"], measured["bound"]
    return {
        "different": different,
        "us": _medians(measured),
        "to_bound": graph.typical_ratio_to(bound),
        "us_beyond_1_percent": graph.typical_beyond(bound) / 1e3,
    }


def _measure(cases: Mapping[str, Contestant]) -> dict[str, Measured]:
    """Rounds of short blocks, in turn, for some seconds."""
    found = run_rounds(list(cases.values()), _FEWEST_ROUNDS, seconds=_SECONDS)
    return {name: found[case.name] for name, case in cases.items()}


def _medians(measured: Mapping[str, Measured]) -> dict[str, float]:
    """Microseconds of a run."""
    return {name: float(np.median(case.typical)) / 1e3 for name, case in measured.items()}


def main(arguments: Sequence[str]) -> int:
    """Print one line for each network; 1 if some result is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, help="where `make onnx-networks` has put them")
    parser.add_argument("--inputs", type=int, default=200, help="random inputs of each network")
    parser.add_argument("--only", action="append", default=[], metavar="NAME")
    args = parser.parse_args(arguments)
    wrong = 0
    for network in NETWORKS:
        if args.only and network.name not in args.only:
            continue
        content = network.content(args.directory)
        engine = InProcessGraph(content)
        report: dict[str, Any] = {"network": network.name}
        for executor in EXECUTORS:
            report[executor] = by_operations(executor, network, content, engine, args.inputs)
        report["graph"] = as_graph(network, content, engine, args.inputs)
        off = max(report[executor].get("off", 0.0) for executor in EXECUTORS)
        wrong += report["graph"]["different"] > 0 or off > 1e-3
        sys.stdout.write(json.dumps(report) + "\n")
        sys.stdout.flush()
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
