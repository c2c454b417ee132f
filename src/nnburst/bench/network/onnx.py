"""Real ONNX networks: by operations and as whole graphs beside onnxruntime in process.

    python -m nnburst.bench.network.onnx DIRECTORY [--inputs 200] [--only NAME]

For each network how far the results by operations (executor litert) are from onnxruntime's, in parts of the
output's range over all inputs; whether those of the whole graph through a driver have the same bits; and what
a burst takes beside the engines in process: onnxruntime by its C library with bound buffers, and LiteRT on
what the network was lowered to. All compute on the driver's core with one thread, rounds of each in turn.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from time import perf_counter_ns
from typing import Any, Final

import numpy as np
import numpy.typing as npt

import nnburst
from nnburst.bench.drivers import pinned
from nnburst.bench.network.networks import in_process
from nnburst.executor.litert.network import survey
from nnburst.executor.onnxruntime.native import Border, Room, Session
from nnburst.hal.enums import OperationType
from nnburst.hal.errors import GeneralFailure, NnburstError
from nnburst.hal.extensions.whole_graph import BY_NUMBER
from nnburst.testing.models.onnx_networks import NETWORKS, OnnxNetwork

Array = npt.NDArray[Any]

#: Runs of a round, and rounds of each contestant: as many as the time allows.
_RUNS: Final = 10
_FEWEST_ROUNDS, _MOST_ROUNDS = 3, 1000
_LONGEST_NS: Final = 4_000_000_000


class InProcessGraph:
    """onnxruntime in this process: one thread, everything else as the executor has it."""

    def __init__(self, content: bytes) -> None:
        """Make a session by its own Python interface."""
        ort = import_module("onnxruntime")
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 4
        self._session = ort.InferenceSession(content, options, ["CPUExecutionProvider"])
        self.inputs = self._session.get_inputs()

    def run(self, values: Sequence[Array]) -> list[Array]:
        """All outputs."""
        names = [info.name for info in self.inputs]
        return [
            np.asarray(a) for a in self._session.run(None, dict(zip(names, values, strict=True)))
        ]


def values_for(
    network: OnnxNetwork, engine: InProcessGraph, random: np.random.Generator
) -> list[Array]:
    """Values of all inputs, in order: between -1 and 1, or bytes."""
    values = []
    for info in engine.inputs:
        if info.name in network.constants:
            values.append(np.array(network.constants[info.name], np.int64))
            continue
        open_shape = [extent if isinstance(extent, int) else 1 for extent in info.shape]
        shape = tuple(network.shapes.get(info.name, open_shape))
        if "float" in info.type:
            values.append(random.uniform(-1, 1, shape).astype(np.float32))
        else:
            dtype = np.int64 if "int64" in info.type else np.int32
            values.append(random.integers(0, 256, shape).astype(dtype))
    return values


def by_operations(
    network: OnnxNetwork, content: bytes, engine: InProcessGraph, inputs: int
) -> dict[str, Any]:
    """The network imported and run through a litert driver."""
    try:
        imported = nnburst.load(
            content, shapes=network.shapes, constants=network.constants, states=network.states
        )
    except NnburstError as error:
        return {"refused": str(error)}
    here, there = sorted(os.sched_getaffinity(0))[:2]
    main = imported.model.main
    kinds = Counter(OperationType(operation.type).name for operation in main.operations)
    kept = [at for at, info in enumerate(engine.inputs) if info.name not in network.constants]
    random, distances = np.random.default_rng(0), Distances()
    with (
        nnburst.launch("litert", cpus={there}) as device,
        device.prepare(imported) as prepared,
        prepared.open_burst() as burst,
        pinned(here),
    ):
        bound = burst.bind()
        for _ in range(inputs):
            values = values_for(network, engine, random)
            for room, at in zip(bound.inputs, kept, strict=True):
                room[...] = values[at].reshape(room.shape)
            bound.run(timeout=60)
            expected = engine.run(values)
            distances.add(bound.outputs, expected)
        cases: dict[str, tuple[Callable[[], object], int]] = {}
        cases["burst"] = (lambda: bound.run(timeout=60), here)
        floor, refusal = None, ""
        try:
            floor = _bound(content, values, [a.shape for a in expected])
            _done(floor.run())
            cases["onnxruntime"] = (floor.run, there)
        except NnburstError as error:  # such as a file that declares another rank than it computes
            refusal = str(error)
        lowered = survey(imported.model, list(imported.pools)).network
        if lowered is not None:
            same, _ = in_process(imported.model, bytes(lowered.content), bound)
            cases["litert"] = (lambda: same.run(), there)
        times = _in_turn(cases)
    return {
        "operations": sum(kinds.values()),
        "transposes": kinds["TRANSPOSE"],
        "off": distances.in_parts_of_range(),
        "off_at_worst": distances.at_worst,
        "us": {name: time / 1e3 for name, time in times.items()},
        "to_litert": times["burst"] / times["litert"] if "litert" in times else None,
        "to_onnxruntime": refusal or times["burst"] / times["onnxruntime"],
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


def _in_turn(cases: Mapping[str, tuple[Callable[[], object], int]]) -> dict[str, float]:
    """Shortest time of each: rounds in turn, of a few runs each, so that caches are the runner's own.

    Each is called on the core that it names.
    """
    best = dict.fromkeys(cases, float("inf"))
    until = perf_counter_ns() + _LONGEST_NS
    for rounds in range(_MOST_ROUNDS):
        for name, (function, core) in cases.items():
            with pinned(core):
                for _ in range(_RUNS):
                    began = perf_counter_ns()
                    function()
                    best[name] = min(best[name], float(perf_counter_ns() - began))
        if rounds >= _FEWEST_ROUNDS and perf_counter_ns() > until:
            break
    return best


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
            values = values_for(network, engine, random)
            given = [value.reshape(value.shape or (1,)) for value in values]
            found = burst.execute(given, timeout=120).outputs
            expected = engine.run(values)
            different += any(
                a.tobytes() != b.tobytes() for a, b in zip(found, expected, strict=True)
            )
        shapes = [array.shape for array in expected]
        shape = {i.name: v.shape for i, v in zip(engine.inputs, values, strict=True) if v.shape}
        fixed = nnburst.load(content, as_graph=True, shapes=shape)
        try:
            again = device.prepare(fixed)
            floor = _bound(fixed.pools[0].tobytes(), values, shapes)  # the same file in both
            _done(floor.run())
        except NnburstError as error:
            return {"different": different, "with_shapes": f"refused: {error}"}
        with again, again.open_burst() as second:
            bound = second.bind(output_bytes=[a.nbytes for a in expected])
            for room, value in zip(bound.inputs, values, strict=True):
                room[...] = value.reshape(room.shape)
            cases: dict[str, tuple[Callable[[], object], int]] = {
                "graph": (lambda: bound.run(timeout=120), here),
                "bound": (lambda: _done(floor.run()), there),
            }
            times = _in_turn(cases)
    us = {name: time / 1e3 for name, time in times.items()}
    return {"different": different, "us": us, "to_bound": times["graph"] / times["bound"]}


def _done(failure: str) -> None:
    if failure:
        raise GeneralFailure(f"the engine in process: {failure}")


def _bound(content: bytes, values: Sequence[Array], shapes: Sequence[tuple[int, ...]]) -> Any:  # noqa: ANN401
    """The engine in this process by its C library, on memory that stays."""
    session = Session(content, {}, 1)
    given = [
        _room(np.ascontiguousarray(v), b, v.shape)
        for v, b in zip(values, session.inputs, strict=True)
    ]
    results = [
        _room(np.zeros(shape, BY_NUMBER[border.element].dtype), border, shape)
        for shape, border in zip(shapes, session.outputs, strict=True)
    ]
    return session.bind(given, results)


def _room(array: Array, border: Border, shape: tuple[int, ...]) -> Room:
    memory = np.zeros(array.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    place = memory[start : start + array.nbytes]
    place[...] = array.reshape(-1).view(np.uint8)
    return Room(place, border.element, shape, apart=False)


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
        report["operations"] = by_operations(network, content, engine, args.inputs)
        report["graph"] = as_graph(network, content, engine, args.inputs)
        wrong += report["graph"]["different"] > 0 or report["operations"].get("off", 0.0) > 1e-3
        sys.stdout.write(json.dumps(report) + "\n")
        sys.stdout.flush()
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
