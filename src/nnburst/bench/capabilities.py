"""Measures how fast a device is beside the reference executor, by kinds of operands, for getCapabilities.

Each workload runs in a driver of the device and in one of the reference executor, in turns, with one thread.
`exec_time` is the ratio of the durations within a round; `power_usage` that of the processor time which the
two drivers used: energy itself is not measured here.
"""

from __future__ import annotations

import math
import statistics
import time
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
from nnburst.driver.model.device import CapabilitiesFile
from nnburst.hal.enums import OperandType
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import Model
from nnburst.hal.types import PerformanceInfo, non_extension_operand_performance
from nnburst.importer.load import load

Array = npt.NDArray[Any]
_T = OperandType

#: Seconds that a block should last, and the most runs in it.
_BLOCK: Final = 0.02
_MOST_RUNS: Final = 1000
#: Seconds that one run may take.
_PATIENCE: Final = 60.0
#: Seconds of processor time below which a clock that only counts a scheduler's ticks is too coarse.
_COARSEST: Final = 0.05


class Group(Enum):
    """Kinds of workloads with capabilities of their own."""

    FLOAT32 = "float32"
    RELAXED = "relaxed float32"
    QUANT8 = "quant8"


#: Operands of each group; types of no group are not measured and stay at 1.
TYPES: Final[dict[Group, tuple[OperandType, ...]]] = {
    Group.FLOAT32: (_T.FLOAT32, _T.TENSOR_FLOAT32),
    Group.RELAXED: (),
    Group.QUANT8: (
        _T.TENSOR_QUANT8_ASYMM,
        _T.TENSOR_QUANT8_ASYMM_SIGNED,
        _T.TENSOR_QUANT8_SYMM,
        _T.TENSOR_QUANT8_SYMM_PER_CHANNEL,
    ),
}


@dataclass(frozen=True)
class Workload:
    """A network to run. Like the result of `nnburst.load`, it can be prepared as it is.

    Attributes:
        name: for people.
        group: the kind of operands that it stands for.
        model: the network.
        pools: of the model.
    """

    name: str
    group: Group
    model: Model
    pools: Sequence[Any] = ()


class GroupTimes(NamedTuple):
    """The measurement of one workload.

    Attributes:
        name: the workload's.
        group: the workload's.
        device_ms: of a run, median of the rounds.
        reference_ms: the same by the reference executor.
        exec_time: median over the rounds of their ratio.
        power_usage: ratio of the processor times of all rounds; `exec_time` if the clock is too coarse.
    """

    name: str
    group: Group
    device_ms: float
    reference_ms: float
    exec_time: float
    power_usage: float


def workloads_of(name: str, model: Model, pools: Sequence[Any] = ()) -> list[Workload]:
    """A network in the groups that it stands for, by the type of its first input; none for another type."""
    kind = model.main.operands[model.main.input_indexes[0]].type
    if kind in TYPES[Group.QUANT8]:
        return [Workload(name, Group.QUANT8, model, pools)]
    if kind != _T.TENSOR_FLOAT32:
        return []
    exact = replace(model, relax_computation_float32_to_float16=False)
    relaxed = replace(model, relax_computation_float32_to_float16=True)
    return [
        Workload(name, Group.FLOAT32, exact, pools),
        Workload(name, Group.RELAXED, relaxed, pools),
    ]


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
    """Run one workload on both, in turns.

    Args:
        device: the one to measure.
        reference: a driver of the reference executor.
        workload: that both can run.
        rounds: turns of each.

    Raises:
        NnburstError: one of them cannot.
    """
    with _Contestant.of(device, workload) as one, _Contestant.of(reference, workload) as other:
        pairs = [(one.block(), other.block()) for _ in range(rounds)]
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
    """Of each group that was measured, the geometric means over its workloads."""
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
    """The file of capabilities that drivers of this version report from now on.

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
    """The seconds of a block: by the clock, and of the driver's processor time."""

    total: float
    processor: float
    runs: int

    @property
    def seconds(self) -> float:
        """Of one run."""
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
        """Prepare, bind and try it."""
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
        """Run it as often as fits into a block."""
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
