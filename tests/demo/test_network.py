"""The demo network recognises digits it has not seen, in both precisions."""

from __future__ import annotations

from importlib.resources import files

import numpy as np
import pytest

from nnburst.demo.pictures import Precision, build_network, encode, load_split
from nnburst.executor.base import Argument
from nnburst.executor.reference.executor import ReferenceExecutor
from nnburst.hal.enums import ErrorStatus, OperationType

BOTH = pytest.mark.parametrize("precision", list(Precision))


def data_size(*names: str) -> int:
    """Bytes of shipped files."""
    return sum(len((files("nnburst.demo") / "data" / f"{name}.npz").read_bytes()) for name in names)


def classify(precision: Precision) -> np.ndarray:
    """Digits that the reference executor finds in the held-out images."""
    model = build_network(precision)
    inputs = encode(load_split().images, precision)
    prepared = ReferenceExecutor().prepare(model, [])
    image = np.zeros_like(inputs[0])
    scores = np.zeros((1, 10), inputs.dtype)
    execution = prepared.bind(
        [Argument(image.reshape(-1).view(np.uint8), image.shape)],
        [Argument(scores.reshape(-1).view(np.uint8), scores.shape)],
    )
    found = []
    for one in inputs:
        image[...] = one
        outcome = execution.run()
        assert outcome.status == ErrorStatus.NONE, outcome.message
        found.append(int(scores.argmax()))
    execution.close()
    prepared.close()
    return np.array(found)


@BOTH
def test_network_recognises_at_least_96_percent_of_held_out_digits(precision: Precision) -> None:
    assert (classify(precision) == load_split().labels).mean() >= 0.96


@BOTH
def test_reference_executor_supports_every_operation(precision: Precision) -> None:
    assert all(ReferenceExecutor().supported(build_network(precision)))


@BOTH
def test_network_is_made_of_the_operations_it_claims(precision: Precision) -> None:
    assert [operation.type for operation in build_network(precision).main.operations] == [
        OperationType.CONV_2D,
        OperationType.CONV_2D,
        OperationType.MAX_POOL_2D,
        OperationType.RESHAPE,
        OperationType.FULLY_CONNECTED,
        OperationType.SOFTMAX,
    ]


def test_both_sets_of_weights_stay_below_200_kb() -> None:
    assert data_size("float32", "quant8") < 200_000


def test_split_stays_below_40_kb() -> None:
    assert data_size("split") < 40_000


def test_split_holds_every_digit_in_its_range() -> None:
    images, labels = load_split()
    assert images.shape == (len(labels), 8, 8)
    assert images.dtype == labels.dtype == np.uint8
    assert images.max() == 16
    assert set(labels.tolist()) == set(range(10))


def test_quantised_bias_scale_is_the_product_that_nnapi_demands() -> None:
    model = build_network(Precision.QUANT8)
    for operation in model.main.operations:
        if operation.type in (OperationType.CONV_2D, OperationType.FULLY_CONNECTED):
            source, weights, bias = (model.main.operands[i] for i in operation.inputs[:3])
            assert bias.scale == pytest.approx(source.scale * weights.scale, rel=1e-6)
            assert bias.zero_point == 0
