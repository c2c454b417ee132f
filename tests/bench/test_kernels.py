from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnx", reason="makes the files")
pytest.importorskip("onnxruntime", reason="an engine that is compared")
pytest.importorskip("ai_edge_litert", reason="an engine that is compared")

from nnburst.bench.network.kernels import convolutions, shortest


@pytest.mark.parametrize("groups", [1, 4])
def test_both_engines_compute_the_convolutions_that_are_compared(groups: int) -> None:
    x = np.random.default_rng(0).standard_normal((1, 4, 6, 6)).astype(np.float32)
    best = shortest(convolutions(4, 6, 3, groups), x, longest_ns=0)
    assert sorted(best) == ["litert", "onnxruntime"]
    assert all(0 < us < float("inf") for us in best.values())
