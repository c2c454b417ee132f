"""The profiles of stress tests: which networks clients execute, and for how long."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from nnburst.hal.enums import OperandType
from nnburst.hal.errors import DeadObject, MissedDeadline, ResourceExhausted
from nnburst.hal.model import DTYPES
from nnburst.importer.imported_model import ImportedModel
from nnburst.importer.load import load
from nnburst.testing.faults.activities import sum_model, summands

INFERENCE: Final = "inference"
LOADING: Final = "loading"
MAPPED: Final = "mapped"
DEGRADATION: Final = "degradation"
#: Random graphs by their size (`random_graphs.SIZES`), prepared and executed or prepared only.
GRAPHS: Final = {"wide-graphs": "wide", "long-graphs": "long"}
GRAPHS_LOADED: Final = {"wide-graphs-loaded": "wide", "long-graphs-loaded": "long"}


@dataclass(frozen=True, slots=True)
class Profile:
    """Clients of one kind.

    Attributes:
        processes: at once; one that has ended is followed by another.
        threads: of each.
        work: the work of each thread.
        killed: percent of the processes that are killed between a quarter and a half of their life.
        what: a description.
    """

    processes: int
    threads: int
    work: str
    killed: int
    what: str


PROFILES: Final = {
    "parallel": Profile(1, 8, INFERENCE, 0, "8 threads infer"),
    "parallel-12": Profile(1, 12, INFERENCE, 0, "12 threads infer"),
    "inference": Profile(1, 1, INFERENCE, 0, "one thread infers"),
    "loading": Profile(1, 1, LOADING, 0, "one thread prepares"),
    "early-termination": Profile(1, 4, LOADING, 100, "4 threads prepare and are killed"),
    "multi-process": Profile(6, 10, INFERENCE, 0, "6 × 10 threads infer"),
    "multi-process-80": Profile(6, 10, INFERENCE, 80, "the same, 80 % of clients killed"),
    "multi-process-loading": Profile(6, 10, LOADING, 0, "6 × 10 threads prepare"),
    "multi-process-loading-50": Profile(6, 10, LOADING, 50, "the same, 50 % of clients killed"),
    "multi-process-loading-100": Profile(6, 10, LOADING, 100, "the same, all clients killed"),
    "mapped-models": Profile(1, 4, MAPPED, 0, "4 threads map a model's memory anew and prepare it"),
    "random-graphs": Profile(
        1, 4, "wide-graphs", 0, "4 threads execute random graphs of 10 operations, extents to 1,000"
    ),
    "random-graphs-long": Profile(
        1, 4, "long-graphs", 0, "the same with 600 operations, extents to 10"
    ),
    "random-graphs-loading": Profile(
        1, 4, "wide-graphs-loaded", 0, "4 threads prepare random graphs of 10 operations"
    ),
    "random-graphs-long-loading": Profile(
        1, 4, "long-graphs-loaded", 0, "the same with 600 operations"
    ),
    "degradation": Profile(
        1, 1, DEGRADATION, 0, "one thread infers, alone and beside one that prepares every 20 ms"
    ),
}


#: Seconds after which a call counts as a hang.
PATIENCE: Final = 30.0
SUCCESS, REFUSED, FAILURE, CRASH, HANG, WRONG = (
    "success", "refused", "failure", "crash", "hang", "wrong result",
)  # fmt: skip
#: Outcomes that must not happen.
BAD: Final = (FAILURE, CRASH, HANG, WRONG)


class WrongAnswer(Exception):
    """The same inputs gave other bits than before."""


class StressNetwork:
    """A network with inputs, whose results stay the same."""

    def __init__(self, path: str = "") -> None:
        """Read a file, or add two tensors."""
        self.path = path
        self.model: Any = load(Path(path)) if path else sum_model()
        main = (self.model.model if isinstance(self.model, ImportedModel) else self.model).main
        random = np.random.default_rng(7)
        self.inputs: list[Any] = summands(1.0)
        if path:
            self.inputs = [
                random.integers(0, 2, o.dimensions).astype(DTYPES[OperandType(o.type)])
                for o in (main.operands[i] for i in main.input_indexes)
            ]
        self._expected: list[Any] | None = None

    def check(self, outputs: list[Any]) -> None:
        """Compare with the first results.

        Raises:
            WrongAnswer: they differ.
        """
        if self._expected is None:
            self._expected = [np.array(output) for output in outputs]
        pairs = zip(outputs, self._expected, strict=True)
        if not all(np.array_equal(mine, first, equal_nan=True) for mine, first in pairs):
            raise WrongAnswer


def message_of(error: BaseException) -> str:
    """An error in words, cut."""
    return f"{type(error).__name__}: {error}"[:300]


def outcome_of(error: BaseException) -> str:
    """The outcome that an error counts as."""
    if isinstance(error, WrongAnswer):
        return WRONG
    if isinstance(error, DeadObject):
        return CRASH
    if isinstance(error, MissedDeadline):
        return HANG
    return REFUSED if isinstance(error, ResourceExhausted) else FAILURE
