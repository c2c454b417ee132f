"""What clients of a stress test execute, and what becomes of a call."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np

from nnburst.hal.enums import OperandType
from nnburst.hal.errors import DeadObject, MissedDeadline, ResourceExhausted
from nnburst.hal.operand_types import DTYPES
from nnburst.importer.imported_model import ImportedModel
from nnburst.importer.load import load
from nnburst.testing.faults.activities import sum_model, summands

#: Seconds after which a call counts as a hang.
PATIENCE: Final = 30.0
SUCCESS, REFUSED, FAILURE, CRASH, HANG, WRONG = (
    "success", "refused", "failure", "crash", "hang", "wrong result",
)  # fmt: skip
#: What must not happen.
BAD: Final = (FAILURE, CRASH, HANG, WRONG)


class WrongAnswer(Exception):
    """The same inputs gave other bits than before."""


class Network:
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
    """What an error counts as."""
    if isinstance(error, WrongAnswer):
        return WRONG
    if isinstance(error, DeadObject):
        return CRASH
    if isinstance(error, MissedDeadline):
        return HANG
    return REFUSED if isinstance(error, ResourceExhausted) else FAILURE
