"""A picture of the latency distributions, as SVG or PNG by the file's name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from nnburst.testing.bench.rounds import Measured


def plot_distributions(measured: Sequence[Measured], path: Path) -> None:
    """Draw the share of exchanges that took at most so long, one line per case.

    Raises:
        ImportError: matplotlib is not installed (extra `cli`).
        OSError: the file cannot be written.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5.5), layout="constrained")
    axes = figure.add_subplot()
    for case in measured:
        samples = np.sort(case.samples) / 1000
        shares = np.arange(1, len(samples) + 1) / len(samples) * 100
        axes.step(samples, shares, where="post", label=case.name)
    axes.set_xscale("log")
    axes.set_xlabel("round trip, microseconds (one clock reading included)")
    axes.set_ylabel("exchanges that took at most so long, %")
    axes.grid(visible=True, which="both", alpha=0.3)
    axes.legend(fontsize="small", loc="lower right")
    figure.savefig(path)
