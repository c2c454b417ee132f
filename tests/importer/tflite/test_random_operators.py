"""Random networks of one operator: what loads by operations runs, and computes what LiteRT computes."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed (extra 'litert')")

import nnburst
from importer.tflite.random_operators import DRAWS, draw_network
from importer.tflite.running import Array, Peer, Runner, random_values
from nnburst.executor.built_in import litert
from nnburst.hal import environment


def is_near(found: Array, expected: Array) -> bool:
    """Whether results are equal but for rounding: one step of 8 bits, 1e-5 of real numbers."""
    apart = np.abs(found.astype(np.float64) - expected.reshape(found.shape))
    if expected.dtype.kind == "f":
        return bool(apart.max() <= 1e-5 * max(1.0, float(np.abs(expected).max())))
    return bool(apart.max() <= int(expected.dtype in (np.int8, np.uint8)))


@pytest.mark.counted
@pytest.mark.parametrize("operator", DRAWS)
def test_random_networks_of_one_operator_compute_what_litert_computes(operator: str) -> None:
    ran = 0
    for number in range(environment.EXAMPLES.read() // 2):
        seed = zlib.crc32(operator.encode()) + number
        content = draw_network(operator, seed)
        if content is None:
            continue
        try:
            imported = nnburst.load(content, as_graph=False)
        except nnburst.InvalidArgument:
            continue
        ran += 1
        peers, random = [Peer(content), Peer(content, fast=True)], np.random.default_rng(seed)
        for runner in (Runner(imported), Runner(imported, litert())):
            values = [random_values(array, random) for array in runner.inputs]
            found, *expected = [each.run(values) for each in (runner, *peers)]
            near = [all(map(is_near, found, each)) for each in expected]
            assert any(near), f"seed {seed}"
    assert ran
