"""Measures real ONNX networks beside onnxruntime in this process.

    python -m nnburst.bench.network.onnx DIRECTORY [--inputs 200] [--only NAME]

For each network the module prints the difference of the results by operations (executors litert and
onnxruntime) from onnxruntime's, as a fraction of the output's range over all inputs; whether the results of
the whole graph through a driver have the same bits; and the time of a burst beside the engines in process:
onnxruntime's C library with bound buffers, and LiteRT on the lowered network.

All compute on the driver's core with one thread, in turn. Each block begins with runs that do not count,
because two sessions on one core evict each other's weights from the caches. Times are medians of single runs,
ratios are taken within a round. The shortest times are for a machine that is busy with other work.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

import nnburst
from nnburst.bench.cases import Contestant, Looped, pinned
from nnburst.bench.network.networks import (
    InProcess,
    aligned,
    in_process,
    onnx_input_types,
    warm_up_of,
)
from nnburst.bench.rounds import Measured, run_rounds
from nnburst.client.device import Device
from nnburst.executor.graph.whole_graph import Apart
from nnburst.executor.litert.network import survey
from nnburst.executor.onnxruntime.native import Border, GraphBinding, Room, Session
from nnburst.hal.enums import ErrorStatus, OperationType
from nnburst.hal.errors import GeneralFailure, InvalidArgument, NnburstError
from nnburst.hal.whole_graph import BY_NUMBER
from nnburst.importer.load import load
from nnburst.testing.models.onnx_networks import NETWORKS, OnnxNetwork

Array = npt.NDArray[Any]
Shape = Sequence[int]


# -- An ONNX file as one operation, beside onnxruntime's C library on bound buffers ----------------


class InProcessGraph:
    """onnxruntime in this process: one thread, otherwise with the executor's settings.

    Attributes:
        names: names of the inputs, in order.
    """

    def __init__(self, content: bytes) -> None:
        """Make a session by onnxruntime's Python interface.

        Raises:
            InvalidArgument: onnxruntime refuses the graph.
        """
        ort = import_module("onnxruntime")
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 4
        try:
            self._session = ort.InferenceSession(content, options, ["CPUExecutionProvider"])
        except Exception as error:  # its errors have no other common base
            raise InvalidArgument(f"onnxruntime refuses the graph: {error}") from error
        self._inputs = self._session.get_inputs()
        self.names = [str(info.name) for info in self._inputs]

    def run(self, values: Sequence[Array]) -> list[Array]:
        """Run once; return all outputs."""
        given = dict(zip(self.names, values, strict=True))
        return [np.asarray(array) for array in self._session.run(None, given)]

    def values(
        self,
        random: np.random.Generator,
        shapes: Mapping[str, Shape],
        constants: Mapping[str, npt.ArrayLike],
    ) -> list[Array]:
        """Make values of all inputs, in order: between -1 and 1, or bytes.

        Args:
            random: generator of the values.
            shapes: shapes of inputs that the file leaves open; 1 for each extent that is not given.
            constants: values of inputs that are not random.
        """
        types = onnx_input_types(self._session)
        made = []
        for info in self._inputs:
            if info.name in constants:
                made.append(np.array(constants[info.name], types[info.name]))
                continue
            known = [extent if isinstance(extent, int) else 1 for extent in info.shape]
            shape = tuple(shapes.get(info.name, known))
            if types[info.name].kind == "f":
                made.append(random.uniform(-1, 1, shape).astype(types[info.name]))
            else:
                highest = min(256, np.iinfo(types[info.name]).max)
                made.append(random.integers(0, highest, shape).astype(types[info.name]))
        return made


@dataclass(frozen=True)
class GraphLineup:
    """The contestants on one graph.

    Attributes:
        burst: the burst to the driver.
        bound: onnxruntime's C library in this process, on bound buffers, called from C.
        different: whether some output of both differs in a bit.
    """

    burst: Contestant
    bound: Contestant
    different: bool


@contextmanager
def graph_lineup(
    content: bytes, names: Sequence[str], device: Device, core: int, values: Sequence[Array]
) -> Iterator[GraphLineup]:
    """Open burst and engine on one graph and one input.

    Args:
        content: the .onnx file.
        names: names of all inputs, as the engine has them.
        device: a driver of the onnxruntime executor on `core`.
        core: core to compute on.
        values: values of all inputs; their extents become the graph's.

    Raises:
        NnburstError: the driver or the engine refuses the graph.
    """
    shapes = {n: v.shape for n, v in zip(names, values, strict=True) if v.shape}
    fixed = load(content, as_graph=True, shapes=shapes)
    # The same file on both sides: where shapes are open, the engine's optimizer leaves other kernels.
    same = fixed.pools[0].tobytes()
    expected = InProcessGraph(same).run(values)
    with ExitStack() as stack:
        prepared = stack.enter_context(device.prepare(fixed))
        burst = stack.enter_context(prepared.open_burst())
        bound = burst.bind(output_bytes=[array.nbytes for array in expected])
        for room, value in zip(bound.inputs, values, strict=True):
            room[...] = value.reshape(room.shape)
        found = bound.run()
        warm_up = warm_up_of(bound.run)
        floor = bind_in_process(same, values, [array.shape for array in expected])
        yield GraphLineup(
            Looped("graph", bound.run, warm_up),
            InProcess("bound", floor, core, warm_up),
            any(
                np.asarray(ours).tobytes() != theirs.tobytes()
                for ours, theirs in zip(found.outputs, expected, strict=True)
            ),
        )


def bind_in_process(
    content: bytes, values: Sequence[Array], shapes: Sequence[Shape]
) -> GraphBinding:
    """Bind the engine's C library in this process to fixed memory, and run it once.

    Args:
        content: the .onnx file.
        values: values of all inputs.
        shapes: shapes of all outputs.

    Raises:
        InvalidArgument: the engine refuses the graph.
        GeneralFailure: the engine fails to run the graph, for example if a declared rank is wrong.
    """
    session = Session(content, {}, 1)
    if len(session.inputs) != len(values):
        raise InvalidArgument(f"{len(values)} values, the graph has {len(session.inputs)} inputs")
    given = [_room(v, b, v.shape) for v, b in zip(values, session.inputs, strict=True)]
    results = [
        _room(np.zeros(shape, BY_NUMBER[border.element].dtype), border, shape)
        for shape, border in zip(shapes, session.outputs, strict=True)
    ]
    binding = session.bind(given, results)
    outcome = binding.run()
    if outcome.status != ErrorStatus.NONE:
        raise GeneralFailure(f"the engine in process: {outcome.message}")
    return binding


def _room(array: Array, border: Border, shape: Shape) -> Room:
    return Room(aligned(array), border.element, tuple(shape), Apart.IN_ITS_PLACE)


# -- By operations and as a graph, over many inputs ------------------------------------------------


#: Executors that run networks by operations.
EXECUTORS: Final = ("litert", "onnxruntime")
#: Least number of rounds for each network, and the seconds for them.
_FEWEST_ROUNDS: Final = 5
_SECONDS: Final = 4.0


def by_operations(
    executor: str, network: OnnxNetwork, content: bytes, engine: InProcessGraph, inputs: int
) -> dict[str, Any]:
    """Run the network by operations through a driver of an executor."""
    try:
        imported = nnburst.load(
            content,
            shapes=network.shapes,
            constants=network.constants,
            states=network.states,
            as_graph=False,
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
        warm_up = warm_up_of(bound.run)
        cases: dict[str, Contestant] = {"burst": Looped("burst", bound.run, warm_up)}
        refusal = ""
        try:
            floor = bind_in_process(content, values, [array.shape for array in expected])
            cases["onnxruntime"] = InProcess("onnxruntime", floor, there, warm_up)
        except NnburstError as error:  # such as a file that declares another rank than it computes
            refusal = str(error)
        if executor == "litert":
            lowered = survey(imported.model, list(imported.pools)).network
            if lowered is not None:
                same, _ = in_process(imported.model, bytes(lowered.content), bound)
                cases["litert"] = InProcess("litert", same, there, warm_up)
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
    """The differences of results from the expected ones, over many inputs.

    If an output has few numbers, or is nearly constant for an input, the range over all inputs shows whether
    a difference is small: a probability of 1e-5 may be off by 1e-8.

    Attributes:
        at_worst: the largest difference as a fraction of the same output's range for the same input.
    """

    def __init__(self) -> None:
        """Start without differences."""
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
        """The largest difference of any output, as a fraction of its range over all inputs."""
        return max(
            (off / _range(*self._borders[at]) for at, off in self._largest.items()), default=0.0
        )


def _range(low: float, high: float) -> float:
    """The range of values, or their magnitude if they are nearly equal."""
    reach, size = high - low, max(abs(low), abs(high))
    return max(reach if reach > 1e-3 * size else size, 1e-9)


def as_graph(
    network: OnnxNetwork, content: bytes, engine: InProcessGraph, inputs: int
) -> dict[str, Any]:
    """Run the whole graph through an onnxruntime driver."""
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
            with graph_lineup(content, engine.names, device, there, values) as lineup:
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
    """Run the cases in turn, in short blocks, for some seconds."""
    found = run_rounds(list(cases.values()), _FEWEST_ROUNDS, seconds=_SECONDS)
    return {name: found[case.name] for name, case in cases.items()}


def _medians(measured: Mapping[str, Measured]) -> dict[str, float]:
    """Median microseconds of a run, by case."""
    return {name: float(np.median(case.typical)) / 1e3 for name, case in measured.items()}


def main(arguments: Sequence[str]) -> int:
    """Print a line for each network; 1 if a result is wrong."""
    parser = argparse.ArgumentParser(
        description="Real ONNX networks: by operations and as whole graphs beside onnxruntime in "
        "process."
    )
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
