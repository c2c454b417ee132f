from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnburst
from importer.onnx.graphs import Array, model, node, normal, value
from importer.tflite.running import Runner
from nnburst.hal.errors import InvalidArgument


def pool_with_indices(shape: tuple[int, ...], out: tuple[int, ...], **attributes: Any) -> Any:
    return model(
        [node("MaxPool", "x", "y i", **attributes)],
        [value("x", "f4", shape)],
        [value("y", "f4", out), value("i", "i8", out)],
        {},
    )


def found(made: Any, x: Array) -> list[Array]:
    return Runner(nnburst.load(made.SerializeToString())).run([x])


def elements_at(x: Array, indices: Array, by_column: bool = False) -> Array:
    flat = x.swapaxes(-1, -2) if by_column else x
    return np.ascontiguousarray(flat).reshape(-1)[indices]


@pytest.mark.parametrize(
    ("out", "attributes"),
    [
        ((2, 3, 3, 4), {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ((2, 3, 6, 8), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
        ((2, 3, 4, 6), {"kernel_shape": [2, 2], "dilations": [2, 2]}),
        ((2, 3, 3, 3), {"kernel_shape": [3, 2], "strides": [2, 3], "ceil_mode": 1}),
    ],
)
@pytest.mark.parametrize("by_column", [False, True])
def test_indices_of_a_max_pool_lead_to_the_largest_elements(
    out: tuple[int, ...], attributes: dict[str, Any], by_column: bool
) -> None:
    made = pool_with_indices((2, 3, 6, 8), out, storage_order=int(by_column), **attributes)
    x = normal(2, 3, 6, 8)
    largest, indices = found(made, x)
    np.testing.assert_array_equal(elements_at(x, indices, by_column), largest)


def test_the_index_of_equal_elements_is_the_first_one() -> None:
    made = pool_with_indices((1, 1, 4, 4), (1, 1, 2, 2), kernel_shape=[2, 2], strides=[2, 2])
    _, indices = found(made, np.ones((1, 1, 4, 4), np.float32))
    assert indices.reshape(-1).tolist() == [0, 2, 8, 10]


def test_indices_of_a_signal_count_its_elements() -> None:
    made = pool_with_indices((2, 3, 9), (2, 3, 4), kernel_shape=[3], strides=[2])
    x = normal(2, 3, 9)
    largest, indices = found(made, x)
    np.testing.assert_array_equal(elements_at(x, indices), largest)
    assert (indices.reshape(6, 4) // 9 == np.arange(6)[:, None]).all()


def test_indices_of_a_large_window_are_refused_with_their_bound() -> None:
    made = pool_with_indices((1, 1, 12, 12), (1, 1, 4, 4), kernel_shape=[9, 9])
    with pytest.raises(InvalidArgument, match="expected at most 64 elements"):
        nnburst.load(made.SerializeToString(), as_graph=False)


@pytest.mark.parametrize(
    "how",
    [
        {"auto_pad": "SAME_UPPER", "strides": [1], "dilations": [2], "kernel_shape": [3]},
        {"auto_pad": "SAME_LOWER", "strides": [3], "kernel_shape": [1]},
        {"auto_pad": "VALID", "strides": [2], "ceil_mode": 1, "kernel_shape": [3]},
    ],
)
def test_pools_on_which_onnxruntime_and_the_standard_differ_become_a_graph(
    how: dict[str, Any],
) -> None:
    made = model(
        [node("MaxPool", "x", "y", **how)],
        [value("x", "f4", (1, 1, 6))],
        [value("y", "f4", None)],
    )
    with pytest.raises(InvalidArgument, match="auto_pad is"):
        nnburst.load(made.SerializeToString(), as_graph=False)
