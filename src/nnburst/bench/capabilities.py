"""Measures the speed of a device relative to the reference executor, by kinds of operands.

The figures are for getCapabilities. Each workload runs in a driver of the device and in one of the
reference executor, in turns, with one thread. `exec_time` is the ratio of durations within a round;
`power_usage` is the ratio of the processor times of the two drivers, since energy is not measured.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from nnburst.client.burst.interface import BoundRequest
from nnburst.client.device import Device
from nnburst.demo.pictures import Precision, build_network
from nnburst.driver.model.device import CapabilitiesFile
from nnburst.hal.enums import FusedActivationFunc, OperandType, OperationType
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import Model
from nnburst.hal.model_builder import ModelBuilder
from nnburst.hal.types import PerformanceInfo, non_extension_operand_performance
from nnburst.importer.load import load

Array = npt.NDArray[Any]
_T = OperandType

#: Desired seconds of a block, and the greatest number of runs in it.
_BLOCK: Final = 0.02
_MOST_RUNS: Final = 1000
#: Seconds that one run may take.
_PATIENCE: Final = 60.0
#: Desired seconds for the turns of one network, and the least number of turns.
_LONGEST: Final = 20.0
_FEWEST_ROUNDS: Final = 3
#: Least processor time in seconds; for less, a clock that counts scheduler ticks is too coarse.
_COARSEST: Final = 0.05


class Group(Enum):
    """Kinds of workloads, each with its own capabilities."""

    FLOAT32 = "float32"
    RELAXED = "relaxed float32"
    QUANT8 = "quant8"
    FLOAT16 = "float16"
    INT32 = "int32"
    BOOL = "bool"
    QUANT16 = "quant16"


#: Operand types of each group. OEM types are in no group: they are not measured and stay at 1.
TYPES: Final[dict[Group, tuple[OperandType, ...]]] = {
    Group.FLOAT32: (_T.FLOAT32, _T.TENSOR_FLOAT32),
    Group.RELAXED: (),
    Group.QUANT8: (
        _T.TENSOR_QUANT8_ASYMM,
        _T.TENSOR_QUANT8_ASYMM_SIGNED,
        _T.TENSOR_QUANT8_SYMM,
        _T.TENSOR_QUANT8_SYMM_PER_CHANNEL,
    ),
    Group.FLOAT16: (_T.FLOAT16, _T.TENSOR_FLOAT16),
    Group.INT32: (_T.INT32, _T.UINT32, _T.TENSOR_INT32),
    Group.BOOL: (_T.BOOL, _T.TENSOR_BOOL8),
    Group.QUANT16: (_T.TENSOR_QUANT16_SYMM, _T.TENSOR_QUANT16_ASYMM),
}


@dataclass(frozen=True)
class Workload:
    """A network to run. It can be prepared like the result of `nnburst.load`.

    Attributes:
        name: the name to print.
        group: the group that it represents.
        model: the network.
        pools: pools of the model.
    """

    name: str
    group: Group
    model: Model
    pools: Sequence[Any] = ()


class GroupTimes(NamedTuple):
    """The measurement of one workload.

    Attributes:
        name: name of the workload.
        group: group of the workload.
        device_ms: milliseconds of a run on the device, median of the rounds.
        reference_ms: the same on the reference executor.
        exec_time: median over the rounds of the ratio of both.
        power_usage: ratio of the processor times of all rounds; `exec_time` if the clock is too coarse.
    """

    name: str
    group: Group
    device_ms: float
    reference_ms: float
    exec_time: float
    power_usage: float


def workloads_of(name: str, model: Model, pools: Sequence[Any] = ()) -> list[Workload]:
    """Workloads of a network, one for each group that it represents; empty if it mixes groups.

    The group is that of most operations' first inputs, which decide the speed that the framework uses
    (RTT:P8).
    """
    operands = model.main.operands
    kind = operands[model.main.input_indexes[0]].type
    most = Counter(operands[each.inputs[0]].type for each in model.main.operations if each.inputs)
    (common, _), *_ = most.most_common(1)
    group = next((one for one, types in TYPES.items() if kind in types), None)
    if group is None or common not in TYPES[group]:
        return []
    if group is not Group.FLOAT32:
        return [Workload(name, group, model, pools)]
    exact = replace(model, relax_computation_float32_to_float16=False)
    relaxed = replace(model, relax_computation_float32_to_float16=True)
    return [
        Workload(name, Group.FLOAT32, exact, pools),
        Workload(name, Group.RELAXED, relaxed, pools),
    ]


def built_in_workloads() -> list[Workload]:
    """Built-in networks of every group, without files; those of products have more than 1 MiB of weights."""
    found = [
        workload
        for precision in Precision
        for workload in workloads_of("digits", build_network(precision))
    ]
    for kind in (_T.TENSOR_FLOAT32, _T.TENSOR_QUANT8_ASYMM, _T.TENSOR_FLOAT16):
        found += workloads_of("products", _products(kind))
    found += workloads_of("arithmetic", _arithmetic())
    found += workloads_of("logic", _logic())
    return [*found, Workload("boxes", Group.QUANT16, _boxes())]


def _products(kind: OperandType) -> Model:
    """Three fully connected layers of 768 units: 1.7 MiB of weights in 8 bits."""
    units, rng, builder = 768, np.random.default_rng(7), ModelBuilder()
    # Quantised: 8-bit weights around 0, and sums that fit the output's scale.
    scales: dict[str, tuple[float, int]] = dict.fromkeys(("data", "weights", "bias"), (0.0, 0))
    bias_kind = kind
    weights: Array = rng.normal(0, 0.03, (3, units, units))
    if kind == _T.TENSOR_QUANT8_ASYMM:
        scales = {"data": (0.05, 128), "weights": (0.001, 128), "bias": (0.05 * 0.001, 0)}
        bias_kind, weights = _T.TENSOR_INT32, rng.integers(0, 256, weights.shape)
    source = builder.input(kind, (1, units), *scales["data"])
    for layer, values in enumerate(weights):
        make = builder.output if layer == len(weights) - 1 else builder.temporary
        target = make(kind, (1, units), *scales["data"])
        operands = [
            source,
            builder.constant(kind, values, *scales["weights"]),
            builder.constant(bias_kind, np.zeros(units), *scales["bias"]),
            builder.scalar(int(FusedActivationFunc.RELU)),
        ]
        builder.operation(OperationType.FULLY_CONNECTED, operands, [target])
        source = target
    return builder.build()


def _arithmetic() -> Model:
    """Sums, products and maxima of 65,536 integers each."""
    kind, extents, builder = _T.TENSOR_INT32, (256, 256), ModelBuilder()
    x, y = builder.input(kind, extents), builder.input(kind, extents)
    total, product = builder.temporary(kind, extents), builder.temporary(kind, extents)
    builder.operation(OperationType.ADD, [x, y, builder.scalar(0)], [total])
    builder.operation(OperationType.MUL, [total, y, builder.scalar(0)], [product])
    builder.operation(OperationType.MAXIMUM, [product, x], [builder.output(kind, extents)])
    return builder.build()


def _logic() -> Model:
    """Three operations on 65,536 truth values each."""
    kind, extents, builder = _T.TENSOR_BOOL8, (256, 256), ModelBuilder()
    x, y = builder.input(kind, extents), builder.input(kind, extents)
    both, none = builder.temporary(kind, extents), builder.temporary(kind, extents)
    builder.operation(OperationType.LOGICAL_AND, [x, y], [both])
    builder.operation(OperationType.LOGICAL_NOT, [both], [none])
    builder.operation(OperationType.LOGICAL_OR, [none, x], [builder.output(kind, extents)])
    return builder.build()


def _boxes() -> Model:
    """Moves of 1,024 boxes: one of the few operations whose first input has 16 bits."""
    count, builder = 1024, ModelBuilder()
    corners = np.tile([80, 80, 800, 800], (count, 1))  # 10 to 100 pixels, in eighths
    roi = builder.constant(_T.TENSOR_QUANT16_ASYMM, corners, 0.125)
    deltas = builder.input(_T.TENSOR_QUANT8_ASYMM, (count, 16), 0.05, 128)
    batches = builder.constant(_T.TENSOR_INT32, np.zeros(count))
    image = builder.constant(_T.TENSOR_QUANT16_ASYMM, [[4096, 4096]], 0.125)
    target = builder.output(_T.TENSOR_QUANT16_ASYMM, (count, 16), 0.125)
    operation = OperationType.AXIS_ALIGNED_BBOX_TRANSFORM
    builder.operation(operation, [roi, deltas, batches, image], [target])
    return builder.build()


def workloads_in(folder: Path, longest: int) -> list[Workload]:
    """The networks of a folder's .tflite files up to `longest` bytes; none if they cannot be read here."""
    if find_spec("ai_edge_litert") is None:
        return []
    found: list[Workload] = []
    for path in sorted(folder.glob("*.tflite")):
        if path.stat().st_size <= longest:
            network = load(path)
            found += workloads_of(path.stem, network.model, network.pools)
    return found


def measure(device: Device, reference: Device, workload: Workload, rounds: int) -> GroupTimes:
    """Run one workload on both devices, in turns.

    Args:
        device: the device to measure.
        reference: a driver of the reference executor.
        workload: a workload that both can run.
        rounds: turns of each; fewer if they take long.

    Raises:
        NnburstError: a device cannot run it.
    """
    with _Contestant.of(device, workload) as one, _Contestant.of(reference, workload) as other:
        pairs: list[tuple[_Block, _Block]] = []
        late = time.perf_counter() + _LONGEST
        while len(pairs) < rounds and (len(pairs) < _FEWEST_ROUNDS or time.perf_counter() < late):
            pairs.append((one.block(), other.block()))
    seconds = [(a.seconds, b.seconds) for a, b in pairs]
    return GroupTimes(
        workload.name,
        workload.group,
        statistics.median(a for a, _ in seconds) * 1e3,
        statistics.median(b for _, b in seconds) * 1e3,
        statistics.median(a / b for a, b in seconds),
        _power(pairs),
    )


def summary(found: Sequence[GroupTimes]) -> dict[Group, PerformanceInfo]:
    """For each measured group, the geometric means over its workloads."""
    groups: dict[Group, PerformanceInfo] = {}
    for group in Group:
        of_group = [m for m in found if m.group is group]
        if of_group:
            groups[group] = PerformanceInfo(
                _mean(m.exec_time for m in of_group), _mean(m.power_usage for m in of_group)
            )
    return groups


def as_file(
    groups: Mapping[Group, PerformanceInfo], version_string: str, measured: dict[str, Any]
) -> CapabilitiesFile:
    """Make the file of the capabilities that drivers of this version will report.

    Raises:
        InvalidArgument: a group was not measured.
    """
    missing = [group.value for group in Group if group not in groups]
    if missing:
        raise InvalidArgument(f"workloads: unknown {', '.join(missing)}")
    as_good = PerformanceInfo(1.0, 1.0)
    operands = {
        _T(entry.type).name: entry.info for entry in non_extension_operand_performance(as_good)
    }
    for group, types in TYPES.items():
        operands |= dict.fromkeys((kind.name for kind in types), groups[group])
    relaxed = groups[Group.RELAXED]
    return CapabilitiesFile(
        operands, relaxed, relaxed, version_string=version_string, measured=measured
    )


class _Block(NamedTuple):
    """A block's elapsed seconds, and the seconds of the driver's processor time."""

    total: float
    processor: float
    runs: int

    @property
    def seconds(self) -> float:
        """Seconds of one run."""
        return self.total / self.runs


class _Contestant:
    """A workload in one driver."""

    def __init__(self, pid: int, bound: BoundRequest) -> None:
        self._clock = (~pid << 3) | 2  # clock_getcpuclockid(3): the processor time of a process
        self._bound = bound
        bound.run(timeout=_PATIENCE)
        started = time.perf_counter()
        bound.run(timeout=_PATIENCE)
        took = time.perf_counter() - started
        self._count = min(max(round(_BLOCK / took), 1), _MOST_RUNS)

    @classmethod
    @contextmanager
    def of(cls, device: Device, workload: Workload) -> Iterator[_Contestant]:
        """Prepare and bind the workload, and run it once."""
        with (
            device.prepare(workload, num_threads=1) as prepared,
            prepared.open_burst() as burst,
        ):
            bound = burst.bind()
            rng = np.random.default_rng(20)
            for array in bound.inputs:
                if array is not None:
                    array[...] = _random(rng, array)
            yield cls(device.pid, bound)

    def block(self) -> _Block:
        """Run the workload as often as fits into a block."""
        used, started = time.clock_gettime(self._clock), time.perf_counter()
        for _ in range(self._count):
            self._bound.run(timeout=_PATIENCE)
        took = time.perf_counter() - started
        return _Block(took, time.clock_gettime(self._clock) - used, self._count)


def _power(pairs: Sequence[tuple[_Block, _Block]]) -> float:
    """Ratio of the processor times of a run."""
    used = [sum(block.processor for block in side) for side in zip(*pairs, strict=True)]
    runs = [sum(block.runs for block in side) for side in zip(*pairs, strict=True)]
    if min(used) < _COARSEST:
        return float(statistics.median(a.seconds / b.seconds for a, b in pairs))
    return float(used[0] * runs[1] / (used[1] * runs[0]))


def _random(rng: np.random.Generator, like: Array) -> Array:
    made = (
        rng.standard_normal(like.shape)
        if like.dtype.kind == "f"
        else rng.integers(0, 100, like.shape)
    )
    return np.asarray(made, like.dtype)


def _mean(ratios: Iterable[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, ratios)))
