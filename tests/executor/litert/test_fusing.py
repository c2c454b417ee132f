"""Operations of a model that the engine computes as one are lowered to one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from executor.litert.networks import F32, Array, needs_engine
from executor.litert.test_lowering import operators
from nnburst.executor.base import Argument, Executor
from nnburst.executor.built_in import litert
from nnburst.executor.reference.executor import ReferenceExecutor
from nnburst.hal.enums import ErrorStatus, OperationType
from nnburst.hal.model import Model
from nnburst.hal.model_builder import ModelBuilder

pytestmark = needs_engine

_O = OperationType
IMAGE, CHANNELS = (1, 6, 6, 4), 4
RANDOM = np.random.default_rng(3)


class Net(ModelBuilder):
    """A model of one image that goes from operation to operation."""

    def constants(self, *shape: int) -> int:
        return self.constant(F32, RANDOM.normal(size=shape).astype("f4"))

    def number(self, value: float) -> int:
        return self.constant(F32, np.array([value], "f4"))

    def then(self, kind: OperationType, *inputs: int, last: bool = False) -> int:
        y = (self.output if last else self.temporary)(F32, IMAGE)
        self.operation(kind, list(inputs), [y])
        return y

    def arithmetic(
        self, kind: OperationType, x: int, y: int, *, last: bool = False, act: int = 0
    ) -> int:
        return self.then(kind, x, y, self.scalar(act), last=last)

    def convolved(self, x: int, kind: OperationType = _O.CONV_2D) -> int:
        whole = kind == _O.CONV_2D
        kernel = self.constants(*((CHANNELS, 3, 3, CHANNELS) if whole else (1, 3, 3, CHANNELS)))
        window = [self.scalar(1), self.scalar(1), self.scalar(1)]
        more = [] if whole else [self.scalar(1)]
        return self.then(kind, x, kernel, self.constants(CHANNELS), *window, *more, self.scalar(0))


def run(executor: Executor, model: Model, x: Array) -> list[Array]:
    outputs = [np.zeros(IMAGE, "f4") for _ in model.main.output_indexes]
    every = [
        [Argument(a.reshape(-1).view(np.uint8), a.shape) for a in arrays]
        for arrays in ([x], outputs)
    ]
    assert executor.prepare(model, []).bind(*every).run().status == ErrorStatus.NONE
    return outputs


def same(model: Model) -> None:
    """Both executors compute the same, up to rounding."""
    x = RANDOM.normal(0, 3, IMAGE).astype("f4")
    expected = run(ReferenceExecutor(), model, x)
    for ours, theirs in zip(run(litert(), model, x), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5 * np.abs(theirs).max())


@pytest.mark.parametrize("kind", [_O.CONV_2D, _O.DEPTHWISE_CONV_2D])
@pytest.mark.parametrize("shape", [(CHANNELS,), (1, 1, 1, CHANNELS), (1,)])
def test_normalisation_behind_a_convolution_is_in_its_weights(
    kind: OperationType, shape: tuple[int, ...]
) -> None:
    net = Net()
    x = net.convolved(net.input(F32, IMAGE), kind)
    x = net.arithmetic(_O.MUL, x, net.constants(*shape))
    x = net.arithmetic(_O.SUB, x, net.constants(*shape))
    net.arithmetic(_O.ADD, net.constants(*shape), x, act=1, last=True)
    model = net.build()
    assert operators(model) == [kind.name]
    same(model)


def read_twice(net: Net, x: int) -> None:
    y = net.arithmetic(_O.MUL, x, net.constants(CHANNELS))
    net.arithmetic(_O.ADD, x, y, last=True)


def an_output(net: Net, x: int) -> None:
    x = net.arithmetic(_O.ADD, x, net.number(0), last=True)
    net.arithmetic(_O.MUL, x, net.constants(CHANNELS), last=True)


def by_row(net: Net, x: int) -> None:
    net.arithmetic(_O.MUL, x, net.constants(1, 6, 1, 1), last=True)


def taken_from_a_number(net: Net, x: int) -> None:
    net.arithmetic(_O.SUB, net.number(2), x, last=True)


def behind_an_activation(net: Net, x: int) -> None:
    x = net.then(_O.RELU, x)
    net.arithmetic(_O.ADD, x, net.constants(CHANNELS), last=True)


def beyond_float32(net: Net, x: int) -> None:
    x = net.arithmetic(_O.MUL, x, net.number(1e30))
    x = net.arithmetic(_O.MUL, x, net.number(1e30))
    net.arithmetic(_O.MUL, x, net.number(0), last=True)


@pytest.mark.parametrize(
    ("rest", "left"),
    [
        (read_twice, ["CONV_2D", "MUL", "ADD"]),
        (an_output, ["CONV_2D", "MUL"]),
        (by_row, ["CONV_2D", "MUL"]),
        (taken_from_a_number, ["CONV_2D", "SUB"]),
        (behind_an_activation, ["CONV_2D", "ADD"]),
    ],
)
def test_what_others_read_or_what_is_not_one_number_for_each_channel_stays(
    rest: Callable[[Net, int], None], left: list[str]
) -> None:
    net = Net()
    rest(net, net.convolved(net.input(F32, IMAGE)))
    model = net.build()
    assert operators(model) == left
    same(model)


def test_weights_beyond_float32_are_not_made() -> None:
    net = Net()
    beyond_float32(net, net.convolved(net.input(F32, IMAGE)))
    assert operators(net.build()) == ["CONV_2D", "MUL", "MUL"]


def raised(net: Net, x: int, by: float = 3) -> int:
    return net.then(_O.RELU6, net.arithmetic(_O.ADD, x, net.number(by)))


def product_divided(net: Net, x: int) -> None:
    y = net.arithmetic(_O.MUL, x, raised(net, x))
    net.arithmetic(_O.DIV, y, net.number(6), last=True)


def product_times_a_sixth(net: Net, x: int) -> None:
    y = net.arithmetic(_O.MUL, raised(net, x), x)
    net.arithmetic(_O.MUL, net.number(1 / 6), y, last=True)


def hard_sigmoid_first(net: Net, x: int) -> None:
    y = net.arithmetic(_O.DIV, raised(net, x), net.number(6))
    net.arithmetic(_O.MUL, y, x, last=True)


def line_between_limits(net: Net, x: int) -> None:
    y = net.arithmetic(_O.ADD, net.arithmetic(_O.MUL, x, net.number(1 / 6)), net.number(0.5))
    y = net.then(_O.MINIMUM, net.then(_O.MAXIMUM, y, net.number(0)), net.number(1))
    net.arithmetic(_O.MUL, x, y, last=True)


@pytest.mark.parametrize(
    "made", [product_divided, product_times_a_sixth, hard_sigmoid_first, line_between_limits]
)
def test_hard_swish_in_parts_is_one_operator(made: Callable[[Net, int], None]) -> None:
    net = Net()
    made(net, net.input(F32, IMAGE))
    model = net.build()
    assert operators(model) == ["HARD_SWISH"]
    same(model)


def not_three(net: Net, x: int) -> None:
    y = net.arithmetic(_O.MUL, x, raised(net, x, 2.5))
    net.arithmetic(_O.DIV, y, net.number(6), last=True)


def of_another(net: Net, x: int) -> None:
    y = net.arithmetic(_O.MUL, net.then(_O.ABS, x), raised(net, x))
    net.arithmetic(_O.DIV, y, net.number(6), last=True)


def six_divided(net: Net, x: int) -> None:
    y = net.arithmetic(_O.MUL, x, net.then(_O.RELU, raised(net, x)))
    net.arithmetic(_O.DIV, net.number(6), y, last=True)


@pytest.mark.parametrize("made", [not_three, of_another, six_divided])
def test_what_only_looks_like_a_hard_swish_is_not_made_one(
    made: Callable[[Net, int], None],
) -> None:
    net = Net()
    made(net, net.input(F32, IMAGE))
    model = net.build()
    assert "HARD_SWISH" not in operators(model)
    if made is not six_divided:  # divides by 0
        same(model)
