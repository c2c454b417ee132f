from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnburst
from importer.onnx.graphs import Array, model, node, normal, value
from importer.tflite.running import Runner


def resized(x: Array, scales: list[float], out: tuple[int, ...], **attributes: Any) -> Array:
    """Resize by operations and by onnx's own evaluator, which must agree."""
    from onnx.reference import ReferenceEvaluator

    made = model(
        [node("Resize", "x roi scales", "y", **attributes)],
        [value("x", "f4", x.shape)],
        [value("y", "f4", out)],
        {"scales": np.array(scales, np.float32), "roi": np.zeros(0, np.float32)},
    )
    found = Runner(nnburst.load(made.SerializeToString())).run([x])[0]
    expected = ReferenceEvaluator(made).run(None, {"x": x})[0]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    return found


@pytest.mark.parametrize("where", ["half_pixel", "asymmetric", "align_corners"])
def test_a_cubic_resize_takes_four_neighbours(where: str) -> None:
    x = normal(1, 2, 4, 5)
    resized(x, [1, 1, 2, 3], (1, 2, 8, 15), mode="cubic", coordinate_transformation_mode=where)


def test_a_cubic_resize_can_leave_out_what_lies_outside() -> None:
    x = normal(1, 1, 4, 4)
    how = {"mode": "cubic", "cubic_coeff_a": -0.5}
    inside = resized(x, [1, 1, 2, 2], (1, 1, 8, 8), exclude_outside=1, **how)
    outside = resized(x, [1, 1, 2, 2], (1, 1, 8, 8), exclude_outside=0, **how)
    assert not np.allclose(inside, outside)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_a_scale_that_keeps_the_extent_still_moves_the_elements(mode: str) -> None:
    x = np.array([[[[0.0, 10.0, 20.0]]]], np.float32)
    how = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    found = resized(x, [1, 1, 1, 1.3], (1, 1, 1, 3), mode=mode, **how)
    assert not np.allclose(found, x)
