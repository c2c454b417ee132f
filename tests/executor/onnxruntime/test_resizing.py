"""Images are resized in whatever order their elements lie."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from executor.onnxruntime.networks import Chain, computed, operators
from nnburst.executor.base import Executor
from nnburst.executor.built_in import onnxruntime, reference
from nnburst.executor.onnxruntime.executor import NetworkPrepared
from nnburst.executor.onnxruntime.network import lower
from nnburst.formats.onnx_model import read_model
from nnburst.hal.enums import OperationType
from nnburst.hal.model import Model

pytest.importorskip("onnxruntime", reason="computes the networks")

_O = OperationType
KINDS = [_O.RESIZE_BILINEAR, _O.RESIZE_NEAREST_NEIGHBOR]
by_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


def resize(
    chain: Chain, kind: OperationType, height: int, width: int,
    *, align_corners: bool = False, half_pixel_centers: bool = False, last: bool = False,
) -> None:  # fmt: skip
    n, _, _, channels = chain.shape
    scalars = (width, height, False, align_corners, half_pixel_centers)
    operands = [chain.builder.scalar(value) for value in scalars]
    chain.then(kind, (n, height, width, channels), *operands, last=last)


def same(model: Model, shape: tuple[int, ...], engine: Executor | None = None) -> None:
    """The engine itself, not the executor behind it, computes what the reference executor does."""
    engine = onnxruntime() if engine is None else engine
    prepared = engine.prepare(model, [])
    assert isinstance(prepared, NetworkPrepared)
    prepared.close()
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    (ours,), (theirs,) = (computed(e, model, [x]) for e in (engine, reference()))
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@by_kind
@pytest.mark.parametrize("order", list(permutations(range(4))), ids=str)
@pytest.mark.parametrize("channels", [4, 8])
def test_axes_may_be_in_any_order_before_a_resize(
    kind: OperationType, order: tuple[int, ...], channels: int
) -> None:
    engine = onnxruntime()
    for factor in (0.5, 1.5, 2):
        chain = Chain((2, 6, 4, channels))
        chain.transpose(*order)
        chain.then(_O.MUL, chain.shape, chain.weights(1), chain.builder.scalar(0))
        height, width = (int(n * factor) for n in chain.shape[1:3])
        resize(chain, kind, height, width, last=True)
        same(chain.build(), (2, 6, 4, channels), engine)


def test_axes_that_an_operation_between_lets_through_may_be_in_any_order() -> None:
    chain = Chain((2, 6, 4, 3))
    chain.transpose(0, 3, 1, 2)
    chain.then(_O.SOFTMAX, chain.shape, chain.builder.scalar(1.0), chain.builder.scalar(2))
    resize(chain, _O.RESIZE_BILINEAR, 5, 9)
    chain.then(_O.MEAN, (2, 5, 9, 1), chain.integers(3), chain.builder.scalar(1))
    resize(chain, _O.RESIZE_BILINEAR, 10, 9, last=True)
    same(chain.build(), (2, 6, 4, 3))


@pytest.mark.parametrize("shape", [(1, 4, 6, 8), (2, 5, 3, 11)], ids=str)
@pytest.mark.parametrize(
    "target", [(8, 12), (2, 3), (7, 4), (1, 1), (4, 12), (5, 6), (10, 3)], ids=str
)
@pytest.mark.parametrize(
    "modes", [{}, {"align_corners": True}, {"half_pixel_centers": True}], ids=str
)
def test_an_image_of_many_channels_is_resized_where_it_lies(
    shape: tuple[int, ...], target: tuple[int, int], modes: dict[str, bool]
) -> None:
    chain = Chain(shape)
    resize(chain, _O.RESIZE_BILINEAR, *target, **modes, last=True)
    model = chain.build()
    assert set(operators(model)) == {"Resize"}
    same(model, shape)


def test_an_image_between_convolutions_is_not_moved() -> None:
    chain = Chain((1, 6, 6, 8))
    chain.convolution(8)
    resize(chain, _O.RESIZE_BILINEAR, 12, 12)
    chain.convolution(8, last=True)
    model = chain.build()
    assert operators(model) == {"Transpose": 2, "Conv": 2, "Relu": 2, "Resize": 1}
    same(model, (1, 6, 6, 8))


def test_other_providers_get_images_as_their_kernels_take_them() -> None:
    chain = Chain((1, 4, 6, 8))
    resize(chain, _O.RESIZE_BILINEAR, 8, 12, last=True)
    written = lower(chain.build(), [], by_cpu=False)
    assert written is not None
    kinds = [node.op_type for node in read_model(written.content).graph.nodes]
    assert kinds == ["Transpose", "Resize", "Transpose"]
