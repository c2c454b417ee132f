"""An executor that takes whole ONNX graphs and computes nothing: its results show what has run."""

from __future__ import annotations

from nnburst.executor.null import NullExecutor
from nnburst.hal.extensions import Extension
from nnburst.hal.whole_graph import ONNX, described


class Blank(NullExecutor):
    """Leaves outputs as they are."""

    name = "blank"

    @property
    def extensions(self) -> tuple[Extension, ...]:
        """The extension for whole ONNX graphs."""
        return (described(ONNX),)
