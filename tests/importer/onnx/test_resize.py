from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnburst
from importer.onnx.graphs import Array, model, node, normal, value
from importer.tflite.running import Runner
from nnburst.hal.errors import InvalidArgument


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


def by_onnxruntime(made: Any, x: Array) -> Array:
    """The result of onnxruntime, whose coordinates are float32."""
    ort = pytest.importorskip("onnxruntime")
    session = ort.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x})[0])


@pytest.mark.parametrize(
    ("extent", "size", "how"),
    [
        (5, 13, {"mode": "linear"}),  # 5 * float32(2.6) is less than 13, and 13 as float32
        (5, 3, {"coordinate_transformation_mode": "half_pixel", "nearest_mode": "floor"}),
        (6, 9, {"coordinate_transformation_mode": "half_pixel", "nearest_mode": "floor"}),
        (42, 48, {"nearest_mode": "round_prefer_ceil"}),
        (9, 42, {"nearest_mode": "round_prefer_floor"}),
    ],
)
@pytest.mark.parametrize("by", ["scales", "sizes"])
def test_extents_and_coordinates_are_those_of_float32(
    extent: int, size: int, how: dict[str, Any], by: str
) -> None:
    x = normal(1, 1, extent, 1)
    where = {"coordinate_transformation_mode": "asymmetric", **how}
    scale = np.float32(size) / np.float32(extent)
    constants = {"scales": np.array([1, 1, scale, 1], np.float32)}
    if by == "sizes":
        constants = {"sizes": np.array([1, 1, size, 1])}
    made = model(
        [node("Resize", "x - scales" if by == "scales" else "x - - sizes", "y", **where)],
        [value("x", "f4", x.shape)],
        [value("y", "f4", None)],
        constants,
    )
    (found,) = Runner(nnburst.load(made.SerializeToString(), as_graph=False)).run([x])
    expected = by_onnxruntime(made, x)
    assert found.shape == expected.shape == (1, 1, size, 1)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("scale", [0.5, 0.6, 0.75, 1.5])
def test_a_smaller_image_of_opset_10_takes_the_next_element(scale: float) -> None:
    x = normal(1, 1, 4, 5)
    made = model(
        [node("Resize", "x scales", "y", mode="nearest")],
        [value("x", "f4", x.shape)],
        [value("y", "f4", None)],
        {"scales": np.array([1, 1, scale, scale], np.float32)},
        opset=10,
    )
    (found,) = Runner(nnburst.load(made.SerializeToString(), as_graph=False)).run([x])
    np.testing.assert_array_equal(found, by_onnxruntime(made, x))


@pytest.mark.parametrize(
    ("kind", "mode", "size"),
    [("i4", "linear", 8), ("i4", "linear", 7), ("u1", "linear", 7), ("i1", "cubic", 8)],
)
def test_integers_between_elements_are_refused(kind: str, mode: str, size: int) -> None:
    """NNAPI's operations on them would weigh by integers, or do not take them."""
    made = model(
        [node("Resize", "x - scales", "y", mode=mode)],
        [value("x", kind, (1, 1, 4, 1))],
        [value("y", kind, None)],
        {"scales": np.array([1, 1, size / 4 + 0.01, 1], np.float32)},
    )  # fmt: skip
    with pytest.raises(InvalidArgument, match=r"cannot be imported: input 0 is u?int\d+"):
        nnburst.load(made.SerializeToString(), as_graph=False)


def test_an_image_of_small_integers_is_interpolated_to_the_nearest_one() -> None:
    made = model(
        [node("Resize", "x - scales", "y", mode="linear")],
        [value("x", "u1", (1, 1, 2, 1))],
        [value("y", "u1", None)],
        {"scales": np.array([1, 1, 2, 1], np.float32)},
    )
    x = np.array([0, 200], np.uint8).reshape(1, 1, 2, 1)
    (found,) = Runner(nnburst.load(made.SerializeToString(), as_graph=False)).run([x])
    assert found.ravel().tolist() == [0, 50, 150, 200]
