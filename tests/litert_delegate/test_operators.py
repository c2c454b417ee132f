"""Every operator that the delegate can write has the bits of the engine, options included."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed (extra 'litert')")

from client.service import Service
from litert_delegate.conftest import opened, operators, results, some_inputs
from nnburst import litert
from nnburst.testing.models.tflite_networks import NETWORKS

#: Networks none of whose nodes is claimed.
LEFT = {
    "EMBEDDING_LOOKUP-FLOAT32",
    "HASHTABLE_LOOKUP-FLOAT32",
    "LSTM-FLOAT32",
    "RNN-FLOAT32",
    "SHAPE-FLOAT32",
    "SVDF-FLOAT32",
    "UNIDIRECTIONAL_SEQUENCE_LSTM-FLOAT32",
    "UNIDIRECTIONAL_SEQUENCE_RNN-FLOAT32",
    "WHILE-FLOAT32",
}


#: One of each operator, with the first type of its inputs.
FIRST = list({name.partition("-")[0]: name for name in reversed(NETWORKS)}.values())


@pytest.mark.parametrize(
    ("names", "least"),
    [
        pytest.param(FIRST, 80, id="one-type"),
        pytest.param(list(NETWORKS), 200, id="every-type", marks=pytest.mark.campaign),
    ],
)
def test_networks_of_every_operator_have_the_bits_of_the_engine_itself(
    engine: Any, service: Service, names: list[str], least: int
) -> None:
    delegate = litert.load_delegate(device=service.address, num_threads=1)
    compared, left, other = 0, set(), []
    for name in names:
        network = NETWORKS[name]()
        expected = opened(engine, network)
        try:
            expected.allocate_tensors()
        except RuntimeError:
            continue  # the engine itself does not take it
        made = opened(engine, network, experimental_delegates=[delegate])
        made.allocate_tensors()
        values = some_inputs(expected, 0)
        if results(made, values) != results(expected, values):
            other.append(name)
        if "DELEGATE" not in operators(made):
            left.add(name)
        compared += 1
    assert not other
    assert left == LEFT & {*names}
    assert compared >= least
