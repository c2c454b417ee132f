"""A plan as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from nnburst.runtime.planning.drawing.rows import plan_rows, text_table
from nnburst.runtime.planning.models.finished_model import FinishedModel
from nnburst.runtime.planning.plan import Plan

_HEADINGS: Final = (
    "step",
    "device",
    "operations",
    "inputs",
    "outputs",
    "temporaries",
    "bytes across",
)
_NO_TIMES: Final[Mapping[int, float]] = {}


def plan_table(
    plan: Plan,
    source: FinishedModel,
    *,
    estimated: Mapping[int, float | str] = _NO_TIMES,
    measured: Mapping[int, float] = _NO_TIMES,
) -> str:
    """A plan as a table, one line a step.

    Args:
        plan: the plan.
        source: the model that it was made for.
        estimated: seconds that steps should take, or a text about it, by index; as many as are known.
        measured: seconds that steps have taken, by index; as many as are known.

    Returns:
        Lines without a line end behind the last. "bytes across" are those of the values that other steps
        write or read; "+ ?" stands for sizes that only an execution finds out.
    """
    lines = []
    for row in plan_rows(plan, source):
        counts = [str(n) for n in (row.inputs, row.outputs, row.temporaries)]
        times = [_milliseconds(estimated.get(row.step)), _milliseconds(measured.get(row.step))]
        lines.append(
            [str(row.step), row.device, row.operations, *counts, str(row.bytes_across), *times]
        )
    return text_table([*_HEADINGS, "estimated", "measured"], lines)


def _milliseconds(seconds: float | str | None) -> str:
    if isinstance(seconds, str):
        return seconds
    return "-" if seconds is None else f"{1e3 * seconds:.3f} ms"
