from __future__ import annotations

import numpy as np

from nnburst.bench.network.onnx import Distances


def test_a_difference_counts_by_the_outputs_range_over_all_inputs() -> None:
    distances = Distances()
    distances.add([np.array([1.1e-5])], [np.array([1e-5])])
    distances.add([np.array([0.5])], [np.array([0.5])])
    np.testing.assert_allclose(distances.in_parts_of_range(), 2e-6, rtol=1e-4)
    np.testing.assert_allclose(distances.at_worst, 0.1)


def test_each_output_has_its_own_range() -> None:
    distances = Distances()
    for scale in (1.0, 2.0):
        wanted = [np.array([0.0, scale]), np.array([0.0, 1000 * scale])]
        distances.add([wanted[0] + 0.02, wanted[1]], wanted)
    np.testing.assert_allclose(distances.in_parts_of_range(), 0.01)


def test_a_difference_of_an_output_that_never_changes_counts_by_its_size() -> None:
    distances = Distances()
    for _ in range(2):
        distances.add([np.array([3.0, 2.0])], [np.array([2.0, 2.0])])
    np.testing.assert_allclose(distances.in_parts_of_range(), 0.5)
