"""What each executor makes of a model: which operations it runs, in how many partitions, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nnburst.driver.executors import GROUP, find_executor
from nnburst.executor.built_in import BUILT_IN
from nnburst.hal.enums import operation_name
from nnburst.hal.errors import InvalidArgument, NnburstError
from nnburst.hal.model import Model

_ENGINE: Final = "LiteRT"
_REFERENCE: Final = "the reference executor"
#: Reasons shown for one partition; the rest is counted.
_REASONS: Final = 3


@dataclass(frozen=True, slots=True)
class Partition:
    """Consecutive operations that are run as one.

    Attributes:
        first: number of its first operation.
        last: number of its last operation.
        by: who runs it.
        why: why there, and why it ends where it ends.
    """

    first: int
    last: int
    by: str
    why: str

    def as_json(self) -> dict[str, Any]:
        """As `--json` writes it."""
        return {"first": self.first, "last": self.last, "by": self.by, "why": self.why}


@dataclass(frozen=True, slots=True)
class Placement:
    """What one executor makes of a model.

    Attributes:
        executor: its name.
        supported: for each operation of the main subgraph, whether it can run it.
        partitions: none if it does not run the model.
        problem: why it does not run the model, or "".
        reasons: why not, for each operation that it does not run, by its number.
    """

    executor: str
    supported: tuple[bool, ...]
    partitions: tuple[Partition, ...]
    problem: str = ""
    reasons: Mapping[int, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """As `--json` writes it."""
        return {
            "executor": self.executor,
            "supported": sum(self.supported),
            "unsupported": [n for n, able in enumerate(self.supported) if not able],
            "partitions": [partition.as_json() for partition in self.partitions],
            "problem": self.problem,
        }


def known_executors() -> list[str]:
    """Names of the executors that come with nnburst, and of those of other packages."""
    others = {point.name for point in entry_points(group=GROUP)} - BUILT_IN.keys()
    return [*sorted(BUILT_IN), *sorted(others)]


def place(name: str, model: Model, pools: Sequence[npt.NDArray[np.uint8]]) -> Placement:
    """What executor `name` makes of a valid model. The model is not compiled.

    Raises:
        DeviceUnavailable: there is no such executor, or it cannot be imported.
    """
    factory = find_executor(name)
    try:
        supported = tuple(factory().supported(model))
    except NnburstError as error:  # the package that it needs is not installed
        return Placement(name, (), (), str(error))
    if not all(supported):
        reasons = _unsupported(model, supported)
        if name == "onnxruntime":
            reasons |= _not_lowered(model)
        return Placement(name, supported, (), _some([*reasons.values()]), reasons)
    if name == "litert":
        return Placement(name, supported, tuple(_engine_partitions(model, pools)))
    return Placement(name, supported, (_whole(model, name),))


def _whole(model: Model, by: str) -> Partition:
    count = len(model.main.operations)
    return Partition(0, count - 1, by, "it supports every operation")


def _unsupported(model: Model, supported: Sequence[bool]) -> dict[int, str]:
    """Why each operation that is not supported is not, by its number."""
    from nnburst.executor.graph.plan import match_operation

    reasons = {}
    for number, able in enumerate(supported):
        if able:
            continue
        operation = model.main.operations[number]
        try:
            match_operation(model.main, operation)
            why = f"operation {number} ({operation_name(operation.type)}) is not supported"
        except (InvalidArgument, IndexError) as error:
            why = f"operation {number} is not supported: {error}"
        reasons[number] = why
    return reasons


def _not_lowered(model: Model) -> dict[int, str]:
    """Why the onnxruntime executor does not run an operation, by its number."""
    from nnburst.executor.onnxruntime.network import survey

    refusals = survey(model).refusals
    return {number: _refusals(model, refusals, [number])[0] for number in refusals}


def _engine_partitions(model: Model, pools: Sequence[npt.NDArray[np.uint8]]) -> Sequence[Partition]:
    """How the litert executor cuts a model between the engine and the reference executor."""
    from nnburst.executor.litert.network import survey
    from nnburst.executor.litert.split import cut

    found = survey(model, pools)
    count = len(model.main.operations)
    if found.network is not None:
        return [Partition(0, count - 1, _ENGINE, "every operation can be lowered")]
    if not any(found.lowered[n] for n in found.static):
        reasons = _some(_refusals(model, found.refusals, range(count)))
        return [Partition(0, count - 1, _REFERENCE, reasons)]
    partitions = []
    for part in cut(model, found):
        numbers, first = part.numbers, part.numbers[0]
        why = "these can be lowered"
        if not part.lowered:
            why = _some(_refusals(model, found.refusals, numbers))
        if not part.static:
            why = f"from operation {first} on, extents depend on data"
        by = _ENGINE if part.lowered else _REFERENCE
        partitions.append(Partition(first, numbers[-1], by, why))
    return partitions


def _refusals(model: Model, refusals: Mapping[int, str], numbers: Sequence[int]) -> list[str]:
    operations = model.main.operations
    return [
        f"{n} {operation_name(operations[n].type)}: {refusals[n]}" for n in numbers if n in refusals
    ]


def _some(reasons: Sequence[str]) -> str:
    shown = "; ".join(reasons[:_REASONS])
    left = len(reasons) - _REASONS
    return f"{shown}; and {left} more" if left > 0 else shown
