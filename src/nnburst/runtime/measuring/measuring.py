"""Measuring: how placement by measurement goes about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from nnburst.runtime.measuring.cost_file import cost_directory
from nnburst.runtime.measuring.measured_placement import Progress


@dataclass(frozen=True, slots=True)
class Measuring:
    """How placement by measurement goes about it.

    Attributes:
        budget: seconds after which nothing new is timed.
        progress: called after each timed step with the number of steps timed so far, and of those expected.
        directory: where figures are kept for later measurements; None to keep nothing. By default
            `nnburst/costs` in the user's cache directory.
    """

    budget: float = 30.0
    progress: Progress | None = None
    directory: Path | None = field(default_factory=cost_directory)
