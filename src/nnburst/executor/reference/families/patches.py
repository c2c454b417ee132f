"""Images with padding around them, and the patches that windows cut out of them.

Borders lie in scratch memory that other operations overwrite, so every run writes them again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nnburst.executor.graph.operation import Run
from nnburst.executor.graph.sliding_window import Window
from nnburst.executor.graph.tensor import Array
from nnburst.executor.graph.workspace import Workspace


def border(image: Array, rows: slice, columns: slice) -> list[Array]:
    """The cells of an NHWC image outside `rows` and `columns`, as views that do not overlap."""
    parts = [
        image[:, : rows.start],
        image[:, rows.stop :],
        image[:, rows, : columns.start],
        image[:, rows, columns.stop :],
    ]
    return [part for part in parts if part.size]


def padded(
    workspace: Workspace, image: Array, window: Window, dtype: np.dtype[Any], value: float
) -> tuple[Array, tuple[Run, ...]]:
    """An NHWC image with all cells that windows touch.

    Args:
        workspace: gives memory.
        image: NHWC view of the input.
        window: windows over it.
        dtype: of the padded copy.
        value: of padding cells.

    Returns:
        The image itself if nothing is padded (with its own dtype), else the copy, and what to
        call in each run to fill it.
    """
    if not window.pads:
        return image, ()
    height, width = window.height, window.width
    shape = (window.batches, height.padded, width.padded, window.channels)
    copy = workspace.array("padded", shape, dtype)
    (rows, used_rows), (columns, used_columns) = height.inside, width.inside
    source, target = image[:, used_rows, used_columns], copy[:, rows, columns]
    edges = border(copy, rows, columns)

    def run() -> None:
        for edge in edges:
            edge.fill(value)
        np.copyto(target, source, casting="unsafe")

    return copy, (run,)
