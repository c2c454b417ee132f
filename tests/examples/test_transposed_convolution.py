"""The example that lowers the transposed convolution with a bias, through a driver process."""

from __future__ import annotations

import importlib
import struct
from pathlib import Path

import numpy as np
import pytest

from shared_drivers import connect_to

pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed (extra 'litert')")

import nnburst
from nnburst.testing.models.tflite_builder import TfliteBuilder

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "transposed_convolution"
EXTENSION = "nnburst_transposed_convolution:TRANSPOSED_CONVOLUTION"

if not FOLDER.is_dir():
    pytest.skip("the examples are not part of what is installed", allow_module_level=True)


@pytest.fixture(autouse=True)
def findable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    importlib.invalidate_caches()


def network(padding: int, stride: int, options: bytes | None = None) -> tuple[bytes, np.ndarray]:
    """Pixels of 2 channels, 3 filters of 2×2; and the filters."""
    b, random = TfliteBuilder(), np.random.default_rng(1)
    side = 4 * stride if padding == 1 or stride == 2 else 5
    x, y = b.input("FLOAT32", (1, 4, 4, 2)), b.output("FLOAT32", (1, side, side, 3))
    filters = random.normal(size=(3, 2, 2, 2)).astype("<f4")
    bias = b.constant("FLOAT32", np.array([0.5, -1, 2], "<f4"))
    given = struct.pack("<iii", padding, stride, stride) if options is None else options
    inputs = [x, b.constant("FLOAT32", filters), bias]
    b.custom_operator("Convolution2DTransposeBias", inputs, [y], given)
    return b.finish(), filters


def plain(x: np.ndarray, filters: np.ndarray, stride: int) -> np.ndarray:
    """Every pixel spreads its filter."""
    rows = 3 * stride + 2
    out = np.tile([0.5, -1, 2], (rows, rows, 1))
    for i, j in np.ndindex(4, 4):
        out[i * stride : i * stride + 2, j * stride : j * stride + 2] += np.einsum(
            "orsc,c->rso", filters, x[0, i, j]
        )
    return out


@pytest.mark.every_day("1-2-litert", "2-2-reference")
@pytest.mark.parametrize("executor", ["reference", "litert"])
@pytest.mark.parametrize(("padding", "stride"), [(1, 2), (2, 2), (2, 1)])
def test_network_runs_on_every_driver(executor: str, padding: int, stride: int) -> None:
    content, filters = network(padding, stride)
    imported = nnburst.load(content, extensions=[EXTENSION])
    x = np.random.default_rng(2).normal(size=(1, 4, 4, 2)).astype("<f4")
    with connect_to(executor) as device, device.prepare(imported) as prepared:
        [found] = prepared.execute([x]).outputs
    np.testing.assert_allclose(found[0], plain(x, filters, stride), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", [b"", struct.pack("<iii", 0, 1, 1)])
def test_options_that_do_not_fit_are_refused_with_the_operators_name(options: bytes) -> None:
    content, _ = network(1, 2, options)
    with pytest.raises(nnburst.InvalidArgument, match="Convolution2DTransposeBias"):
        nnburst.load(content, extensions=[EXTENSION], as_graph=False)
