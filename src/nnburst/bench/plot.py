"""Draws latency distributions: a file, SVG or PNG by its name, or SVG for a page."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from nnburst.bench.rounds import Measured

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Colours of matplotlib's cycle.
_COLOURS: Final = 10
_DASHES: Final = ("solid", "dashed", "dotted", "dashdot")


def plot_distributions(measured: Sequence[Measured], path: Path) -> None:
    """Draw the share of exchanges that took at most so long, one line per case.

    Raises:
        ImportError: matplotlib is not installed (extra `cli`).
        OSError: the file cannot be written.
    """
    draw_distributions(measured).savefig(path)


def draw_distributions(
    measured: Sequence[Measured], size: tuple[float, float] = (9, 5.5)
) -> Figure:
    """The same as a figure; `size` in inches."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    axes = figure.add_subplot()
    for number, case in enumerate(measured):
        samples = np.sort(case.samples) / 1000
        shares = np.arange(1, len(samples) + 1) / len(samples) * 100
        axes.step(samples, shares, where="post", label=case.name, **line_of(number))
    axes.set_xscale("log")
    axes.set_xlabel("round trip, microseconds (one clock reading included)")
    axes.set_ylabel("exchanges that took at most so long, %")
    axes.grid(visible=True, which="both", alpha=0.3)
    axes.legend(fontsize="small", loc="lower right")
    return figure


def line_of(number: int) -> dict[str, Any]:
    """Colour and dash of a case: no two of the first forty are alike."""
    dash, colour = divmod(number, _COLOURS)
    return {"color": f"C{colour}", "linestyle": _DASHES[dash % len(_DASHES)]}


def as_svg(figure: Figure, title: str) -> str:
    """A figure as an SVG element for an HTML page, with a title that is read aloud.

    Names inside one element begin with `title`, so that several fit on a page.
    """
    from xml.sax.saxutils import escape

    import matplotlib as mpl

    written = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": title}):
        figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    _, _, element = written.getvalue().partition("<svg")
    word = re.sub(r"\W", "-", title)
    element = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{word}-", element)
    start, _, rest = element.partition(">")
    return f'<svg role="img"{start}><title>{escape(title)}</title>{rest}'
